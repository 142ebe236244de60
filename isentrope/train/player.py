"""How the loop comes by the episodes of a step: the methods' plan, the rollout, and the weights that it is played
with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from isentrope.config.schema import RunConfig
from isentrope.core.method import Method
from isentrope.core.types import RolloutPlan
from isentrope.models.policy import Policy, follow
from isentrope.rollout.advance import Played, Progress, Rollouts
from isentrope.rollout.arena import Arena
from isentrope.rollout.dynamic import sample_groups


class Player:
    """`sampler` is what the engine plays with: the policy itself, or a snapshot that follows it. Episodes that
    stopped for a reason in `broken` say nothing about the policy."""

    def __init__(
        self,
        config: RunConfig,
        arena: Arena,
        methods: Sequence[Method],
        policy: Policy,
        sampler: Policy,
        broken: Sequence[str],
    ) -> None:
        self.config, self.arena, self.methods, self.broken = config, arena, methods, broken
        self.policy, self.sampler = policy, sampler

    def rollouts(self) -> Rollouts:
        ahead, last = self.config.rollout.ahead > 0, self.config.run.steps
        return Rollouts(self.plan, self.play, self.follow, ahead, last, self.policy.device)

    def plan(self, step: int) -> RolloutPlan:
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        for method in self.methods:
            plan = method.plan(step, plan)
        return plan

    def play(self, step: int, plan: RolloutPlan, progress: Progress) -> Played:
        self.arena.runner.clock.take()  # an evaluation before this step is not part of it
        play = partial(self.arena.train, step, plan, progress)
        sampled = sample_groups(play, self.config.rollout.groups, self.config.learn, self.broken)
        metrics = {f"plan/{name}": value for name, value in plan.notes.items()} | self.arena.notes()
        return Played(sampled, metrics, self.arena.runner.clock.take())

    def follow(self) -> None:
        if self.sampler is not self.policy:
            follow(self.sampler, self.policy)
        self.arena.engine.refresh()
