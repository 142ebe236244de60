"""Chooses the tasks that a training step plays: in turn, by a curriculum (curriculum.py), or by a sampler of your own
(`task.sampler`).

class Hard(TaskSampler):
    name = "hard"

    def pick(self, size, count, step, attempt):
        return [7, 19, 23][:count]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from operator import index as index_of
from typing import Any

import numpy as np

from isentrope.config.convert import parse_choice
from isentrope.config.parts import GROUPS, Parts
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.part import Part, calling, numbers
from isentrope.core.seeding import stream
from isentrope.core.types import Episode, Metrics
from isentrope.worlds.contract import Instance, World


class TaskSampler(Part, ABC):
    """Subclass it and write `pick`."""

    what = "task sampler"

    def __init__(self, options: Any = None, seed: int = 0) -> None:
        super().__init__(options)
        self.seed = seed

    def begin(self, world: World) -> None:
        """Once, before the first pick: the world, for a sampler that has to know its kinds or tasks."""

    @abstractmethod
    def pick(self, size: int | None, count: int, step: int, attempt: int) -> Sequence[int]:
        """The indices of `count` tasks in the train split, which has `size` of them (None: as many as are asked for).
        `attempt` counts from 0; further ones replace groups of the same step (learn.resample). Random numbers come from
        `isentrope.core.seeding.stream(self.seed, ...)`, so that a resumed run picks the same."""

    def played(self, step: int, episodes: Sequence[Episode]) -> Metrics:
        """After the episodes of a step, in the order of steps: for a sampler that learns from how tasks went."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What has to survive a restart: numbers, strings, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class InTurn(TaskSampler):
    """Consecutive tasks, so that kinds stay balanced where a world deals them in turn; a split of limited size is gone
    through in a new order each time. Further attempts draw at random."""

    name = "in_turn"

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        if size is None:
            names = (step,) if attempt == 0 else (step, attempt)
            first = int(stream(self.seed, "instances", *names).integers(2**31))
            return [first + i for i in range(count)]
        if attempt:
            return [int(i) for i in stream(self.seed, "instances", step, attempt).integers(size, size=count)]
        picked: list[int] = []
        for position in range(step * count, (step + 1) * count):
            order = stream(self.seed, "instances", "pass", position // size).permutation(size)
            picked.append(int(np.asarray(order)[position % size]))
        return picked


_CURRICULUM = "isentrope.rollout.curriculum"
_INSIDE = {
    "in_turn": "isentrope.rollout.sampler:InTurn",
    "pass_rate": f"{_CURRICULUM}:PassRate",
    "kinds": f"{_CURRICULUM}:Kinds",
    "schedule": f"{_CURRICULUM}:Schedule",
}
SAMPLERS = Parts("task sampler", GROUPS["task.sampler"], _INSIDE)


def make_sampler(config: RunConfig) -> TaskSampler:
    choice = config.task.sampler
    kind: Any = SAMPLERS.load(choice.kind)
    if not isinstance(kind, type) or not issubclass(kind, TaskSampler):
        raise ConfigError(f'task.sampler.kind = "{choice.kind}": expected a subclass of isentrope.TaskSampler')
    return kind(parse_choice(kind.options_class, choice, "task.sampler"), config.run.seed)


def begin(sampler: TaskSampler, world: World) -> None:
    with calling(sampler, "begin"):
        sampler.begin(world)


def pick_instances(sampler: TaskSampler, world: World, count: int, step: int, attempt: int = 0) -> list[Instance]:
    """The tasks of one step."""
    size = world.size("train")
    if size == 0:
        raise TaskError(f"{world.name} has no games in 'train', so there is nothing to learn from")
    with calling(sampler, "pick"):
        picked = [index_of(index) for index in sampler.pick(size, count, step, attempt)]
        wrong = [index for index in picked if index < 0 or (size is not None and index >= size)]
        if wrong or len(picked) != count:
            there = "any number" if size is None else f"0 to {size - 1}"
            raise TaskError(
                f"task sampler {sampler.name} picked {wrong or picked}: expected {count} indices, each {there}"
            )
    return [world.instance("train", index) for index in picked]


def after_step(sampler: TaskSampler, step: int, episodes: Sequence[Episode]) -> Metrics:
    with calling(sampler, "played"):
        return numbers(sampler, sampler.played(step, episodes))
