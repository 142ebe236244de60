"""Every estimator and loss once more, with loops and no cleverness: what the fast forms are compared with.

Here: what an episode or a token is worth within its group, the losses, and the ways to average. Credit for single
steps and tokens is in `naive_credit.py`; forms that torch can differentiate are in `naive_torch.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def all_equal(values: Sequence[float]) -> bool:
    return all(value == values[0] for value in values)


def mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def unbiased_std(values: Sequence[float]) -> float:
    mean = mean_of(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def reinforce(returns: Sequence[float]) -> list[float]:
    return [value - mean_of(returns) for value in returns]


def rloo(returns: Sequence[float], groups: Sequence[int]) -> list[float]:
    advantages: list[float] = []
    for i, group in enumerate(groups):
        others = [returns[j] for j in range(len(returns)) if groups[j] == group and j != i]
        advantages.append(returns[i] - mean_of(others) if others else 0.0)
    return advantages


def grpo(returns: Sequence[float], groups: Sequence[int], divide_by_std: bool = True) -> list[float]:
    advantages: list[float] = []
    for i, group in enumerate(groups):
        members = [returns[j] for j in range(len(returns)) if groups[j] == group]
        if len(members) < 2 or all_equal(members):
            advantages.append(0.0)
            continue
        centred = returns[i] - mean_of(members)
        advantages.append(centred / (unbiased_std(members) + 1e-6) if divide_by_std else centred)
    return advantages


def grpo_over_steps(
    returns: Sequence[float], groups: Sequence[int], turns: Sequence[int], divide_by_std: bool = True
) -> list[float]:
    """Group statistics over turn samples: an episode counts once for each of its turns. One number per episode."""
    advantages: list[float] = []
    for i, group in enumerate(groups):
        samples: list[float] = []
        for j in range(len(returns)):
            if groups[j] == group:
                samples.extend([returns[j]] * turns[j])
        if len(samples) < 2 or all_equal(samples):
            advantages.append(0.0)
            continue
        centred = returns[i] - mean_of(samples)
        advantages.append(centred / (unbiased_std(samples) + 1e-6) if divide_by_std else centred)
    return advantages


def policy_gradient(logp: float, advantage: float) -> float:
    return -advantage * logp


def clipped_at(ratio: float, advantage: float, low: float, high: float) -> float:
    limited = min(max(ratio, 1 - low), 1 + high)
    return -min(ratio * advantage, limited * advantage)


def clipped(logp: float, old: float, advantage: float, low: float, high: float) -> float:
    return clipped_at(math.exp(logp - old), advantage, low, high)


def sequence(
    logp: Sequence[float],
    old: Sequence[float],
    advantages: Sequence[float],
    turns: Sequence[int],
    low: float,
    high: float,
) -> list[float]:
    """GSPO: one ratio for all tokens of a response, the geometric mean of theirs."""
    losses: list[float] = []
    for i in range(len(logp)):
        inside = [j for j in range(len(logp)) if turns[j] == turns[i]]
        ratio = math.exp(mean_of([logp[j] - old[j] for j in inside]))
        losses.append(clipped_at(ratio, advantages[i], low, high))
    return losses


def value(predicted: float, old: float, target: float, clip: float) -> float:
    free = (predicted - target) ** 2
    if clip == 0:
        return free / 2
    limited = min(max(predicted, old - clip), old + clip)
    return max(free, (limited - target) ** 2) / 2


def kl(logp: float, ref: float, estimator: str) -> float:
    d = logp - ref
    return {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[estimator]


def mean_over(
    values: Sequence[float], episodes: Sequence[int], turns: Sequence[int], mode: str, constant_length: float = 1.0
) -> float:
    """The aggregation modes as nested means."""
    if mode == "token":
        return mean_of(values)
    if mode == "constant":
        sums = [sum(v for v, e in zip(values, episodes, strict=True) if e == episode) for episode in set(episodes)]
        return mean_of([total / constant_length for total in sums])
    if mode == "episode":
        of = [[v for v, e in zip(values, episodes, strict=True) if e == episode] for episode in sorted(set(episodes))]
        return mean_of([mean_of(own) for own in of])
    turn_means: dict[int, float] = {}
    episode_of_turn: dict[int, int] = {}
    for turn in sorted(set(turns)):
        turn_means[turn] = mean_of([values[i] for i in range(len(values)) if turns[i] == turn])
        episode_of_turn[turn] = next(episodes[i] for i in range(len(values)) if turns[i] == turn)
    if mode == "sequence":
        return mean_of(list(turn_means.values()))
    episode_means: list[float] = []
    for episode in sorted(set(episodes)):
        episode_means.append(mean_of([mean for turn, mean in turn_means.items() if episode_of_turn[turn] == episode]))
    return mean_of(episode_means)
