"""Curricula: what is played follows pass rates, kinds and schedules, in any world, and the same after a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isentrope.config.load import load_config
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.types import Episode
from isentrope.loop.train import train
from isentrope.rollout.curriculum import LEAST, nearness
from isentrope.rollout.sampler import TaskSampler, after_step, begin, make_sampler, pick_instances
from isentrope.runs.log import read_records
from isentrope.worlds.contract import Instance
from tests.builders.episodes import episode
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.toys import ToyWorld

KINDS = ("easy", "middle", "hard")


class Pool(ToyWorld):
    """Thirty games of three kinds, the easy ones first; or as many as are asked for, in turn."""

    kinds = KINDS

    def __init__(self, size: int | None = 30) -> None:
        super().__init__()
        self._size = size

    def size(self, split: str) -> int | None:
        return self._size

    def instance(self, split: str, index: int) -> Instance:
        kind = KINDS[index % 3] if self._size is None else KINDS[3 * index // self._size]
        return Instance(self.name, split, index, kind)


def sampler_of(world: ToyWorld, *changes: str) -> TaskSampler:
    sampler = make_sampler(load_config(None, changes))
    begin(sampler, world)
    return sampler


def episodes_of(instances: Sequence[Instance], won: Any) -> list[Episode]:
    """Four of each task; `won(instance, member)` says whether it was solved."""
    return [
        episode(index=one.index, kind=one.kind, group=group, member=member, success=won(one, member))
        for group, one in enumerate(instances)
        for member in range(4)
    ]


def run(sampler: TaskSampler, world: ToyWorld, steps: range, won: Any, count: int = 6) -> list[list[Instance]]:
    played: list[list[Instance]] = []
    for step in steps:
        instances = pick_instances(sampler, world, count, step)
        played.append(instances)
        after_step(sampler, step, episodes_of(instances, won))
    return played


def half_of_the_middle(one: Instance, member: int) -> bool:
    return {"easy": True, "middle": member % 2 == 0, "hard": False}[one.kind]


def test_nearness_is_highest_at_the_target() -> None:
    assert nearness(0.5, 0.5, 0.25) == 1
    assert nearness(0.75, 0.5, 0.25) == pytest.approx(0.3679, abs=1e-4)  # 1/e, one width away
    assert nearness(1.0, 0.5, 0.1) == LEAST


@pytest.mark.parametrize("size", [30, None])
def test_pass_rate_plays_what_is_sometimes_solved(size: int | None) -> None:
    world = Pool(size)
    played = run(sampler_of(world, "task.sampler=pass_rate"), world, range(1, 41), half_of_the_middle)
    assert len({one.index for one in played[0]}) == 6  # all are new at first
    late = Counter(one.kind for step in played[20:] for one in step)
    if size:
        assert {one.index for step in played for one in step} == set(range(30))
        assert late["middle"] > 0.8 * late.total()
    else:  # half of each step is new
        assert late["middle"] > 0.5 * late.total()


def test_pass_rate_with_fewer_tasks_than_groups() -> None:
    world = Pool(3)
    played = run(sampler_of(world, "task.sampler=pass_rate"), world, range(1, 4), half_of_the_middle)
    assert all({one.index for one in step} == {0, 1, 2} for step in played)


def test_tasks_that_break_are_not_played_for_ever() -> None:
    world = Pool()
    sampler = sampler_of(world, "task.sampler=pass_rate", "task.sampler.new=1.0")
    seen: list[int] = []
    for step in range(1, 6):
        instances = pick_instances(sampler, world, 6, step)
        seen += [one.index for one in instances]
        broken = [replace(one, stop="task_error") for one in episodes_of(instances, half_of_the_middle)]
        after_step(sampler, step, broken)
    assert sorted(seen) == list(range(30))


def test_kinds_by_weights_and_by_rate() -> None:
    world = Pool()
    weights = "task.sampler.weights={easy=1, hard=3}"
    played = run(sampler_of(world, "task.sampler=kinds", weights), world, range(1, 101), half_of_the_middle)
    counts = Counter(one.kind for step in played for one in step)
    assert set(counts) == {"easy", "hard"}
    assert counts["hard"] / counts.total() == pytest.approx(0.75, abs=0.06)  # three deviations of 600 draws: 0.053
    for pool in (Pool(), Pool(None)):
        played = run(sampler_of(pool, "task.sampler=kinds"), pool, range(1, 61), half_of_the_middle)
        late = Counter(one.kind for step in played[20:] for one in step)
        assert late["middle"] > 0.8 * late.total()


def test_schedule_by_stages_and_by_share() -> None:
    stages = "task.sampler.stages={3=['easy', 'middle'], 1='easy', 5=['hard']}"
    for world in (Pool(), Pool(None)):
        played = run(sampler_of(world, "task.sampler=schedule", stages), world, range(1, 7), half_of_the_middle)
        kinds = [{one.kind for one in step} for step in played]
        assert kinds == [{"easy"}, {"easy"}, {"easy", "middle"}, {"easy", "middle"}, {"hard"}, {"hard"}]
    growing = ("task.sampler=schedule", "task.sampler.first=0.2", "task.sampler.steps=5")
    world = Pool()
    played = run(sampler_of(world, *growing), world, range(1, 8), half_of_the_middle, count=300)
    assert [max(one.index for one in step) + 1 for step in played] == [6, 12, 18, 24, 30, 30, 30]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["task.sampler=kinds", "task.sampler.weights={odd=1}"], "the kind 'odd', which the world does not have"),
        (["task.sampler=kinds", "task.sampler.weights={easy=-1}"], "expected a number from 0"),
        (["task.sampler=kinds", "task.sampler.weights={easy=0}"], "are all 0"),
        (["task.sampler=schedule", "task.sampler.stages={1=['odd']}"], "the kind 'odd'"),
        (["task.sampler=schedule", "task.sampler.stages={x=['easy']}"], "expected a step and the kinds"),
        (["task.sampler=schedule", "task.sampler.stages={1=3}"], "expected a step and the kinds"),
        (["task.sampler=pass_rate", "task.sampler.target=2"], "expected a number from 0 to 1"),
        (["task.sampler=pass_rat"], "did you mean pass_rate"),
    ],
)
def test_what_is_refused(changes: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sampler_of(Pool(), *changes)


def test_a_share_of_a_split_without_an_end_is_refused() -> None:
    with pytest.raises(TaskError, match="without an end; name the kinds"):
        pick_instances(sampler_of(Pool(None), "task.sampler=schedule"), Pool(None), 2, 1)


@pytest.mark.parametrize("kind", ["pass_rate", "kinds", "schedule"])
def test_the_state_is_all_that_it_knows(kind: str) -> None:
    world, change = Pool(), f"task.sampler={kind}"
    whole = sampler_of(world, change)
    first = run(whole, world, range(1, 8), half_of_the_middle)
    resumed = sampler_of(world, change)
    resumed.load_state_dict(whole.state_dict())
    assert run(whole, world, range(8, 14), half_of_the_middle) == run(resumed, world, range(8, 14), half_of_the_middle)
    assert first[0] == run(sampler_of(world, change), world, range(1, 2), half_of_the_middle)[0]


@pytest.mark.slow(4)
def test_a_run_records_it(tmp_path: Path) -> None:
    config = toy_config(WARM_MODEL, "task.sampler=pass_rate", "run.steps=2", "run.eval_every=0", "methods=[]")
    train(config, tmp_path / "run", quiet=True)
    steps = [record for record in read_records(tmp_path / "run" / "metrics.jsonl") if record["kind"] == "train"]
    assert [step["curriculum/known"] for step in steps] == [2.0, 3.0]
    assert [step["curriculum/new"] for step in steps] == [1.0, 0.5]
