"""Generated games: solvable, deterministic, and rooms kept apart by split."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.household.chores import FITTING, TASK_PLACES, TASK_ROOMS
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.game import KINDS, Game
from isentrope.worlds.household.generate import SPLITS, generate
from isentrope.worlds.household.players import read_task
from isentrope.worlds.household.rooms import FURNITURE, OBJECTS, POOL, SIZES, layouts, lies_in


def key(game: Game) -> tuple[str, ...]:
    return tuple(sorted(receptacle.type for receptacle in game.receptacles))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(SPLITS), st.integers(0, 10**6), st.sampled_from(SIZES))
def test_every_game_is_won_by_its_walkthrough_and_not_before(kind: str, split: str, index: int, size: str) -> None:
    game = generate(kind, split, index, size)
    engine = Engine(game)
    for command in game.walkthrough:
        assert not engine.won
        assert command in engine.admissible()
        engine.step(command)
    assert engine.won
    assert game.kind == kind
    assert read_task(game.task) == game.goal


@pytest.mark.parametrize(("size", "low", "high", "objects"), [("small", 5, 9, 14), ("medium", 10, 16, 26)])
def test_sizes(size: str, low: int, high: int, objects: int) -> None:
    games = [generate(kind, "train", index, size) for kind in KINDS for index in range(40)]
    assert {low, high} <= {len(game.receptacles) for game in games}
    assert all(low <= len(game.receptacles) <= high and len(game.objects) <= objects for game in games)


def test_full_rooms_are_as_large_as_real_ones() -> None:
    counts = [len(generate(kind, "train", index, "full").receptacles) for kind in KINDS for index in range(40)]
    assert 6 <= min(counts) <= 10
    assert 35 <= max(counts) <= 54
    assert 19 <= sum(counts) / len(counts) <= 27


@pytest.mark.parametrize("size", SIZES)
def test_unseen_layouts_are_never_in_train(size: str) -> None:
    for room in FURNITURE:
        train, unseen = layouts(room, size, "train"), layouts(room, size, "unseen")
        assert len({layout.key for layout in train}) == POOL["train"]
        assert len({layout.key for layout in unseen}) == POOL["unseen"]
        assert not {layout.key for layout in train} & {layout.key for layout in unseen}


def test_seen_games_are_new_games_in_train_layouts() -> None:
    train = {layout.key for room in FURNITURE for layout in layouts(room, "small", "train")}
    for kind in KINDS:
        for index in range(10):
            seen, unseen = generate(kind, "seen", index, "small"), generate(kind, "unseen", index, "small")
            assert key(seen) in train
            assert key(unseen) not in train
            assert seen.objects != generate(kind, "train", index, "small").objects


def test_games_differ() -> None:
    games = {generate("pick", split, index, "small").objects for split in SPLITS for index in range(50)}
    assert len(games) == 150


HASH_GAMES = """
import hashlib
from isentrope.worlds.household.export import write_problem
from isentrope.worlds.household.generate import generate
games = [generate(kind, "unseen", 7, size) for kind in ("two", "look", "clean") for size in ("small", "full")]
text = "".join(write_problem(game) + game.task + str(game.walkthrough) for game in games)
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_the_same_game_whatever_python_hashes_strings_to() -> None:
    environments = [os.environ | {"PYTHONHASHSEED": seed} for seed in ("1", "2")]
    command = [sys.executable, "-c", HASH_GAMES]
    outputs = {subprocess.run(command, env=env, capture_output=True, check=True).stdout for env in environments}
    assert len(outputs) == 1


def test_things_lie_where_they_usually_lie() -> None:
    places: Counter[str] = Counter()
    for index in range(300):
        game = generate("cool", "train", index, "medium")
        for thing, place in game.inside:
            if game.objects[thing].type == "pot" and game.goal.object_type != "pot":
                places[game.receptacles[place].type] += 1
    assert places.most_common(1)[0][0] == "stoveburner"


def test_tables_agree_with_each_other() -> None:
    for room, table in OBJECTS.items():
        assert all(place in FURNITURE[room] for thing in table for place in lies_in(room, thing))
    for kind, table in TASK_ROOMS.items():
        assert set(table) <= set(FURNITURE)
        assert kind == "look" or all((kind, room) in TASK_PLACES for room in table)
    for (_, room), pairs in TASK_PLACES.items():
        assert all(place in FURNITURE[room] and (place, thing) in FITTING for thing, place in pairs), room


@pytest.mark.parametrize(
    "arguments", [("fry", "train", 0, "full"), ("pick", "test", 0, "full"), ("pick", "seen", 0, "big")]
)
def test_unknown_games_are_refused(arguments: tuple[str, str, int, str]) -> None:
    with pytest.raises(TaskError, match="kinds are pick, look"):
        generate(*arguments)
