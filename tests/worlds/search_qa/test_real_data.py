"""Real questions and passages: what is found, and a game on them. Skipped where the data is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.search_qa.world import SearchQAOptions, SearchQAWorld, recall

DATA = Path(__file__).parents[4] / "shared" / "data" / "search_qa"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data at {DATA}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SearchQAWorld:
    return SearchQAWorld(SearchQAOptions(data=str(DATA), cache=str(tmp_path_factory.mktemp("cache"))))


def test_what_is_there(world: SearchQAWorld) -> None:
    assert {split: world.size(split) for split in world.splits()} == {"train": 200, "test": 786}
    assert world.kinds == ("2wiki", "bamboogle", "hotpotqa", "musique")
    named = SearchQAWorld(replace(world.options, sets=("Bamboogle",)))
    assert {split: named.size(split) for split in named.splits()} == {"test": 125}


def test_recall_is_what_was_measured(world: SearchQAWorld) -> None:
    found = recall(world, "test", (3, 10))
    assert {name: (round(row.shares[3], 2), round(row.shares[10], 2)) for name, row in found.items()} == {
        "hotpotqa": (0.65, 0.88),
        "musique": (0.46, 0.59),
        "2wiki": (0.63, 0.73),
    }


def test_it_conforms(world: SearchQAWorld) -> None:
    assert_conforms(world, games=20)
