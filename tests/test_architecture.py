"""One loop, one direction: right may import left, never back. Lazy imports inside functions count too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "isentrope"

LEAVES = {
    "core",
    "types",
    "errors",
    "seeding",
    "disk",
}  # import only each other; anyone may import them
PROTOCOLS = {"isentrope.core.method"}  # likewise: what a method is, not the methods
STAGES = (
    "config", "runs", "net", "tasks", "agent", "policy", "rollout", "batch", "advantages",
    "losses", "methods", "train", "instruments", "analysis", "charts", "report", "watch",
    "study", "claims",
)  # fmt: skip
ABOVE = {
    "loop",
    "export",
    "export_card",
    "pocket",
    "method_pages",
    "serve",
    "bench",
    "cli",
    "__main__",
}  # see everything; seen by none

FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """The stage of a module: `isentrope.worlds.pool.open` -> `tasks`; the package itself is ''."""
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
    if imported == "" or imported == "__version__" or imported == importer or importer in ABOVE:
        return True
    if imported in LEAVES:
        return True
    if importer in LEAVES or imported not in STAGES:
        return False
    return STAGES.index(imported) < STAGES.index(importer)


def imported_by(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return list(imports(tree, module_of(path), path.name == "__init__.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    importer = part_of(module_of(path))
    places = {"", *LEAVES, *STAGES, *ABOVE}
    assert importer in places, f"{path.name} has no place yet: give it one at the top of this test"
    ours = [name for name in imported_by(path) if name.split(".")[0] == "isentrope" and name not in PROTOCOLS]
    against = [name for name in ours if not allowed(importer, part_of(name))]
    assert not against, f"{importer} may not import {against}"


def test_the_rule_itself() -> None:
    assert allowed("tasks", "config")
    assert allowed("methods", "learning")
    assert allowed("config", "errors")
    assert allowed("cli", "loop")
    assert not allowed("config", "tasks")
    assert not allowed("learning", "methods")
    assert not allowed("types", "config")
    assert not allowed("report", "loop")
    tree = ast.parse("def f():\n    from isentrope.train import x\nfrom ..policy import y\nfrom isentrope import cli")
    assert set(imports(tree, "isentrope.report.page", False)) >= {
        "isentrope.train",
        "isentrope.policy",
        "isentrope.cli",
    }


def test_results_and_report_read_only_what_runs_wrote() -> None:
    """They import no trainer, no policy and no torch, so that they can be made anywhere, by anyone."""
    for path in [path for part in ("analysis", "charts", "report", "watch") for path in (PACKAGE / part).glob("*.py")]:
        parts = {name if not name.startswith("isentrope") else part_of(name) for name in imported_by(path)}
        assert not parts & {"torch", "policy", "train", "methods", "learning"}, path


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
    uses = any(name.split(".")[0] == "matplotlib" for name in [*imported_by(path), *strings])
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
