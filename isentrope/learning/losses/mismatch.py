"""Sampler and trainer give the same token different log-probs: how far apart they are, and the correction.

Kernels, precision and order of summation differ, so tokens come from μ (the sampler) while gradients are taken as if
they came from π (the trainer, same weights). Truncated importance weights (Ionides 2008) correct it:

    w = min(π(token) / μ(token), cap)          constant: no gradient flows through it

Each token's policy-gradient loss is multiplied by its w. Without the cap the weights make the mean exact, but a token
that the sampler thought very unlikely would count without limit; the cap trades a little bias for bounded variance.
The loss by response (`sequence`) has one ratio per response, the geometric mean over its tokens; its weight is made
in the same way, so that ratio times weight is the response's ratio to the sampler.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.core.shapes import expect_vectors
from isentrope.learning.losses.clipped import MAX_LOG_RATIO
from isentrope.learning.losses.kl import kl_estimate
from isentrope.learning.losses.sequence import mean_log_ratio


def mismatch_ratio(trainer_logp_N: Tensor, sampler_logp_N: Tensor, turn_N: Tensor | None = None) -> Tensor:
    """π / μ of each token; with `turn_N` the geometric mean over its response, given to each of its tokens."""
    expect_vectors(
        None if turn_N is None else {"turn_N": turn_N}, trainer_logp_N=trainer_logp_N, sampler_logp_N=sampler_logp_N
    )
    log_ratio = trainer_logp_N - sampler_logp_N
    if turn_N is not None:
        log_ratio = mean_log_ratio(log_ratio, turn_N)
    return torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def mismatch_metrics(trainer_logp_N: Tensor, sampler_logp_N: Tensor, ratio_N: Tensor, cap: float) -> dict[str, float]:
    """How far apart the two are. `ratio_N` is what the cap is for; nothing is said of no tokens."""
    expect_vectors(trainer_logp_N=trainer_logp_N, sampler_logp_N=sampler_logp_N, ratio_N=ratio_N)
    if not len(ratio_N):
        return {}
    apart = (trainer_logp_N - sampler_logp_N).abs()
    return {
        "mismatch/logp_mean": float(apart.mean()),
        "mismatch/logp_max": float(apart.max()),
        "mismatch/ratio_mean": float(ratio_N.mean()),
        "mismatch/ratio_max": float(ratio_N.max()),
        "mismatch/truncated": float((ratio_N > cap).float().mean()),
        "mismatch/kl": float(kl_estimate(sampler_logp_N, trainer_logp_N, "k3").mean()),
    }
