"""The clipped policy-gradient loss of PPO (arXiv:1707.06347, Eq. 7), per token.

ratio = exp(logp - old_logp)
loss = -min(ratio · A, clip(ratio, 1 - low, 1 + high) · A)
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.config.kinds import ClipOptions
from isentrope.core.loss import Loss
from isentrope.core.shapes import expect_vectors
from isentrope.core.types import TokenBatch, TokenStats

MAX_LOG_RATIO = 20.0  # exp(20) is far beyond any clip range and still finite in float32


class Clip(Loss):
    name = "clip"
    summary = "the ratio of each token, clipped"
    paper = "arXiv:1707.06347"
    options_class = ClipOptions
    options: ClipOptions

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        o = self.options
        return clipped_loss(stats.logp_N, batch.old_logp_N, batch.advantage_N, o.clip_low, o.clip_high)


def clipped_loss(logp_N: Tensor, old_logp_N: Tensor, advantage_N: Tensor, low: float, high: float) -> Tensor:
    expect_vectors(logp_N=logp_N, old_logp_N=old_logp_N, advantage_N=advantage_N)
    ratio = torch.exp((logp_N - old_logp_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    return -torch.minimum(ratio * advantage_N, ratio.clamp(1 - low, 1 + high) * advantage_N)
