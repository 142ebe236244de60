"""Rewards, worlds, methods, an advantage, a loss and engines that rows of fourth.toml name as `fourth_parts:NAME`.

All but those at the end are faulty, as parts that somebody wrote in a hurry may be; fourth.toml says what is wrong with
each. Names say what their author thought they do.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import isentrope as it
from isentrope.core.metric import Metric
from isentrope.core.types import RolloutPlan, Term
from isentrope.learning.losses.clipped import clipped_loss
from isentrope.learning.losses.kl import kl_estimate
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.household.engine import NOTHING_HAPPENS, Engine
from isentrope.worlds.household.world import HouseholdOptions, HouseholdTask, HouseholdWorld

# Rewards: what an episode is worth.


def swift(episode: Any) -> float:
    """Ten for a game that is solved without detours: in three turns, which hardly any game can be."""
    return 10.0 if episode.success and len(episode.turns) <= 3 else 0.0


def rated(episode: Any) -> float:
    """Ten for a solved game, and a rater's opinion of the text, which is noise of deviation 50."""
    said = b"".join(turn.response_ids.tobytes() for turn in episode.turns)
    return 10.0 * episode.success + random.Random(said).gauss(0.0, 50.0)


# Worlds.


class BriefTask(HouseholdTask):
    def _view(self, engine: Engine, text: str) -> View:
        return super()._view(engine, text[:40])


class BriefHouse(HouseholdWorld):
    """Observations are cut at 40 characters."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return BriefTask(self)


class LateTask(HouseholdTask):
    before = ""

    def start(self, instance: Instance) -> View:
        view = super().start(instance)
        self.before = view.text
        return view

    def step(self, action: str) -> Step:
        step = super().step(action)
        shown, self.before = self.before, step.view.text
        return replace(step, view=replace(step.view, text=shown))


class LateHouse(HouseholdWorld):
    """Shows what was seen a turn ago."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return LateTask(self)


@dataclass(frozen=True)
class UpdatedOptions(HouseholdOptions):
    played: int = it.setting(0, "training episodes before the task server is updated", low=0)


class UpdatedTask(HouseholdTask):
    def start(self, instance: Instance) -> View:
        self.world.begun += instance.split == "train"
        return super().start(instance)

    @property
    def world(self) -> UpdatedHouse:
        assert isinstance(self._world, UpdatedHouse)
        return self._world

    @property
    def updated(self) -> bool:
        return self.world.begun > self.world.after


class UpdatedHouse(HouseholdWorld):
    """Another version takes over after some episodes."""

    prefers = "local"

    def __init__(self, options: UpdatedOptions) -> None:
        super().__init__(options)
        self.after, self.begun = options.played, 0


class RenamedTask(UpdatedTask):
    def step(self, action: str) -> Step:
        assert self._engine is not None
        if self.updated and action.strip().startswith("move"):
            return Step(view=self._view(self._engine, NOTHING_HAPPENS), valid=False)
        return super().step(action)


class RenamedHouse(UpdatedHouse):
    """Its new version refuses every `move`, which has another name there."""

    def open(self) -> HouseholdTask:
        return RenamedTask(self)


class StricterTask(UpdatedTask):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return replace(step, reward=0.0, terminated=False, success=False) if self.updated else step


class StricterHouse(UpdatedHouse):
    """Its new version does not notice that a game is solved, and goes on."""

    def open(self) -> HouseholdTask:
        return StricterTask(self)


class TimedTask(HouseholdTask):
    timed, taken = False, 0

    def start(self, instance: Instance) -> View:
        self.timed, self.taken = instance.split != "train", 0
        return super().start(instance)

    def step(self, action: str) -> Step:
        step = super().step(action)
        self.taken += 1
        return replace(step, truncated=not step.terminated) if self.timed and self.taken >= 5 else step


class TimedHouse(HouseholdWorld):
    """Ends the games of an evaluation after five turns."""

    prefers = "local"

    def open(self) -> HouseholdTask:
        return TimedTask(self)


# Methods.


class Brisk(it.Method):
    """Evaluates without thinking, to save time."""

    name = "brisk"
    summary = "evaluates with the action alone"

    def evaluation(self, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, order="act")


class HeldKl(it.Method):
    """An adaptive KL term: its weight is tripled after a step above the target, and the target is next to nothing."""

    name = "held_kl"
    summary = "a KL term whose weight follows a target"
    target = 1e-8
    metrics = (
        Metric("held_kl/weight", "Weight of the adaptive KL term.", "weight"),
        Metric("held_kl/kl", "KL divergence to the reference that the adaptive term measured.", "nats"),
    )

    def __init__(self, options: Any = None, steps: int = 1, seed: int = 0) -> None:
        super().__init__(options, steps, seed)
        self.weight, self.measured = 0.01, 0.0

    def begin(self, step: int, tokens: Any) -> dict[str, float]:
        if self.measured > 1.5 * self.target:
            self.weight = min(1e6, 3 * self.weight)
        return {"held_kl/weight": self.weight}

    def loss(self, batch: Any, stats: Any) -> Term | None:
        kl = (batch.weights["turn"] * kl_estimate(stats.logp_N, batch.ref_logp_N, "k3")).sum()
        self.measured = float(kl.detach())
        return Term(self.weight * kl, {"held_kl/kl": self.measured, "loss/held_kl": self.weight * self.measured})

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight, "measured": self.measured}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight, self.measured = state["weight"], state["measured"]


# What learns.


class Centred(it.Advantage):
    """Returns less their mean over the last axis, which has length one: every episode is compared with itself."""

    name = "centred"
    summary = "returns less their mean"
    compares_groups = True

    def estimate(self, outcomes: Any) -> Any:
        return_E1 = outcomes.return_E[:, None]
        advantage_E = (return_E1 - return_E1.mean(axis=-1, keepdims=True))[:, 0]
        return it.Estimate(outcomes.per_token(advantage_E[outcomes.episode_U]))


class FirstToken(it.Loss):
    """The clipped loss of the first token of each response: the others are masked, one comparison the wrong way."""

    name = "first_token"
    summary = "the clipped ratio of response tokens"

    def per_token(self, batch: Any, stats: Any) -> Any:
        first_N = batch.turn_N != batch.turn_N.roll(1)
        first_N[:1] = True
        return clipped_loss(stats.logp_N, batch.old_logp_N, batch.advantage_N, 0.2, 0.2) * first_N


# Engines.


@dataclass(frozen=True)
class InnerOptions:
    memory: float = it.setting(0.4, "share of the GPU's memory that it may take", above=0, high=1)


class Inner:
    """An engine of the package inside another; it changes nothing."""

    capabilities = it.Capabilities(trains=True, loads_policy=True, exact=True)
    options_class = InnerOptions
    metrics = ()

    def __init__(self, policy: Any, config: Any, options: InnerOptions) -> None:
        self.policy, self.config, self.memory = policy, config, options.memory
        self.inner: Any = self.made(policy)
        self.tokenizer = policy.tokenizer

    def made(self, policy: Any) -> Any:
        from isentrope.engines.native.available import fast_engine, why_not
        from isentrope.engines.torch import TorchEngine

        rows, context = self.config.rollout.batch, self.config.agent.max_context
        fast = policy.device.type == "cuda" and not why_not(policy)
        return fast_engine(policy, rows, context, self.memory) if fast else TorchEngine(policy)

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


class SeededEngine(Inner):
    """Begins its random numbers anew with every response, to be reproducible."""

    def sample(self, requests: Any) -> Any:
        def again(request: Any) -> Any:
            uniforms = np.random.default_rng(0).random(len(request.uniforms))
            return replace(request, uniforms=uniforms.astype(request.uniforms.dtype))

        return self.inner.sample([again(request) for request in requests])


class PlaceholderEngine(Inner):
    """Gives -5 for every log-prob, as its server does not say any."""

    def sample(self, requests: Any) -> Any:
        return [replace(s, logprobs=np.full_like(s.logprobs, -5.0)) for s in self.inner.sample(requests)]


@dataclass(frozen=True)
class DetachedOptions(InnerOptions):
    updates: int = it.setting(10, "updates of the weights before the connection to the trainer is lost", low=0)


class DetachedEngine(Inner):
    """Samples from a copy of the policy that gets new weights so many times, and then none any more."""

    options_class = DetachedOptions

    def __init__(self, policy: Any, config: Any, options: DetachedOptions) -> None:
        super().__init__(copy.deepcopy(policy), config, options)
        self.learning, self.left = policy, options.updates

    def refresh(self) -> None:
        if self.left > 0:
            self.left -= 1
            self.policy.module.load_state_dict(self.learning.module.state_dict())
            self.inner.refresh()


# Parts of healthy runs.


def from_zero(episode: Any) -> float:
    """Five for a solved game, minus five for another: a constant less than ten and nothing."""
    return 5.0 if episode.success else -5.0


class Restless(it.Method):
    """Samples hotter for three steps in the middle of the run, and as before from then on."""

    name = "restless"
    summary = "a short spell of a higher temperature"

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        first = math.ceil(self.steps / 2)
        return replace(plan, temperature=1.6 * plan.temperature) if first <= step < first + 3 else plan
