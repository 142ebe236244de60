"""Slow clients and bad requests against the servers, a part of what `make attack` tries."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import isentrope
from tests.attack.bad_requests import SERVERS, try_all
from tests.attack.slow_clients import command, honest, slow_clients
from tests.builders.sizes import EXPLORE

PACKAGE = Path(isentrope.__file__).parent
LISTENS = {
    "listen",
    "bind",
    "create_server",
    "start_server",
    "start_unix_server",
    "create_unix_server",
    "serve_forever",
}
MODULES = {
    "uvicorn",
    "hypercorn",
    "http.server",
    "socketserver",
    "wsgiref",
    "xmlrpc.server",
    "multiprocessing.managers",
}


def test_nothing_listens_but_the_one_server() -> None:
    """Its limits hold for every command, as there is no other way to listen."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            imports = any(name == module or name.startswith(f"{module}.") for name in names for module in MODULES)
            calls = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LISTENS
            if imports or calls:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"net/server.py", "net/connections.py"}
    assert set(SERVERS) == {"watch", "serve", "serve-task", "retrieve", "serve-openenv"}


@pytest.mark.slow(10)
def test_an_honest_client_is_answered_among_slow_ones() -> None:
    """2,000 of them with ISENTROPE_EXPLORE=1, where nobody may wait for more than a second."""
    server = command(["-m", "tests.attack.slow_clients", "--serve"])
    with server as (_, port), slow_clients(port, 2000 if EXPLORE else 600):
        times, came = honest(port, 20.0 if EXPLORE else 3.0)
    assert set(came) == {"200"}, came
    assert len(times) > 10
    assert not EXPLORE or max(times) <= 1.0


@pytest.mark.slow(5)
@pytest.mark.parametrize("name", SERVERS)
def test_bad_requests_are_refused(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if name == "serve-openenv":
        pytest.importorskip("openenv.core", reason="needs pip install 'isentrope[openenv]'")
    with SERVERS[name](tmp_path) as (server, goods):
        told = try_all(server, goods, 3000 if EXPLORE else 250, seed=0)
    assert not told.wrong, "\n".join(told.wrong[:20])
    assert sum(told.statuses[status] for status in told.statuses if 400 <= status < 500) > 60
    assert "Traceback" not in capfd.readouterr().err
