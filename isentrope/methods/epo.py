"""EPO: an entropy bonus, and a penalty on tokens whose entropy leaves a band around its own history.

Paper: Exploring the Entropy Mechanism in On-Policy Optimization for LLM Agents, arXiv:2509.22576.

    Eq. 4   L_H      = mean over episodes of mean over turns of mean over tokens of H
    Eq. 5   P        = α · [max(0, κ_l·H̄ - H) + max(0, H - κ_r·H̄)]
    Eq. 6   L_smooth = P, averaged as in Eq. 4
    Eq. 7   β_k      = β_start + (1 - β_start)(1 - exp(-λ_d k/k_mid))            for k ≤ k_mid = K // 2
                       1 + (β_end - 1)(1 - exp(-λ_d (k - k_mid)/(K - k_mid)))    afterwards
    L = L_policy - λ · [L_H - β_k · L_smooth]

Symbols: k counts steps from 0, K steps in all; H̄ is the mean, over all earlier steps, of the step's token-mean entropy
as sampled. At the first step there is no history and no penalty. The gradient flows through H.

Options: `penalty = "indicator"` is the appendix's form, 0 or α, which the authors' code runs. It has no gradient, so
training equals a plain bonus; only the reported loss differs. Variants: `base` has no smoothing, `no_dw` has β = 1,
`decay` is `base` with λ falling linearly to 0 (the paper does not print its schedule).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from isentrope.config.schema import setting
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Metrics, StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning.records import number


@dataclass(frozen=True)
class EpoOptions:
    coefficient: float = setting(0.001, "λ, the weight of bonus and penalty", low=0)
    alpha: float = setting(0.1, "α, the weight of the penalty; 0.1 for household, 0.05 for science tasks", low=0)
    kappa_low: float = setting(0.0, "κ_l: entropies below this share of their history are penalised", low=0)
    kappa_high: float = setting(2.0, "κ_r: entropies above this multiple of their history are penalised", low=0)
    beta_start: float = setting(2.0, "β at the first step", low=0)
    beta_end: float = setting(1.0, "β towards the end", low=0)
    decay: float = setting(3.0, "λ_d, how fast β moves", low=0)
    penalty: str = setting("hinge", "Eq. 5, or 0/α without a gradient", choices=("hinge", "indicator"))
    variant: str = setting("full", "the method or one of its ablations", choices=("full", "base", "no_dw", "decay"))


def beta_schedule(k: int, steps: int, start: float, end: float, decay: float) -> float:
    """Eq. 7. A step past the end counts as the last."""
    k = min(k, steps)
    middle = steps // 2
    if k <= middle:
        share = k / middle if middle else 0.0
        return start + (1 - start) * (1 - math.exp(-decay * share))
    return 1 + (end - 1) * (1 - math.exp(-decay * (k - middle) / (steps - middle)))


def penalty(entropy_N: Tensor, history: float, alpha: float, low: float, high: float, indicator: bool) -> Tensor:
    """Eq. 5 per token, or the appendix's 0/α."""
    below, above = (low * history - entropy_N).clamp(min=0), (entropy_N - high * history).clamp(min=0)
    if indicator:
        return alpha * ((below > 0) | (above > 0)).to(entropy_N.dtype)
    return alpha * (below + above)


class Epo(Method):
    name = "epo"
    summary = "an entropy bonus, smoothed by a penalty on entropies far from their history"
    paper = "EPO, arXiv:2509.22576"
    options_class = EpoOptions
    options: EpoOptions
    metrics = (
        Metric("epo/coefficient", "EPO's λ, the weight of bonus and penalty.", "weight"),
        Metric("epo/beta", "EPO's β_k, the weight of the smoothing penalty against the bonus.", "weight"),
        Metric("epo/history", "EPO's H̄: mean token entropy over all earlier steps.", "nats"),
        Metric("epo/outside", "Share of the step's tokens whose entropy lies outside of EPO's band.", "share"),
        Metric("epo/penalty", "EPO's smoothing penalty (α included, λ and β not).", "loss"),
    )

    def __init__(self, options: EpoOptions | None = None, steps: int = 1, seed: int = 0) -> None:
        super().__init__(options, steps, seed)
        self.history: list[float] = []  # mean token entropy of every step so far
        self.reference: float | None = None  # H̄ of the step that is being learnt from
        self.beta = self.coefficient = 0.0

    def begin(self, step: int, tokens: StepTokens) -> Metrics:
        """Sets λ, β and H̄ for the step and takes its entropy into the history."""
        o, k = self.options, step - 1
        self.coefficient = o.coefficient
        if o.variant == "decay":
            self.coefficient *= 1 - min(k, self.steps) / self.steps
        self.beta = 1.0 if o.variant == "no_dw" else beta_schedule(k, self.steps, o.beta_start, o.beta_end, o.decay)
        smooth = o.variant in ("full", "no_dw")
        self.reference = float(np.mean(self.history)) if smooth and self.history else None
        metrics = {"epo/coefficient": self.coefficient}
        if self.reference is not None:
            entropy_N, low, high = tokens.entropy_N, o.kappa_low * self.reference, o.kappa_high * self.reference
            metrics |= {"epo/beta": self.beta, "epo/history": self.reference}
            if len(entropy_N):
                metrics["epo/outside"] = float(np.mean((entropy_N < low) | (entropy_N > high)))
        if len(tokens.entropy_N):
            mean = float(tokens.entropy_N.mean(dtype=np.float64))
            self.history += [mean] if math.isfinite(mean) else []  # one bad step must not spoil all later ones
        return metrics

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        if self.coefficient == 0:
            return None
        o, weight_N = self.options, batch.weights["turn"]
        loss = -self.coefficient * (weight_N * stats.entropy_N).sum()
        metrics: dict[str, float | Tensor] = {}
        if self.reference is not None:
            indicator = o.penalty == "indicator"
            penalty_N = penalty(stats.entropy_N, self.reference, o.alpha, o.kappa_low, o.kappa_high, indicator)
            smooth = (weight_N * penalty_N).sum()
            loss = loss + self.coefficient * self.beta * smooth
            metrics["epo/penalty"] = number(smooth)
        return Term(loss, metrics | {"loss/epo": number(loss)})

    def state_dict(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = [float(value) for value in state["history"]]
