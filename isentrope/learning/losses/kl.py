"""Estimators of KL(policy || reference) from tokens that the policy sampled (Schulman 2020), per token.

With d = logp - ref_logp:
    k1 = d                      unbiased, high variance, may be negative
    k2 = d² / 2                 biased, low variance
    k3 = exp(-d) - 1 + d        unbiased, low variance, never negative
k3 stops growing below d = -20, where exp(-d) is beyond any use.
As a loss, k1's gradient has mean zero at the sampling policy: it does not pull towards the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.core.shapes import expect_vectors
from isentrope.learning.losses.clipped import MAX_LOG_RATIO

ESTIMATORS = ("k1", "k2", "k3")


def kl_estimate(logp_N: Tensor, ref_logp_N: Tensor, estimator: str) -> Tensor:
    expect_vectors(logp_N=logp_N, ref_logp_N=ref_logp_N)
    d = logp_N - ref_logp_N
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    if estimator == "k3":
        far = d.clamp(min=-MAX_LOG_RATIO)  # in both terms: cut off in one alone, the gradient would change its sign
        return torch.expm1(-far) + far
    raise ValueError(f"KL estimator {estimator!r}: expected one of {', '.join(ESTIMATORS)}")
