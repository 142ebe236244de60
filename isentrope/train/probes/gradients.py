"""K_ij = <g_i, g_j> over all weights that learn, by autograd: both terms of SEAL's Lemma 3.2 (see interference.py).

Cost: a forward and a backward pass per episode, and the gradients of a whole group in memory at once, in float32:
8 episodes × 135 million weights take 4.3 GB. With adapters only these learn, and it is small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.batch import flatten, micro_batches
from isentrope.policy.policy import Policy
from isentrope.types import Episode


@torch.enable_grad()  # pyright: ignore[reportUntypedFunctionDecorator]
def full_kernel(policy: Policy, episodes: Sequence[Episode], micro_tokens: int) -> NDArray[np.float64]:
    """K_ij for the episodes of a group. The weights' own `.grad` is not touched."""
    weights = [weight for weight in policy.module.parameters() if weight.requires_grad]
    gradient = torch.zeros(len(episodes), sum(weight.numel() for weight in weights), device=policy.device)
    for row, episode in zip(gradient, episodes, strict=True):
        sequences, tokens = flatten([episode])
        for batch in micro_batches(sequences, tokens, micro_tokens=micro_tokens, device=policy.device):
            likelihood = policy.stats(batch).logp_N.sum()
            _add(row, weights, torch.autograd.grad(likelihood, weights, allow_unused=True))
    return (gradient @ gradient.T).cpu().double().numpy()


def _add(row: Tensor, weights: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    at = 0
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            row[at : at + weight.numel()] += gradient.flatten().float()
        at += weight.numel()
