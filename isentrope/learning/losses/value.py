"""The critic's loss with value clipping (PPO), per token.

    loss = ½ max((v - R)², (clip(v, v_old - ε, v_old + ε) - R)²)

The larger of the two counts, so a value that has moved further than ε towards its target gets no more gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isentrope.core.shapes import expect_vectors


def value_loss(value_N: Tensor, old_value_N: Tensor, return_N: Tensor, clip: float) -> Tensor:
    """`clip` 0 leaves the values free."""
    expect_vectors(value_N=value_N, old_value_N=old_value_N, return_N=return_N)
    free = (value_N - return_N).square()
    if clip == 0:
        return free / 2
    limited = old_value_N + (value_N - old_value_N).clamp(-clip, clip)
    return torch.maximum(free, (limited - return_N).square()) / 2
