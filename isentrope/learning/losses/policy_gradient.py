"""The plain policy gradient (Williams 1992), per token: loss = -A · logp.

Without a ratio it is right only for the policy that sampled, so it belongs to one update per step.
"""

from __future__ import annotations

from torch import Tensor

from isentrope.core.loss import Loss
from isentrope.core.shapes import expect_vectors
from isentrope.core.types import TokenBatch, TokenStats


class PolicyGradient(Loss):
    name = "policy_gradient"
    summary = "the plain policy gradient, without a ratio"
    paper = "Williams 1992"
    on_policy = True

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        return policy_gradient_loss(stats.logp_N, batch.advantage_N)


def policy_gradient_loss(logp_N: Tensor, advantage_N: Tensor) -> Tensor:
    expect_vectors(logp_N=logp_N, advantage_N=advantage_N)
    return -advantage_N * logp_N
