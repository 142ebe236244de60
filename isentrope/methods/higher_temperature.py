"""Higher temperature: sample the training episodes hotter than the recipe says.

A baseline of ActRe (Table 2): T = 1.2 where the base is 0.6. Ratios, KL and entropies use the temperature each token
was sampled with, so the update stays on-policy. Evaluation keeps its own temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from isentrope.config.schema import setting
from isentrope.core.method import Method
from isentrope.core.types import RolloutPlan


@dataclass(frozen=True)
class HigherTemperatureOptions:
    temperature: float = setting(1.2, "sampling temperature of the training episodes", low=0.01)


class HigherTemperature(Method):
    name = "higher_temperature"
    summary = "samples all training tokens at a higher temperature"
    paper = "a baseline of ActRe"
    options_class = HigherTemperatureOptions
    options: HigherTemperatureOptions
    off: ClassVar[Mapping[str, Any]] = {"temperature": 1.0}  # what `rollout.temperature` is without a recipe

    def plan(self, step: int, plan: RolloutPlan) -> RolloutPlan:
        return replace(plan, temperature=self.options.temperature)
