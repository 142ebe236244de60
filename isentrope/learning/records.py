"""Records of an update: its metrics, and the scores of each token.

A figure of a micro-batch is a share: summed over the micro-batches of a mini-batch it is the mini-batch's (see
token_weights.py); extremes stay extremes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from isentrope.core.token_weights import token_weights
from isentrope.core.types import Floats, Metrics, Scores, StepTokens, Targets
from isentrope.learning.losses.clipped import MAX_LOG_RATIO
from isentrope.learning.tokens import Ids, Mask, TokenSequence, spread

Figures = dict[str, float | Tensor]
"""The same, some of it perhaps still on the GPU."""
Numbered = list[tuple[Ids, Floats]]
"""Values of tokens, with the numbers of these."""
Extremes = Mapping[str, Callable[..., float]]
"""Metrics of which the smallest or largest value counts -> min or max."""
EXTREMES: Extremes = {"ratio/min": min, "ratio/max": max}


def number(value: Tensor) -> float | Tensor:
    """A figure to record. On a GPU it stays there, to come over with others at the end, so that nobody waits."""
    value = value.detach()
    return value if value.is_cuda else float(value)


def brought(figures: Sequence[Figures]) -> list[Metrics]:
    """All of them as numbers: what is still on the GPU comes over in one go."""
    waiting = [value for each in figures for value in each.values() if isinstance(value, Tensor)]
    arrived = iter(cast("list[float]", torch.stack([v.float() for v in waiting]).tolist()) if waiting else [])
    return [
        {key: next(arrived) if isinstance(value, Tensor) else value for key, value in each.items()} for each in figures
    ]


def accumulate(sums: Metrics, new: Metrics, extremes: Extremes = EXTREMES) -> None:
    """Add a micro-batch's shares to those of the mini-batch so far."""
    for key, value in new.items():
        join = extremes.get(key)
        sums[key] = value if key not in sums else join(sums[key], value) if join else sums[key] + value


def merged(updates: Sequence[Metrics], extremes: Extremes = EXTREMES) -> Metrics:
    """The mean over a step's updates."""
    keys = sorted({key for update in updates for key in update})
    result: Metrics = {}
    for key in keys:
        values = [update[key] for update in updates if key in update]
        result[key] = extremes[key](values) if key in extremes else float(np.mean(values))
    return result


def numbered(parts: Sequence[tuple[Ids, Tensor]]) -> Numbered:
    """What was computed for these tokens; it comes over from a GPU in one go."""
    if not parts:
        return []
    values_N = torch.cat([values for _, values in parts]).float().cpu().numpy()
    return [(np.concatenate([numbers for numbers, _ in parts]), values_N)]


def put(values_N: Floats, computed: Sequence[Numbered]) -> None:
    """Each value in its place."""
    for part in computed:
        for numbers, new_N in part:
            values_N[numbers] = new_N


def add_weights(
    weight_N: Floats,
    mini: Sequence[TokenSequence],
    tokens: StepTokens,
    targets: Targets,
    aggregation: str,
    constant_length: float,
    factor_N: Floats | None = None,
) -> None:
    """Add what an update on this mini-batch multiplied the policy loss of each of its tokens with. `factor_N` is what
    methods weighed the tokens of the step with."""
    chosen = np.concatenate([sequence.tokens for sequence in mini])
    new_N = token_weights(aggregation, tokens.episode_N[chosen], tokens.turn_N[chosen], constant_length)
    for factors_N in (targets.mismatch_N, factor_N):
        new_N = new_N if factors_N is None else new_N * factors_N[chosen]
    weight_N[chosen] += new_N


def scores_of(tokens: StepTokens, targets: Targets, first_logp_N: Floats, weight_N: Floats, keep_N: Mask) -> Scores:
    """`tokens` are all of the step; the other columns have those of `keep_N` alone. The rest was not learnt from."""
    log_ratio = np.clip(first_logp_N - targets.old_logp_N, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    return Scores(
        episode_U=tokens.episode_U,
        turn_U=tokens.place_U,
        length_U=tokens.length_U,
        advantage_N=spread(targets.advantage_N, keep_N, 0.0),
        ratio_N=spread(np.exp(log_ratio), keep_N, np.nan),
        weight_N=spread(weight_N, keep_N, 0.0),
    )
