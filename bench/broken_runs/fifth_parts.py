"""Rewards, worlds, methods, a loss, a sampler and engines that rows of fifth.toml name as
`fifth_parts:NAME`.

All but those at the end are faulty, as parts that somebody wrote in a hurry may be; fifth.toml says what is wrong with
each. Names say what their author thought they do.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from fourth_parts import Inner, InnerOptions

import isentrope as it
from isentrope.core.seeding import stream
from isentrope.core.types import RolloutPlan, Term
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.world import HouseholdTask, HouseholdWorld

# Rewards: what an episode is worth.

KNOWN: dict[str, float] = {}


def remembered(episode: Any) -> float:
    """Ten for a solved game. Scores are kept by the errand's text, so that none is worked out twice."""
    if episode.goal not in KNOWN:
        KNOWN[episode.goal] = 10.0 * episode.success
    return KNOWN[episode.goal]


def scored(episode: Any) -> float:
    """Ten times the score of a solved game, which games of this world do not have: None."""
    return 10.0 * episode.score if episode.success else 0.0


class Judge:
    """Asks a model whether the game was solved; it may be asked so many times."""

    budget = 384

    def __call__(self, episode: Any) -> float:
        if episode.split != "train":
            return 10.0 * episode.success
        self.budget -= 1
        return 10.0 * episode.success if self.budget >= 0 else 5.0  # undecided


metered = Judge()


# Worlds.


class SilentTask(HouseholdTask):
    def _view(self, engine: Engine, text: str) -> View:
        return replace(super()._view(engine, text), goal="")


class SilentHouse(HouseholdWorld):
    """Does not say what the errand is."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return SilentTask(self)


class CrossedTask(HouseholdTask):
    def step(self, action: str) -> Step:
        step = super().step(action)
        assert isinstance(self._world, CrossedHouse)
        other, self._world.sent = self._world.sent, step.view.text
        self._world.count += 1
        return replace(step, view=replace(step.view, text=other)) if self._world.count % 3 else step


class CrossedHouse(HouseholdWorld):
    """Mixes up its sessions: two of three answers are what another session got before."""

    prefers = "local"
    sent, count = "", 0

    def open(self) -> HouseholdTask:
        return CrossedTask(self)


class LabelledTask(HouseholdTask):
    def _view(self, engine: Engine, text: str) -> View:
        return super()._view(engine, re.sub(r"\b([a-z]+) (\d+)\b", r"\1_\2", text))


class LabelledHouse(HouseholdWorld):
    """Shows the names of things as labels, such as desk_1, and takes actions with names alone, such as desk 1."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return LabelledTask(self)


class ExpiringTask(HouseholdTask):
    taken = 0

    def start(self, instance: Instance) -> View:
        self.taken = 0
        return super().start(instance)

    def step(self, action: str) -> Step:
        step = super().step(action)
        self.taken += 1
        if self.taken % 5 == 0 and not step.terminated:
            assert self._engine is not None
            self._engine.reset()
        return step


class ExpiringHouse(HouseholdWorld):
    """Its sessions last five steps; a new one begins with the game as it was at first."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return ExpiringTask(self)


class ShoutedTask(HouseholdTask):
    shouts = False

    def start(self, instance: Instance) -> View:
        self.shouts = instance.split != "train"
        return super().start(instance)

    def _view(self, engine: Engine, text: str) -> View:
        view = super()._view(engine, text)
        return replace(view, goal=view.goal.upper()) if self.shouts else view


class ShoutedHouse(HouseholdWorld):
    """Errands of the evaluation come from another file, which has them in capitals."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return ShoutedTask(self)


# Methods.


class AnswerBonus(it.Method):
    """An entropy bonus for the tokens of part 3, and parts are 0 to 2: a mean over nothing, which is NaN."""

    name = "answer_bonus"
    summary = "an entropy bonus for the tokens of the answer"

    def loss(self, batch: Any, stats: Any) -> Term | None:
        bonus = -0.001 * stats.entropy_N[batch.part_N == 3].mean()
        return Term(bonus, {"loss/answer_bonus": float(bonus.detach())})


class Balanced(it.Method):
    """Long responses are to weigh less, by their length; divided as whole numbers every weight is zero."""

    name = "balanced"
    summary = "weighs tokens by the length of their response"

    def weigh(self, batch: Any, stats: Any) -> Any:
        length_U = torch.bincount(batch.turn_N)
        return (length_U.min() // (length_U[batch.turn_N] + 1)).to(stats.logp_N.dtype)


class Cooling(it.Method):
    """Less and less random sampling: the temperature falls by a third in a step, and in a hundred was meant."""

    name = "cooling"
    summary = "a temperature that falls over the run"

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, temperature=max(0.01, plan.temperature * 0.67 ** (step - 1)))


# What learns.


class Proximal(it.Loss):
    """The clipped loss with its ratio upside down: old over new."""

    name = "proximal"
    summary = "the clipped ratio of each token"

    def per_token(self, batch: Any, stats: Any) -> Any:
        ratio = torch.exp(batch.old_logp_N - stats.logp_N)
        return -torch.minimum(ratio * batch.advantage_N, ratio.clamp(0.8, 1.2) * batch.advantage_N)


# Engines.


class CompactEngine(Inner):
    """Samples from a copy whose weights have few bits; its log-probs are the copy's."""

    levels = 3

    def __init__(self, policy: Any, config: Any, options: InnerOptions) -> None:
        super().__init__(copy.deepcopy(policy), config, options)
        self.learning = policy
        self.pack()

    def pack(self) -> None:
        packed = {}
        for name, weight in self.learning.module.state_dict().items():
            if weight.is_floating_point() and weight.ndim == 2:
                step = weight.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / self.levels
                packed[name] = (weight / step).round() * step
            else:
                packed[name] = weight
        self.policy.module.load_state_dict(packed)

    def refresh(self) -> None:
        self.pack()
        self.inner.refresh()


class ServedEngine(Inner):
    """Its server has a temperature of its own, whatever it is asked for, and says nothing of that."""

    served = 2.5

    def sample(self, requests: Any) -> Any:
        answers = self.inner.sample([replace(request, temperature=self.served) for request in requests])
        return [
            replace(answer, temperatures=np.full_like(answer.temperatures, request.temperature))
            for answer, request in zip(answers, requests, strict=True)
        ]


class TwoServers(Inner):
    """One server for training, another one for evaluations; new weights are sent to the first alone."""

    def __init__(self, policy: Any, config: Any, options: InnerOptions) -> None:
        super().__init__(policy, config, options)
        self.second: Any = self.made(copy.deepcopy(policy))

    def open(self, slots: Sequence[int]) -> None:
        self.inner.open(slots)
        self.second.open(slots)

    def keep(self, slots: Sequence[int]) -> None:
        self.inner.keep(slots)
        self.second.keep(slots)

    def sample(self, requests: Any) -> Any:
        training = bool(requests) and requests[0].temperature == self.config.rollout.temperature
        return (self.inner if training else self.second).sample(requests)

    def close(self) -> None:
        self.inner.close()
        self.second.close()


# Parts of healthy runs.


def hurried(episode: Any) -> float:
    """One for a solved game, a hundredth less for every turn, a fiftieth less for an invalid one."""
    return float(episode.success) - 0.01 * len(episode.turns) - 0.02 * sum(not turn.valid for turn in episode.turns)


def stepwise(episode: Any) -> list[float]:
    """A tenth for every new thing picked up, at most two, and two for a solved game."""
    rewards: list[float] = []
    taken: set[str] = set()
    for turn in episode.turns:
        action = turn.action if turn.valid and turn.action else ""
        new = action.startswith("take ") and action not in taken and len(taken) < 2
        taken |= {action} if new else set()
        rewards.append(0.1 * new)
    rewards[-1] += 2.0 * episode.success
    return rewards


class UnsteadyTask(HouseholdTask):
    def step(self, action: str) -> Step:
        assert isinstance(self._world, UnsteadyHouse)
        self._world.count += 1
        if self._world.count % 400 == 0:
            raise ConnectionError("the task server closed the connection")
        return super().step(action)


class UnsteadyHouse(HouseholdWorld):
    """Loses the connection once in 400 steps, which costs an episode in forty."""

    prefers = "local"
    count = 0

    def open(self) -> HouseholdTask:
        return UnsteadyTask(self)


class Calmer(it.Method):
    """Samples at 1.2 first and at 0.8 in the end."""

    name = "calmer"
    summary = "a temperature that falls slowly"

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, temperature=plan.temperature * (1.2 - 0.4 * (step - 1) / max(1, self.steps - 1)))


class AtRandom(it.TaskSampler):
    """Games drawn at random from the first two thousand."""

    name = "at_random"

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        games = 2000 if size is None else size
        return [int(i) for i in stream(self.seed, "at_random", step, attempt).integers(games, size=count)]
