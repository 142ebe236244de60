"""AEM: confident responses weigh more, hesitant ones less, whatever the sign of their advantage.

Paper: AEM: Adaptive Entropy Modulation for Multi-Turn Agentic Reinforcement Learning.

    Eq. 13   h = (1/|a|) Σ_j H_j                      mean token entropy of a response
    Eq. 14   ĥ = (h - min) / (max - min)              over all responses of all episodes of one group
    Eq. 15   w = exp(-λ ĥ) / mean_group exp(-λ ĥ)     1 if max - min < 1e-6
             every token of the response gets w · A

Symbols: H_j is the entropy of the policy that sampled, so no extra forward pass is needed; λ is `strength`, 1 in the
paper. The map of Eq. 13-15 is decreasing in h and has mean 1 within the group, so the size of an update stays.

`leave_out` is the paper's Analysis A: no weights; instead the responses that the theory expects to lower the entropy
(A > 0 and w > 1, or A < 0 and w < 1) or those that it expects to raise it get advantage 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isentrope.config.schema import setting
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Floats, Shaped, StepTokens

SMALLEST_SPREAD = 1e-6
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class AemOptions:
    strength: float = setting(1.0, "λ, how sharply confident and hesitant responses are told apart", low=0)
    leave_out: str = setting(
        "none",
        "responses that get advantage 0: none, those that let the entropy fall, those that let it rise",
        choices=("none", "falling", "rising"),
    )


def response_entropies(tokens: StepTokens) -> Vector:
    """Eq. 13 for each turn that has a response; 0 for one without."""
    turns = len(tokens.episode_U)
    count = np.bincount(tokens.turn_N, minlength=turns)
    return np.bincount(tokens.turn_N, weights=tokens.entropy_N, minlength=turns) / np.maximum(count, 1)


def response_weights(entropy_U: Vector, group_U: NDArray[np.int64], strength: float) -> Vector:
    """Eq. 14 and 15."""
    weights = np.ones(len(entropy_U))
    for group in np.unique(group_U):
        members = group_U == group
        h = entropy_U[members]
        spread = h.max() - h.min()
        if spread < SMALLEST_SPREAD:
            continue
        raw = np.exp(-strength * (h - h.min()) / spread)
        weights[members] = raw / raw.mean()
    return weights


class Aem(Method):
    name = "aem"
    summary = "scales the advantage of each response by how sure the policy was of it"
    paper = "AEM, 2026"
    options_class = AemOptions
    options: AemOptions
    metrics = (
        Metric("aem/weight_min", "Smallest weight that AEM gave to a response of the step.", "weight"),
        Metric("aem/weight_max", "Largest weight that AEM gave to a response of the step.", "weight"),
        Metric("aem/left_out", "Share of the tokens whose advantage AEM set to 0 (`leave_out`).", "share"),
    )

    def impossible(self) -> list[str]:
        if self.options.strength > 0 or self.options.leave_out == "none":
            return []
        return [
            f'method.aem.strength = 0 with method.aem.leave_out = "{self.options.leave_out}": with strength 0 all '
            "responses weigh the same, so none would be left out; use a strength above 0 (1 in the paper), or "
            "leave_out = none"
        ]

    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats | Shaped:
        if self.options.strength == 0 or not len(advantage_N):
            return advantage_N
        turns, first_of = np.unique(tokens.turn_N, return_index=True)
        weight_U = np.ones(len(tokens.episode_U))
        entropy_U = response_entropies(tokens)
        weight_U[turns] = response_weights(entropy_U[turns], tokens.group_N[first_of], self.options.strength)
        weight_N = weight_U[tokens.turn_N]
        metrics = {"aem/weight_min": float(weight_U[turns].min()), "aem/weight_max": float(weight_U[turns].max())}
        if self.options.leave_out == "none":
            return Shaped((weight_N * advantage_N).astype(np.float32), metrics)
        falling = ((advantage_N > 0) & (weight_N > 1)) | ((advantage_N < 0) & (weight_N < 1))
        rising = ((advantage_N > 0) & (weight_N < 1)) | ((advantage_N < 0) & (weight_N > 1))
        out = falling if self.options.leave_out == "falling" else rising
        return Shaped(np.where(out, np.float32(0), advantage_N), metrics | {"aem/left_out": float(out.mean())})
