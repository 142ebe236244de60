"""No thinking: the response is the action alone, in training and in evaluation (ActRe, Table 1, "w/o think").

It differs from `agent.order = "act"` in nothing but its name: as a method it can be switched on over any recipe, and
it is refused beside another method that sets the form of a response.
"""

from __future__ import annotations

from dataclasses import replace

from isentrope.core.method import Method
from isentrope.core.types import RolloutPlan


class NoThink(Method):
    name = "no_think"
    summary = "the response is the action alone"
    paper = "ActRe, Table 1"
    orders = ("act",)

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, order="act")

    def evaluation(self, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, order="act")
