"""The sequence-level loss of GSPO (arXiv:2507.18071), per token.

    s_i = exp(mean over the tokens of response i of (logp - old_logp))
    loss = -min(s_i · A, clip(s_i, 1 - low, 1 + high) · A)

Written as the paper's GSPO-token (Eq. 13-14): the value of every token's ratio is s_i, the gradient of token j is
s_i · A_j · ∇logp_j. Where all tokens of a response have one advantage this is exactly GSPO; where a method gave them
different ones, each token follows its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.config.kinds import ClipOptions
from isentrope.core.loss import Loss
from isentrope.core.shapes import expect_vectors
from isentrope.core.types import TokenBatch, TokenStats
from isentrope.learning.losses.clipped import MAX_LOG_RATIO


class Sequence(Loss):
    name = "sequence"
    summary = "one ratio per response, clipped"
    paper = "arXiv:2507.18071"
    options_class = ClipOptions
    options: ClipOptions
    by_response = True

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        o, advantage_N = self.options, batch.advantage_N
        return sequence_loss(stats.logp_N, batch.old_logp_N, advantage_N, batch.turn_N, o.clip_low, o.clip_high)


def mean_log_ratio(log_ratio_N: Tensor, turn_N: Tensor) -> Tensor:
    """The mean over the tokens of the same response, given to each of them."""
    expect_vectors({"turn_N": turn_N}, log_ratio_N=log_ratio_N)
    turns = int(turn_N.max()) + 1 if len(turn_N) else 0
    total = log_ratio_N.new_zeros(turns).index_add(0, turn_N, log_ratio_N)
    count = torch.bincount(turn_N, minlength=turns).clamp(min=1)
    return (total / count)[turn_N]


def sequence_loss(
    logp_N: Tensor, old_logp_N: Tensor, advantage_N: Tensor, turn_N: Tensor, low: float, high: float
) -> Tensor:
    """`turn_N` numbers the response that each token belongs to."""
    expect_vectors({"turn_N": turn_N}, logp_N=logp_N, old_logp_N=old_logp_N, advantage_N=advantage_N)
    log_s = mean_log_ratio((logp_N - old_logp_N).detach(), turn_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = torch.exp(log_s) * torch.exp(logp_N - logp_N.detach())  # the second factor is 1 and carries the gradient
    return -torch.minimum(ratio * advantage_N, ratio.clamp(1 - low, 1 + high) * advantage_N)
