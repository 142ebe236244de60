"""Borders of the package: who may import whom, who draws, who listens. Imports inside functions count too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "isentrope"

# A package imports only what stands before it; `loop`, `cli`, and `api` see everything, and so does the package itself,
# which names what is public and loads it when it is asked for. Nobody imports `api`.
ORDER = (
    "core", "config", "runs", "net", "sandbox", "worlds", "agent", "models", "kernels", "engines", "cluster",
    "rollout", "learning", "methods", "metrics", "diagnosis", "imports", "analysis", "loop", "study", "charts",
    "report", "watch",
    "serving", "papers", "bench", "plugins", "cli",
)  # fmt: skip
SEE_EVERYTHING = {"", "loop", "cli", "api", "__main__"}
EXCEPTIONS = {  # at most four, each with its reason
    ("models", "kernels"): "a policy takes the fastest forward pass and head that its device has",
    ("metrics", "diagnosis"): "the observer of a step hands its metrics to the alarms",
    ("study", "charts"): "a study draws its curves",
    ("study", "report"): "a study's page has the frame of a report",
}

FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """The part of a module: `isentrope.worlds.pool.open` -> `worlds`; the package itself is ''."""
    return module.split(".")[1] if "." in module else ""


def module_of(path: Path) -> str:
    names = ("isentrope", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Every module named by an import statement, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = module.split(".")[: (None if is_package else -1)]
            base = here[: len(here) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield source
            if source == "isentrope":  # `from isentrope import cli` names a module too
                yield from (f"isentrope.{alias.name}" for alias in node.names)


def allowed(importer: str, imported: str) -> bool:
    if imported in ("", "__version__", importer) or importer in SEE_EVERYTHING or (importer, imported) in EXCEPTIONS:
        return True
    return imported in ORDER and ORDER.index(imported) < ORDER.index(importer)


def imported_by(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return list(imports(tree, module_of(path), path.name == "__init__.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    importer = part_of(module_of(path))
    assert importer in {*SEE_EVERYTHING, *ORDER}, f"{path.name} has no place yet: give it one at the top of this test"
    ours = [name for name in imported_by(path) if name.split(".")[0] == "isentrope"]
    against = [name for name in ours if not allowed(importer, part_of(name))]
    assert not against, f"{importer} may not import {against}"


def test_the_rule_itself() -> None:
    assert allowed("worlds", "config")
    assert allowed("methods", "learning")
    assert allowed("cli", "loop")
    assert not allowed("config", "worlds")
    assert not allowed("learning", "methods")
    assert not allowed("core", "config")
    assert not allowed("report", "api")
    assert len(EXCEPTIONS) <= 4
    tree = ast.parse("def f():\n    from isentrope.loop import x\nfrom ..models import y\nfrom isentrope import cli")
    assert set(imports(tree, "isentrope.report.page", False)) >= {"isentrope.loop", "isentrope.models", "isentrope.cli"}


def test_every_exception_is_used() -> None:
    used = {(part_of(module_of(path)), part_of(name)) for path in FILES for name in imported_by(path)}
    assert set(EXCEPTIONS) <= used


def test_plugins_are_a_door_of_their_own() -> None:
    """They are imported by the programs of other trainers; nothing of ours needs what they need."""
    for path in FILES:
        if part_of(module_of(path)) != "plugins":
            assert not [name for name in imported_by(path) if part_of(name) == "plugins"], path


def test_results_and_report_read_only_what_runs_wrote() -> None:
    """They import no trainer, no policy and no torch, so that they can be made anywhere, by anyone."""
    for path in [path for part in ("analysis", "charts", "report", "watch") for path in (PACKAGE / part).glob("*.py")]:
        parts = {name if not name.startswith("isentrope") else part_of(name) for name in imported_by(path)}
        assert not parts & {"torch", "models", "kernels", "engines", "learning", "methods", "loop"}, path


@pytest.mark.parametrize(
    "module", ["isentrope.report.page", "isentrope.analysis.tables", "isentrope.worlds.pool.open", "isentrope.cli.main"]
)
def test_torch_is_not_imported_by(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_charts_draw(path: Path) -> None:
    """No other module writes SVG or imports matplotlib. The one picture that is no chart, the live page's icon, is a
    static file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    draws = any("<svg" in text.lower() for text in strings)
    named = [] if module_of(path) == "isentrope.core.needs" else strings  # the table of all packages
    uses = any(name.split(".")[0] == "matplotlib" for name in [*imported_by(path), *named])
    assert part_of(module_of(path)) == "charts" or not (draws or uses), f"{path.name} draws: describe it to charts/"


SERVING = re.compile(
    r"\.listen\(|\.bind\(|http\.server|socketserver|asyncio\.start_server|create_server\(|\buvicorn\b(?!\")"
)  # "uvicorn" with a quote behind it is the name of a package to look for


def test_only_net_listens() -> None:
    """One place opens sockets and runs servers, so that limits hold everywhere."""
    for path in FILES:
        if part_of(module_of(path)) != "net":
            match = SERVING.search(path.read_text(encoding="utf-8"))
            assert match is None, f"{path.relative_to(PACKAGE)} has {match and match[0]}: serve with isentrope/net"


def test_files_are_short() -> None:
    limits = {"isentrope.methods": 200, "isentrope.loop.train": 150}
    for path in FILES:
        lines, module = len(path.read_text(encoding="utf-8").splitlines()), module_of(path)
        limit = next((most for name, most in limits.items() if module.startswith(name)), 400)
        assert lines <= limit, f"{path.relative_to(PACKAGE)} has {lines} lines; at most {limit}"
