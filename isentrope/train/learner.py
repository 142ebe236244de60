"""One update from one step's episodes: score, shape, then clipped policy-gradient updates.

Losses are sums of weight · value with weights that sum to 1 over a mini-batch (see masked.py), so accumulating over
micro-batches gives the gradient of the whole mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.advantages.grpo import grpo
from isentrope.batch import TokenSequence, flatten, micro_batches
from isentrope.config.schema import LearnSettings
from isentrope.losses.clipped import clipped_loss
from isentrope.losses.kl import ESTIMATORS, kl_estimate
from isentrope.methods.base import Method
from isentrope.policy.policy import Policy
from isentrope.seeding import stream
from isentrope.train.optimise import Optimiser, learning_rate
from isentrope.types import Episode, Floats, StepTokens, TokenBatch, TokenStats

Metrics = dict[str, float]


def make_optimiser(policy: Policy, settings: LearnSettings) -> Optimiser:
    return Optimiser(
        policy.module.parameters(),
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        grad_clip=settings.grad_clip,
        max_skips=settings.max_skips,
    )


class Learner:
    def __init__(
        self,
        policy: Policy,
        reference: Policy | None,
        settings: LearnSettings,
        methods: Sequence[Method],
        steps: int,
        seed: int,
    ) -> None:
        self.policy, self.reference, self.settings, self.methods, self.seed = policy, reference, settings, methods, seed
        self.total_updates = steps * settings.epochs * settings.mini_batches
        self.optimiser = make_optimiser(policy, settings)

    def update(self, step: int, episodes: Sequence[Episode]) -> Metrics:
        """Improve the policy on these episodes; says what happened."""
        sequences, tokens = flatten(episodes)
        metrics, advantage_E = advantages(episodes, self.settings)
        advantage_N: Floats = advantage_E[tokens.episode_N].astype(np.float32)
        for method in self.methods:
            advantage_N = method.shape(tokens, advantage_N)
        old_N, mismatch = self._old_logp(sequences, tokens)
        metrics |= mismatch
        ref_N = self.score(self.reference, sequences, tokens) if self.reference else None
        seen: list[Metrics] = []
        for epoch in range(self.settings.epochs):
            for mini in self._mini_batches(step, epoch, sequences):
                seen.append(self._update_once(mini, tokens, advantage_N, old_N, ref_N))
        return metrics | _merged(seen) | {"update/skipped": self.optimiser.skipped, "update/count": len(seen)}

    def _old_logp(self, sequences: Sequence[TokenSequence], tokens: StepTokens) -> tuple[Floats, Metrics]:
        if self.settings.old_logprobs == "sampler":
            return tokens.logp_N, {}
        old_N = self.score(self.policy, sequences, tokens)
        difference = np.abs(old_N - tokens.logp_N)
        if not len(difference):
            return old_N, {}
        return old_N, {"mismatch/logp_mean": float(difference.mean()), "mismatch/logp_max": float(difference.max())}

    @torch.no_grad()
    def score(self, policy: Policy, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Floats:
        """Log-probs that a policy gives to the response tokens, at the temperatures they were sampled with."""
        logp_N = np.zeros_like(tokens.logp_N)
        for batch, chosen in self._pieces(sequences, tokens):
            logp_N[chosen] = policy.stats(batch).logp_N.cpu().numpy()
        return logp_N

    def _pieces(self, sequences: Sequence[TokenSequence], tokens: StepTokens, **columns: Floats | None):
        s = self.settings
        return micro_batches(
            sequences,
            tokens,
            row_tokens=s.row_tokens,
            micro_tokens=s.micro_tokens,
            device=self.policy.device,
            **columns,
        )

    def _mini_batches(self, step: int, epoch: int, sequences: Sequence[TokenSequence]) -> list[list[TokenSequence]]:
        """The sequences in `mini_batches` parts; the episodes of a group stay together."""
        if self.settings.mini_batches == 1:
            return [list(sequences)]
        groups = sorted({sequence.group for sequence in sequences})
        order = stream(self.seed, "mini_batches", step, epoch).permutation(len(groups))
        parts = np.array_split(np.array(groups)[order], self.settings.mini_batches)
        members: list[set[int]] = [set(part.tolist()) for part in parts if len(part)]
        return [[s for s in sequences if s.group in chosen] for chosen in members]

    def _update_once(
        self,
        mini: Sequence[TokenSequence],
        tokens: StepTokens,
        advantage_N: Floats,
        old_N: Floats,
        ref_N: Floats | None,
    ) -> Metrics:
        s = self.settings
        rate = learning_rate(self.optimiser.updates, self.total_updates, s.lr, s.warmup, s.floor)
        sums: Metrics = {}
        for batch, _ in self._pieces(mini, tokens, advantage_N=advantage_N, old_logp_N=old_N, ref_logp_N=ref_N):
            stats = self.policy.stats(batch)
            loss, seen = self._loss(batch, stats)
            loss.backward()
            _accumulate(sums, seen)
        sums["grad_norm"] = self.optimiser.step(sums.get("loss/total", 0.0), rate)
        return sums | {"lr": rate}

    def _loss(self, batch: TokenBatch, stats: TokenStats) -> tuple[Tensor, Metrics]:
        s = self.settings
        weight_N = batch.weights[s.aggregation]
        policy_loss = clipped_loss(stats.logp_N, batch.old_logp_N, batch.advantage_N, s.clip_low, s.clip_high)
        loss = (weight_N * policy_loss).sum()
        metrics = {"loss/policy": float(loss.detach())} | _policy_metrics(batch, stats, s)
        if batch.ref_logp_N is not None:
            kl = (weight_N * kl_estimate(stats.logp_N, batch.ref_logp_N, s.kl_estimator)).sum()
            loss = loss + s.kl * kl
            metrics["loss/kl"] = s.kl * float(kl.detach())
        for method in self.methods:
            term = method.loss(batch, stats)
            if term is not None:
                loss = loss + term.loss
                metrics |= term.metrics
        return loss, metrics | {"loss/total": float(loss.detach())}


ALGORITHMS: dict[str, Callable[[NDArray[np.float64], NDArray[np.int64], LearnSettings], NDArray[np.float64]]] = {
    "grpo": lambda returns_E, group_E, settings: grpo(returns_E, group_E, settings.divide_by_std),
}


def advantages(episodes: Sequence[Episode], settings: LearnSettings) -> tuple[Metrics, NDArray[np.float64]]:
    """One advantage per episode, and what to record of them."""
    returns_E = np.array([episode.ret for episode in episodes], dtype=np.float64)
    group_E = np.array([episode.group for episode in episodes], dtype=np.int64)
    advantage_E = ALGORITHMS[settings.algorithm](returns_E, group_E, settings)
    groups = np.unique(group_E)
    equal = [bool(np.all(advantage_E[group_E == g] == 0)) for g in groups]
    return {
        "advantage/mean": float(advantage_E.mean()) if len(advantage_E) else 0.0,
        "advantage/std": float(advantage_E.std()) if len(advantage_E) else 0.0,
        "advantage/zero_groups": float(np.mean(equal)) if equal else 0.0,
    }, advantage_E


@torch.no_grad()
def _policy_metrics(batch: TokenBatch, stats: TokenStats, s: LearnSettings) -> Metrics:
    """Token means, each as this micro-batch's share of the mini-batch's mean; extremes as they are."""
    weight_N = batch.weights["token"]
    ratio = torch.exp((stats.logp_N - batch.old_logp_N).clamp(-20, 20))
    low = (ratio < 1 - s.clip_low) & (batch.advantage_N < 0)
    high = (ratio > 1 + s.clip_high) & (batch.advantage_N > 0)
    means = {
        "clip/low": low.float(),
        "clip/high": high.float(),
        "clip/fraction": (low | high).float(),
        "ratio/mean": ratio,
        "kl/old": kl_estimate(stats.logp_N, batch.old_logp_N, "k3"),
    }
    if batch.ref_logp_N is not None:
        for name in ESTIMATORS:
            means[f"kl/{name}"] = kl_estimate(stats.logp_N, batch.ref_logp_N, name)
    metrics = {key: float((weight_N * values).sum()) for key, values in means.items()}
    return metrics | {"ratio/min": float(ratio.min()), "ratio/max": float(ratio.max())}


_EXTREMES = {"ratio/min": min, "ratio/max": max}


def _accumulate(sums: Metrics, new: Metrics) -> None:
    """Add a micro-batch's shares to those of the mini-batch so far."""
    for key, value in new.items():
        join = _EXTREMES.get(key)
        sums[key] = value if key not in sums else join(sums[key], value) if join else sums[key] + value


def _merged(updates: Sequence[Metrics]) -> Metrics:
    """The mean over a step's updates."""
    keys = sorted({key for update in updates for key in update})
    merged: Metrics = {}
    for key in keys:
        values = [update[key] for update in updates if key in update]
        merged[key] = _EXTREMES[key](values) if key in _EXTREMES else float(np.mean(values))
    return merged
