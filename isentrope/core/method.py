"""Defines the base class of methods, and the places of the loop in which a method may act.

    plan         before the rollout: how the episodes are played
    evaluation   before an evaluation: likewise, where a method changes that too
    begin        when the episodes are there: look at them, set schedules, record metrics
    shape        before the update: what the advantages become (no gradient)
    weigh        in the update: what the policy loss of each token is multiplied with (no gradient)
    loss         in the update: what is added to the loss (with gradient)
    updated      after an update: for a method that has weights of its own
    state        what has to survive a restart

A method with coefficient 0 adds nothing at all, so the run equals the baseline bit for bit. A controller changes the
temperature of the next rollout in `plan`, and its own coefficient or `clip_high` in `begin`. Every metric that a method
records is declared in its class: `metrics = (Metric("mine/weight", "Mean weight given to a response."),)`. The term
that it adds to the loss is recorded as `loss/NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isentrope.core.part import Part
from isentrope.core.types import Floats, Metrics, RolloutPlan, Shaped, StepTokens, Term, TokenBatch, TokenStats

if TYPE_CHECKING:  # keeps `isentrope --help` free of torch
    from torch import Tensor


class Method(Part):
    """A method that does nothing. Subclass it and override what the method needs."""

    what = "method"
    orders: tuple[str, ...] = ()  # response forms that the method chooses itself, the last one for evaluation
    clip_high: float | None = None  # set in `begin`: replaces `learn.loss.clip_high` in the updates of the step

    def __init__(self, options: Any = None, steps: int = 1, seed: int = 0) -> None:
        super().__init__(options)
        self.steps = steps  # of the whole run, for schedules
        self.seed = seed

    def declares(self, key: str) -> bool:
        return key == f"loss/{self.name}" or super().declares(key)

    def impossible(self) -> list[str]:
        """Settings that contradict each other or the length of the run, each in a sentence."""
        return []

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        """Step numbers count from 1, here, in `begin` and in `shape`."""
        return plan

    def evaluation(self, plan: RolloutPlan) -> RolloutPlan:
        return plan

    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        """Called once a step, before `shape`; gives what is to be recorded of the step."""
        return {}

    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats | Shaped:
        """The new advantages; as `Shaped` if there is something to record of them."""
        return advantage_N

    def weigh(self, batch: TokenBatch, stats: TokenStats) -> Tensor | None:
        """A finite weight for each token of the batch, at least 0; None: all count in full. The numbers of `stats` are
        those of the policy that is being updated, without their gradient."""
        return None

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        return None

    def updated(self, applied: bool) -> None:
        """`applied` is False if the update was left out because its numbers were not finite."""

    def state_dict(self) -> dict[str, Any]:
        """Numbers, strings, tensors, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"method {self.name!r} keeps no state, but the checkpoint has some: {sorted(state)}")
