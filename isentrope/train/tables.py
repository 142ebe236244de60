"""Numbers per response token, collected from the pieces of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.losses.clipped import MAX_LOG_RATIO
from isentrope.types import Floats, Scores, StepTokens, Targets


def write_values(values_N: Floats, parts: Sequence[tuple[NDArray[np.int64], Tensor]]) -> None:
    """Put what was computed for these tokens in its place; it comes over from a GPU in one go."""
    if parts:
        values_N[np.concatenate([numbers for numbers, _ in parts])] = (
            torch.cat([values for _, values in parts]).float().cpu().numpy()
        )


def scores_of(tokens: StepTokens, targets: Targets, first_logp_N: Floats) -> Scores:
    length_U = np.bincount(tokens.turn_N, minlength=len(tokens.episode_U))
    spoken = length_U > 0
    log_ratio = np.clip(first_logp_N - targets.old_logp_N, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return Scores(
        episode_U=tokens.episode_U[spoken],
        turn_U=tokens.place_U[spoken],
        length_U=length_U[spoken],
        advantage_N=targets.advantage_N,
        ratio_N=np.exp(log_ratio),
    )
