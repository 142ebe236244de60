"""Defines the base class of methods, and the places of the loop in which a method may act.

    plan         before the rollout: how the episodes are played
    evaluation   before an evaluation: likewise, where a method changes that too
    shape        before the update: what the advantages become (no gradient)
    loss         in the update: what is added to the loss (with gradient)
    updated      after an update: for a method that has weights of its own
    state        what has to survive a restart

A method with coefficient 0 adds nothing at all, so the run equals the baseline bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isentrope.core.types import Floats, RolloutPlan, StepTokens, Term, TokenBatch, TokenStats


@dataclass(frozen=True)
class NoOptions:
    """For a method without settings."""


class Method:
    """A method that does nothing. Subclass it and override what the method needs."""

    name = ""
    summary = ""  # one line, for `isentrope methods`
    paper = ""
    options_class: type[Any] = NoOptions
    orders: tuple[str, ...] = ()  # response forms that the method chooses itself, the last one for evaluation

    def __init__(self, options: Any = None, steps: int = 1, seed: int = 0) -> None:
        self.options = self.options_class() if options is None else options
        self.steps = steps  # of the whole run, for schedules
        self.seed = seed
        self.seen: dict[str, float] = {}  # what `shape` wants recorded for the step

    def impossible(self) -> list[str]:
        """Settings that contradict each other or the length of the run, each in a sentence."""
        return []

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        """Step numbers count from 1, here and in `shape`."""
        return plan

    def evaluation(self, plan: RolloutPlan) -> RolloutPlan:
        return plan

    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return advantage_N

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
