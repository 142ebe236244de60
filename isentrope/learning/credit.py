"""Turns the rewards of a step's episodes into one advantage per response token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from isentrope.config.schema import LearnSettings
from isentrope.core.advantage import Advantage, Ids, Outcomes, Vector, per_episode
from isentrope.core.part import calling, numbers, shape_of
from isentrope.core.types import Episode, Floats, StepTokens
from isentrope.learning.advantages.overlong import overlong_penalty
from isentrope.learning.registry import make_advantage


@dataclass(frozen=True)
class Credit:
    advantage_N: Floats
    return_N: Floats | None  # what the critic is to learn
    metrics: dict[str, float]


def assign_credit(
    episodes: Sequence[Episode],
    tokens: StepTokens,
    learn: LearnSettings,
    max_response: int,
    penalty_N: Floats | None = None,
    value_N: Floats | None = None,
    advantage: Advantage | None = None,
) -> Credit:
    """`penalty_N` is taken off the rewards, token by token (a KL divergence); `value_N` is the critic's estimate.
    `advantage` is the estimator, made of the settings if it is not given."""
    advantage = advantage or make_advantage(learn)
    outcomes = _outcomes(episodes, tokens, penalty_N, value_N)
    given_U, metrics = outcomes.reward_U, dict[str, float]()
    if learn.overlong > 0:
        lengths = np.array([len(turn.response_ids) for e in episodes for turn in e.turns], dtype=np.int64)
        buffer = max(1, round(learn.overlong * max_response))
        penalty_U = learn.overlong_penalty * overlong_penalty(lengths, max_response, buffer)
        outcomes = replace(outcomes, reward_U=given_U + penalty_U)
        if len(penalty_U):
            metrics |= {"overlong/mean": -float(penalty_U.mean()), "overlong/share": float(np.mean(penalty_U < 0))}
    with calling(advantage, "estimate"):
        estimate = advantage.estimate(outcomes)
        metrics |= numbers(advantage, estimate.metrics)
        advantage_N = _for_each_token(estimate.advantage_N, len(tokens.logp_N), "advantages")
        return_N = estimate.return_N
        if advantage.needs_critic:
            return_N = _for_each_token(estimate.return_N, len(tokens.logp_N), "returns for the critic")
        if np.isfinite(outcomes.return_E).all() and (value_N is None or np.isfinite(value_N).all()):
            _finite(advantage_N)
    returns_E = per_episode(given_U, outcomes.episode_U, len(episodes))  # as the task gave them
    return Credit(
        advantage_N.astype(np.float32),
        None if return_N is None else return_N.astype(np.float32),
        _metrics(advantage_N, returns_E, outcomes.group_E) | metrics,
    )


def _for_each_token(value: object, count: int, what: str) -> Vector:
    array_N = cast("Vector", value)
    if not isinstance(value, np.ndarray) or array_N.shape != (count,) or array_N.dtype.kind != "f":
        raise ValueError(f"gave {shape_of(array_N)} as {what}: expected {count} floats, one for each token")
    return array_N


def _finite(advantage_N: Vector) -> None:
    wrong_N = ~np.isfinite(advantage_N)
    if wrong_N.any():
        said = f"gave {int(wrong_N.sum())} advantages like {advantage_N[wrong_N][0]}"
        raise ValueError(f"{said}, from finite rewards: expected finite ones")


def _outcomes(
    episodes: Sequence[Episode], tokens: StepTokens, penalty_N: Floats | None, value_N: Floats | None
) -> Outcomes:
    counts = np.array([len(episode.turns) for episode in episodes], dtype=np.int64)
    start_E = np.cumsum(counts) - counts
    turn_N = (start_E[tokens.episode_U] + tokens.place_U)[tokens.turn_N]
    total = int(counts.sum())
    last = np.full(total, -1, dtype=np.int64)
    last[turn_N] = np.arange(len(turn_N))  # of equal turns the last token stays
    episode_U = np.repeat(np.arange(len(episodes)), counts)
    for u in range(1, total):
        if last[u] < 0 and episode_U[u] == episode_U[u - 1]:
            last[u] = last[u - 1]
    return Outcomes(
        episodes=episodes,
        tokens=tokens,
        reward_U=np.array([turn.reward for episode in episodes for turn in episode.turns], dtype=np.float64),
        episode_U=episode_U,
        group_U=np.repeat(np.array([episode.group for episode in episodes], dtype=np.int64), counts),
        turn_N=turn_N,
        last_U=last,
        penalty_N=penalty_N,
        value_N=value_N,
    )


def _metrics(advantage_N: Vector, returns_E: Vector, group_E: Ids) -> dict[str, float]:
    if not len(advantage_N):
        return {}
    equal = [bool(np.all(returns_E[group_E == g] == returns_E[group_E == g][0])) for g in np.unique(group_E)]
    return {
        "advantage/mean": float(advantage_N.mean()),
        "advantage/std": float(advantage_N.std()),
        "advantage/zero_groups": float(np.mean(equal)),
    }
