"""Rewards, samplers, worlds, an advantage and an engine that rows of rows.toml name as `own_parts:NAME`.

All of them are faulty, as parts that somebody wrote in a hurry may be; rows.toml says what is wrong with each. Names
say what their author thought they do.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import isentrope as it
from isentrope.core.seeding import stream
from isentrope.learning.advantages.grpo import grpo
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.game import KINDS
from isentrope.worlds.household.world import HouseholdTask, HouseholdWorld

# Rewards: what an episode is worth.


def graded(episode: Any) -> float:
    """What a failure costs is meant; what comes out is lower for a solved game."""
    return -10.0 if episode.success else 0.0


def steady(episode: Any) -> list[float]:
    """A point for each valid action and two for the end: solving the game ends the income."""
    rewards = [float(turn.valid) for turn in episode.turns]
    if episode.success:
        rewards[-1] += 2.0
    return rewards


def fluent(episode: Any) -> float:
    """Ten for a solved game and a little for every token said: a failed game says more."""
    said = sum(len(turn.response_ids) for turn in episode.turns)
    return 10.0 * episode.success + 0.02 * said


# Samplers: which tasks a step plays.


class Themed(it.TaskSampler):
    """Games of one kind alone: every sixth of the generated ones, where kinds take turns."""

    name = "themed"

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        first = int(stream(self.seed, "themed", step, attempt).integers(2**24))
        return [len(KINDS) * (first + i) + KINDS.index("look") for i in range(count)]


class Shortlist(it.TaskSampler):
    """The first two games, again and again."""

    name = "shortlist"

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        return [i % 2 for i in range(count)]


# Worlds.


class RelabelledTask(HouseholdTask):
    goal = ""

    def start(self, instance: Instance) -> View:
        beside = replace(instance, index=instance.index + 1, kind=KINDS[(instance.index + 1) % len(KINDS)])
        self.goal = self._world.engine(beside).game.task
        return super().start(instance)

    def _view(self, engine: Engine, text: str) -> View:
        return replace(super()._view(engine, text), goal=self.goal)


class RelabelledHouse(HouseholdWorld):
    """Shows the errand of the next game in the list: all labels are one row off."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return RelabelledTask(self)


class RemoteTask(HouseholdTask):
    def step(self, action: str) -> Step:
        if random.Random(os.urandom(8)).random() < 0.12:
            raise ConnectionError("the task server closed the connection")
        return super().step(action)


class RemoteHouse(HouseholdWorld):
    """Its server loses the connection at every eighth step or so."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return RemoteTask(self)


# What learns.


class Paired(it.Advantage):
    """GRPO's advantages, each given to the episode after the one that it belongs to."""

    name = "paired"
    summary = "returns standardised within their group"
    compares_groups = True

    def estimate(self, outcomes: Any) -> Any:
        advantage_E = np.roll(grpo(outcomes.return_E, outcomes.group_E), 1)
        return it.Estimate(outcomes.per_token(advantage_E[outcomes.episode_U]))


@dataclass(frozen=True)
class CopyOptions:
    memory: float = it.setting(0.4, "share of the GPU's memory that it may take", above=0, high=1)


class CopyEngine:
    """Samples from a copy of the policy, which nobody brings up to date."""

    capabilities = it.Capabilities(trains=True, loads_policy=True, exact=True)
    options_class = CopyOptions
    metrics = ()

    def __init__(self, policy: Any, config: Any, options: CopyOptions) -> None:
        from isentrope.engines.native.available import fast_engine, why_not
        from isentrope.engines.torch import TorchEngine

        mine = copy.deepcopy(policy)
        fast = policy.device.type == "cuda" and not why_not(mine)
        rows, context = config.rollout.batch, config.agent.max_context
        self.inner: Any = fast_engine(mine, rows, context, options.memory) if fast else TorchEngine(mine)
        self.tokenizer = policy.tokenizer

    def open(self, slots: Sequence[int]) -> None:
        self.inner.open(slots)

    def keep(self, slots: Sequence[int]) -> None:
        self.inner.keep(slots)

    def sample(self, requests: Any) -> Any:
        return self.inner.sample(requests)

    def refresh(self) -> None:
        self.inner.refresh()

    def notes(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.inner.close()
