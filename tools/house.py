"""Counts of the package's structure (modules, lines, hops): `python tools/house.py [FOLDER]`.

Imports are read by ast, those inside of functions too, so everyone counts alike. A module is a file with code that is
no `__init__`; one module imports another if it names it or something in it. Hops are imports on the shortest way.
"""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "isentrope"
LONG_FUNCTION, LONG_FILE = 60, 400
WAYS = {  # from where to where hops are counted
    "command to loss": ("isentrope.cli.train", "isentrope.learning.losses."),
    "loop to a sampled token": ("isentrope.loop.train", "isentrope.engines.torch"),
}


def modules_in(package: Path) -> dict[str, ast.Module]:
    """Every file of the package by its dotted name; a package's `__init__` by the package's."""
    found: dict[str, ast.Module] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports_of(name: str, tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    """The modules of the package that a module imports, itself left out."""
    wanted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                wanted.add(inner if inner in known else node.module)
    return {one for one in wanted if one in known and one != name}


def hops(graph: Mapping[str, set[str]], start: str, end: str) -> int | None:
    """Files between, the last one counted, on the shortest way; None if there is none."""
    waiting, seen = deque([(start, 0)]), {start}
    while waiting:
        here, far = waiting.popleft()
        if far and here.startswith(end):
            return far
        for there in sorted(graph.get(here, set()) - seen):
            seen.add(there)
            waiting.append((there, far + 1))
    return None


def long_functions(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > LONG_FUNCTION:
                    yield f"{name}.{node.name} ({count})"


def splinters(graph: Mapping[str, set[str]], modules: set[str]) -> list[str]:
    """Modules that one other imports, and that one lies in their own folder."""
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, wanted in graph.items():
        for one in wanted & modules:
            importers[one].add(name)
    return sorted(
        name
        for name, found in importers.items()
        if len(found) == 1 and next(iter(found)).rpartition(".")[0] == name.rpartition(".")[0]
    )


def table(package: Path = PACKAGE) -> dict[str, str]:
    trees = modules_in(package)
    graph = {name: imports_of(name, tree, trees) for name, tree in trees.items()}
    files = list(package.rglob("*.py"))
    code = {".".join(p.relative_to(package.parent).with_suffix("").parts) for p in files if p.stem != "__init__"}
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    told = {
        "modules": str(len(code)),
        "modules whose only importer is a neighbour": str(len(splinters(graph, code))),
        f"modules directly under {package.name}/": str(sum(name.count(".") == 1 for name in code)),
        "lines of Python": str(sum(lines.values())),
        f"files over {LONG_FILE} lines": str(sum(count > LONG_FILE for count in lines.values())),
        f"functions over {LONG_FUNCTION} lines": ", ".join(long_functions(trees)) or "0",
    }
    for name, (start, end) in WAYS.items():
        found = hops(graph, start, end)
        told[f"hops from {name}"] = "no way" if found is None else str(found)
    return told


if __name__ == "__main__":
    shown = table(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
    width = max(map(len, shown))
    for what, count in shown.items():
        print(f"{what:{width}}  {count}")
