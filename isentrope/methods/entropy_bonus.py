"""Entropy bonus (EntReg): reward the policy for keeping its options open.

Equation (EPO, arXiv:2509.22576, Eq. 3-4):
    L = L_policy - λ · L_H        L_H = mean over episodes of mean over turns of mean over tokens of H

Symbols: H is the full-vocabulary entropy of a response token in nats, at the temperature it was sampled with; λ is
`coefficient`, 0.001 in the papers. Deviations: none. Trainers that run with λ > 0 by default are a recipe of their
own here, never a silent default.
"""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.config.schema import setting
from isentrope.core.method import Method
from isentrope.core.types import Term, TokenBatch, TokenStats
from isentrope.learning.records import number


@dataclass(frozen=True)
class EntropyBonusOptions:
    coefficient: float = setting(0.001, "λ, the weight of the bonus", low=0)
    aggregation: str = setting("turn", "how token entropies are averaged", choices=("token", "turn", "sequence"))


class EntropyBonus(Method):
    name = "entropy_bonus"
    summary = "adds the mean token entropy to what is maximised"
    paper = "EntReg; EPO Eq. 3-4, arXiv:2509.22576"
    options_class = EntropyBonusOptions
    options: EntropyBonusOptions

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        if self.options.coefficient == 0:
            return None
        mean_entropy = (batch.weights[self.options.aggregation] * stats.entropy_N).sum()
        loss = -self.options.coefficient * mean_entropy
        return Term(loss, {"loss/entropy_bonus": number(loss)})
