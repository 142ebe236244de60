"""Instances: which task and variation a number stands for. No simulator is needed but to compare the splits."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.config.convert import parse_section
from isentrope.core.errors import ConfigError, TaskError
from isentrope.worlds.registry import make_world
from isentrope.worlds.scienceworld.catalogue import SPLITS, TASKS, VARIATIONS, dealt, variations
from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions


def test_all_thirty_tasks_and_every_variation_once() -> None:
    world = ScienceWorld()
    assert world.kinds == TASKS
    assert len(TASKS) == 30
    assert {split: world.size(split) for split in SPLITS} == {"train": 3592, "dev": 1796, "test": 1819}
    games = [world.fingerprint(world.instance(split, i)) for split in SPLITS for i in range(world.size(split))]
    assert sorted(map(str, games)) == sorted(str((task, i)) for task in TASKS for i in range(VARIATIONS[task]))


def test_the_splits_are_the_simulators(world: ScienceWorld) -> None:
    simulator = world.machines.take()
    for task in TASKS:
        simulator.load(task, 0, "")
        for split in SPLITS:
            assert simulator.split(split.capitalize()) == list(variations(task, split)), (task, split)
    world.machines.give(simulator)


def test_every_part_of_a_split_begins_with_all_tasks() -> None:
    world = ScienceWorld()
    for split in SPLITS:
        assert {world.instance(split, i).kind for i in range(30)} == set(TASKS)
        first = Counter(world.instance(split, i).kind for i in range(60))
        assert set(first.values()) == {2}


@given(st.lists(st.sampled_from(TASKS), min_size=1, unique=True), st.sampled_from(SPLITS), st.integers(0, 9))
def test_dealt_in_rounds(tasks: list[str], split: str, most: int) -> None:
    games = dealt(tasks, split, most)
    assert len(set(games)) == len(games)
    for task in tasks:
        mine = sorted(number for name, number in games if name == task)
        there = variations(task, split)
        assert set(mine) <= set(there)
        assert len(mine) == (min(most, len(there)) if most else len(there))
    seen: Counter[str] = Counter()
    for task, _ in games:  # nobody gets another turn before everybody with something left had theirs
        behind = [other for other in tasks if seen[other] < seen[task]]
        assert all(seen[other] == sum(1 for name, _ in games if name == other) for other in behind)
        seen[task] += 1


def test_the_same_in_every_process() -> None:
    code = (
        "from isentrope.worlds.scienceworld.world import ScienceWorld as W; w = W();"
        "print([w.variation(w.instance(s, i)) for s in w.splits() for i in range(0, 1700, 50)])"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    random.seed(1)
    world = ScienceWorld()
    assert other == str([world.variation(world.instance(s, i)) for s in world.splits() for i in range(0, 1700, 50)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": ["boyl"]}, "no task 'boyl'; did you mean boil?"),
        ({"simplifications": "easy,openDoors"}, "expected easy alone"),
        ({"simplifications": "openDors"}, "expected easy alone"),
        ({"simplifications": "noElectricalAction"}, "cannot be solved without electrical actions"),
    ],
)
def test_what_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(TaskError) as caught:
        make_world("scienceworld", options)
    assert words in str(caught.value)


def test_limits_of_options() -> None:
    with pytest.raises(ConfigError, match="hint"):
        parse_section(ScienceWorldOptions, {"hint": "all"}, "task.options")
    make_world("scienceworld", {"simplifications": "noElectricalAction,openDoors", "tasks": ["boil"]})
