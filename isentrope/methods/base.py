"""What a method is. It touches the loop in at most four places, all in its own file.

    plan    before the rollout: how the episodes are played
    shape   before the update: what the advantages become (no gradient)
    loss    in the update: what is added to the loss (with gradient)
    state   what has to survive a restart

A method with coefficient 0 adds nothing at all, so the run equals the baseline bit for bit.
"""

from __future__ import annotations

from typing import Any

from isentrope.types import Floats, RolloutPlan, StepTokens, Term, TokenBatch, TokenStats


class Method:
    """A method that does nothing. Subclass it and override what the method needs."""

    name = ""

    def __init__(self, steps: int) -> None:
        self.steps = steps  # of the whole run, for schedules

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        return plan

    def shape(self, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return advantage_N

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        return None

    def state_dict(self) -> dict[str, Any]:
        """Numbers, strings, tensors, and lists and dicts of them."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"method {self.name!r} keeps no state, but the checkpoint has some: {sorted(state)}")
