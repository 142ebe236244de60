"""Faults that no setting can make: worlds, rewards, an engine and a sampler from outside, named as module:Class."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.core.types import Episode
from isentrope.engines.torch import TorchEngine
from isentrope.rollout.sampler import TaskSampler
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.household.world import HouseholdTask, HouseholdWorld


class Changed:
    """A household task whose steps are changed."""

    def __init__(self, task: HouseholdTask) -> None:
        self.task = task

    def start(self, instance: Instance) -> View:
        return self.task.start(instance)

    def step(self, action: str) -> Step:
        return self.change(self.task.step(action), action)

    def change(self, step: Step, action: str) -> Step:
        return step

    def close(self) -> None:
        self.task.close()


class NeverWonTask(Changed):
    def change(self, step: Step, action: str) -> Step:
        return replace(step, reward=0.0, success=False, terminated=False)


class NeverWon(HouseholdWorld):
    """Nothing that is done in it wins."""

    def open(self) -> Any:
        return NeverWonTask(super().open())


class WonAtOnceTask(Changed):
    def change(self, step: Step, action: str) -> Step:
        return replace(step, reward=1.0, success=True, terminated=True) if step.valid else step


class WonAtOnce(HouseholdWorld):
    """Any action that is possible wins."""

    def open(self) -> Any:
        return WonAtOnceTask(super().open())


class FailsTask(Changed):
    def start(self, instance: Instance) -> View:
        self.turns = 0
        return super().start(instance)

    def change(self, step: Step, action: str) -> Step:
        self.turns += 1
        if self.turns > 2 and _digit(f"{step.view.text}{action}") < 2:
            raise TaskError("the server does not answer")
        return step


class Fails(HouseholdWorld):
    """One step of five breaks."""

    def open(self) -> Any:
        return FailsTask(super().open())


class SlowTask(Changed):
    def change(self, step: Step, action: str) -> Step:
        if _digit(f"{step.view.text}{action}") < 1:
            time.sleep(0.1)
        return step


class OneKind(HouseholdWorld):
    """Trains on errands of one kind, is evaluated on others."""

    def instance(self, split: str, index: int) -> Instance:
        kinds = ("look",) if split == "train" else tuple(kind for kind in self.kinds if kind != "look")
        return Instance(self.name, split, index, kinds[index % len(kinds)])


class SameGame(TaskSampler):
    """Always the first tasks of the split."""

    name = "same_game"

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> Sequence[int]:
        return [0] * count


class Stale(TorchEngine):
    """Samples with the weights that the run began with."""

    def __init__(self, policy: Any, config: Any, options: Any) -> None:
        old = deepcopy(policy)
        super().__init__(old)


def coin(episode: Episode) -> float:
    """Heads or tails, whatever was played."""
    played = "".join(str(turn.action) for turn in episode.turns)
    return 10.0 * (_digit(f"{episode.index} {episode.group} {episode.member} {played}") < 5)


def wandering(episode: Episode) -> float:
    """Pays for turns and not for the errand."""
    return float(sum((turn.action or "").startswith("go to") for turn in episode.turns)) - 0.1 * sum(
        not turn.valid for turn in episode.turns
    )


def _digit(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0] % 10
