"""The counts of tools/house.py on a package made by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("house", Path(__file__).parents[1] / "tools" / "house.py")
assert _SPEC
assert _SPEC.loader
house = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(house)

FILES = {
    "__init__.py": "",
    "pipeline.py": "from toy.parts.far import go\nimport toy.parts.near\n",
    "cli/__init__.py": "",
    "cli/train.py": "def train():\n    from toy import pipeline\n",
    "parts/__init__.py": "from toy.parts.near import x\n",
    "parts/near.py": "from toy.parts import splinter\nx = 1\n",
    "parts/splinter.py": "y = 2\n",
    "parts/far.py": "def go():\n" + "    pass\n" * 61,
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "toy"


def test_counts(package: Path) -> None:
    told = house.table(package)
    assert told["modules"] == "5"
    assert told["modules directly under toy/"] == "1"
    assert told["modules whose only importer is a neighbour"] == "1"  # splinter; far's importer lies elsewhere
    assert told["functions over 60 lines"] == "toy.parts.far.go (62)"
    assert told["files over 400 lines"] == "0"
    assert told["lines of Python"] == str(sum(len(text.splitlines()) for text in FILES.values()))


def test_hops_take_the_shortest_way(package: Path) -> None:
    trees = house.modules_in(package)
    graph = {name: house.imports_of(name, tree, trees) for name, tree in trees.items()}
    assert graph["toy.parts"] == {"toy.parts.near"}
    assert house.hops(graph, "toy.cli.train", ("toy.parts.far",)) == 2
    assert house.hops(graph, "toy.cli.train", ("toy.parts.splinter",)) == 3
    assert house.hops(graph, "toy.parts.splinter", ("toy.cli",)) is None


def test_this_package_can_be_counted() -> None:
    told = house.table()
    assert int(told["modules"]) > 100
    assert told["files over 400 lines"] == "0"
    assert told["hops from command to loss"].isdecimal()
