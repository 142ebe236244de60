"""What an update minimises: the policy's loss with its KL term and what methods add, and the critic's.

Sums of weight · value with a denominator over the whole mini-batch (core/token_weights.py); beside them their metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from isentrope.config.schema import LearnSettings
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.part import calling, shape_of
from isentrope.core.types import TokenBatch, TokenStats
from isentrope.learning import hooks
from isentrope.learning.critic import Critic
from isentrope.learning.losses.clipped import MAX_LOG_RATIO
from isentrope.learning.losses.kl import ESTIMATORS, kl_estimate
from isentrope.learning.losses.sequence import mean_log_ratio
from isentrope.learning.losses.value import value_loss
from isentrope.learning.records import Figures, number


def policy_loss(batch: TokenBatch, stats: TokenStats, loss: Loss) -> Tensor:
    """Per token; corrected for what sampler and trainer differ by (losses/mismatch.py)."""
    with calling(loss, "per_token"):
        loss_N = loss.per_token(batch, stats)
        if not isinstance(cast(object, loss_N), Tensor) or loss_N.shape != stats.logp_N.shape:
            raise ValueError(f"gave {shape_of(loss_N)}: expected a tensor of shape {tuple(stats.logp_N.shape)}")
        if stats.logp_N.requires_grad and not loss_N.requires_grad:
            raise ValueError("gave a loss without gradient: expected one that is computed from `stats.logp_N`")
    return loss_N if batch.mismatch_N is None else batch.mismatch_N * loss_N


def objective(
    batch: TokenBatch,
    stats: TokenStats,
    s: LearnSettings,
    policy: Loss,
    methods: Sequence[Method],
    factor_N: Tensor | None = None,
) -> tuple[Tensor, Figures]:
    """The policy's loss. `factor_N` multiplies the policy loss of each token, not its KL nor what methods add."""
    weight_N = batch.weights[s.aggregation]
    loss_N = policy_loss(batch, stats, policy)
    loss = (weight_N * (loss_N if factor_N is None else factor_N * loss_N)).sum()
    metrics: Figures = {"loss/policy": number(loss)} | _policy_metrics(batch, stats, policy)
    if stats.logp_N.requires_grad:
        metrics["update/tokens"] = number((batch.weights["token"] * _has_gradient(loss_N, stats)).sum())
    if batch.ref_logp_N is not None and s.kl_in == "loss":
        kl = (weight_N * kl_estimate(stats.logp_N, batch.ref_logp_N, s.kl_estimator)).sum()
        loss = loss + s.kl * kl
        metrics["loss/kl"] = s.kl * number(kl)
    losses, added = hooks.terms(methods, batch, stats)
    for term in losses:
        loss = loss + term
    return loss, metrics | added | {"loss/total": number(loss)}


def critic_objective(
    batch: TokenBatch, hidden_ND: Tensor | None, critic: Critic, s: LearnSettings
) -> tuple[Tensor, Figures]:
    """The critic's loss."""
    assert batch.return_N is not None
    assert batch.old_value_N is not None
    value_N = critic.values(batch, hidden_ND)
    per_token = value_loss(value_N, batch.old_value_N, batch.return_N, critic.settings.value_clip)
    loss = (batch.weights[s.aggregation] * per_token).sum()
    mean = number((batch.weights["token"] * value_N.detach()).sum())
    return loss, {"critic/loss": number(loss), "critic/value": mean}


def _has_gradient(loss_N: Tensor, stats: TokenStats) -> Tensor:
    """1 for each token whose log-prob the policy's loss would change, else 0. It goes back no further than to them."""
    grads = torch.autograd.grad(loss_N.sum(), stats.logp_N, retain_graph=True, allow_unused=True)
    grad_N = cast("Tensor | None", grads[0])
    return torch.zeros_like(stats.logp_N) if grad_N is None else (grad_N != 0).to(stats.logp_N.dtype)


@torch.no_grad()
def _policy_metrics(batch: TokenBatch, stats: TokenStats, policy: Loss) -> Figures:
    """Token means, each as this micro-batch's share of the mini-batch's mean; extremes as they are."""
    weight_N = batch.weights["token"]
    log_ratio = stats.logp_N - batch.old_logp_N
    if policy.by_response:
        log_ratio = mean_log_ratio(log_ratio, batch.turn_N)
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    means = {"ratio/mean": ratio, "kl/old": kl_estimate(stats.logp_N, batch.old_logp_N, "k3")}
    if policy.clip is not None:
        low = (ratio < 1 - policy.clip[0]) & (batch.advantage_N < 0)
        high = (ratio > 1 + policy.clip[1]) & (batch.advantage_N > 0)
        means |= {"clip/low": low.float(), "clip/high": high.float(), "clip/fraction": (low | high).float()}
    if batch.ref_logp_N is not None:
        for name in ESTIMATORS:
            means[f"kl/{name}"] = kl_estimate(stats.logp_N, batch.ref_logp_N, name)
    metrics = {key: number((weight_N * values).sum()) for key, values in means.items()}
    return metrics | {"ratio/min": number(ratio.min()), "ratio/max": number(ratio.max())}
