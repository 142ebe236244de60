"""The loss of one micro-batch: policy loss, KL, what methods add, the critic's loss; and what to record of it.

Every number is a share: summed over the micro-batches of a mini-batch it is the mini-batch's (see masked.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from isentrope.config.schema import LearnSettings
from isentrope.core.method import Method
from isentrope.core.types import TokenBatch, TokenStats
from isentrope.losses.clipped import MAX_LOG_RATIO, clipped_loss
from isentrope.losses.kl import ESTIMATORS, kl_estimate
from isentrope.losses.policy_gradient import policy_gradient_loss
from isentrope.losses.sequence import mean_log_ratio, sequence_loss
from isentrope.losses.value import value_loss
from isentrope.masked import number
from isentrope.train.critic import Critic

Metrics = dict[str, float]
Figures = dict[str, float | Tensor]
"""The same, some of it perhaps still on the GPU."""
_EXTREMES = {"ratio/min": min, "ratio/max": max}


def policy_loss(batch: TokenBatch, stats: TokenStats, s: LearnSettings) -> Tensor:
    """Per token, by `learn.loss`; corrected for what sampler and trainer differ by (losses/mismatch.py)."""
    loss_N = _uncorrected(batch, stats, s)
    return loss_N if batch.mismatch_N is None else batch.mismatch_N * loss_N


def _uncorrected(batch: TokenBatch, stats: TokenStats, s: LearnSettings) -> Tensor:
    if s.loss == "policy_gradient":
        return policy_gradient_loss(stats.logp_N, batch.advantage_N)
    if s.loss == "sequence":
        return sequence_loss(stats.logp_N, batch.old_logp_N, batch.advantage_N, batch.turn_N, s.clip_low, s.clip_high)
    return clipped_loss(stats.logp_N, batch.old_logp_N, batch.advantage_N, s.clip_low, s.clip_high)


def objective(
    batch: TokenBatch, stats: TokenStats, s: LearnSettings, methods: Sequence[Method]
) -> tuple[Tensor, Figures]:
    """The policy's loss."""
    weight_N = batch.weights[s.aggregation]
    loss = (weight_N * policy_loss(batch, stats, s)).sum()
    metrics: Figures = {"loss/policy": number(loss)} | _policy_metrics(batch, stats, s)
    if batch.ref_logp_N is not None and s.kl_in == "loss":
        kl = (weight_N * kl_estimate(stats.logp_N, batch.ref_logp_N, s.kl_estimator)).sum()
        loss = loss + s.kl * kl
        metrics["loss/kl"] = s.kl * number(kl)
    for method in methods:
        term = method.loss(batch, stats)
        if term is not None:
            loss = loss + term.loss
            metrics |= term.metrics
    return loss, metrics | {"loss/total": number(loss)}


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


@torch.no_grad()
def _policy_metrics(batch: TokenBatch, stats: TokenStats, s: LearnSettings) -> Figures:
    """Token means, each as this micro-batch's share of the mini-batch's mean; extremes as they are."""
    weight_N = batch.weights["token"]
    log_ratio = stats.logp_N - batch.old_logp_N
    if s.loss == "sequence":
        log_ratio = mean_log_ratio(log_ratio, batch.turn_N)
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    means = {"ratio/mean": ratio, "kl/old": kl_estimate(stats.logp_N, batch.old_logp_N, "k3")}
    if s.loss != "policy_gradient":
        low = (ratio < 1 - s.clip_low) & (batch.advantage_N < 0)
        high = (ratio > 1 + s.clip_high) & (batch.advantage_N > 0)
        means |= {"clip/low": low.float(), "clip/high": high.float(), "clip/fraction": (low | high).float()}
    if batch.ref_logp_N is not None:
        for name in ESTIMATORS:
            means[f"kl/{name}"] = kl_estimate(stats.logp_N, batch.ref_logp_N, name)
    metrics = {key: number((weight_N * values).sum()) for key, values in means.items()}
    return metrics | {"ratio/min": number(ratio.min()), "ratio/max": number(ratio.max())}


def brought(figures: Sequence[Figures]) -> list[Metrics]:
    """All of them as numbers: what is still on the GPU comes over in one go."""
    waiting = [value for each in figures for value in each.values() if isinstance(value, Tensor)]
    arrived = iter(cast("list[float]", torch.stack([v.float() for v in waiting]).tolist()) if waiting else [])
    return [
        {key: next(arrived) if isinstance(value, Tensor) else value for key, value in each.items()} for each in figures
    ]


def accumulate(sums: Metrics, new: Metrics) -> None:
    """Add a micro-batch's shares to those of the mini-batch so far."""
    for key, value in new.items():
        join = _EXTREMES.get(key)
        sums[key] = value if key not in sums else join(sums[key], value) if join else sums[key] + value


def merged(updates: Sequence[Metrics]) -> Metrics:
    """The mean over a step's updates."""
    keys = sorted({key for update in updates for key in update})
    result: Metrics = {}
    for key in keys:
        values = [update[key] for update in updates if key in update]
        result[key] = _EXTREMES[key](values) if key in _EXTREMES else float(np.mean(values))
    return result
