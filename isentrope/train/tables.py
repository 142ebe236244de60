"""Numbers per response token, collected from the pieces of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.core.types import Floats, Scores, StepTokens, Targets
from isentrope.layout import TokenSequence
from isentrope.losses.clipped import MAX_LOG_RATIO
from isentrope.masked import token_weights
from isentrope.train.finite import Mask, spread


def write_values(values_N: Floats, parts: Sequence[tuple[NDArray[np.int64], Tensor]]) -> None:
    """Put what was computed for these tokens in its place; it comes over from a GPU in one go."""
    if parts:
        values_N[np.concatenate([numbers for numbers, _ in parts])] = (
            torch.cat([values for _, values in parts]).float().cpu().numpy()
        )


def add_weights(
    weight_N: Floats,
    mini: Sequence[TokenSequence],
    tokens: StepTokens,
    targets: Targets,
    aggregation: str,
    constant_length: float,
) -> None:
    """Add what an update on this mini-batch multiplied the policy loss of each of its tokens with."""
    chosen = np.concatenate([sequence.tokens for sequence in mini])
    new_N = token_weights(aggregation, tokens.episode_N[chosen], tokens.turn_N[chosen], constant_length)
    weight_N[chosen] += new_N if targets.mismatch_N is None else new_N * targets.mismatch_N[chosen]


def scores_of(tokens: StepTokens, targets: Targets, first_logp_N: Floats, weight_N: Floats, keep_N: Mask) -> Scores:
    """`tokens` are all of the step; the other columns have those of `keep_N` alone. The rest was not learnt from."""
    length_U = np.bincount(tokens.turn_N, minlength=len(tokens.episode_U))
    spoken = length_U > 0
    log_ratio = np.clip(first_logp_N - targets.old_logp_N, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return Scores(
        episode_U=tokens.episode_U[spoken],
        turn_U=tokens.place_U[spoken],
        length_U=length_U[spoken],
        advantage_N=spread(targets.advantage_N, keep_N, 0.0),
        ratio_N=spread(np.exp(log_ratio), keep_N, np.nan),
        weight_N=spread(weight_N, keep_N, 0.0),
    )
