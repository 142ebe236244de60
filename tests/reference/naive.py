"""Every estimator and loss once more, with loops and no cleverness: what the fast forms are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence


def grpo(returns: Sequence[float], groups: Sequence[int], divide_by_std: bool = True) -> list[float]:
    advantages: list[float] = []
    for i, group in enumerate(groups):
        members = [returns[j] for j in range(len(returns)) if groups[j] == group]
        mean = sum(members) / len(members)
        if len(members) < 2 or min(members) == max(members):
            advantages.append(0.0)
            continue
        variance = sum((value - mean) ** 2 for value in members) / (len(members) - 1)
        centred = returns[i] - mean
        advantages.append(centred / (math.sqrt(variance) + 1e-6) if divide_by_std else centred)
    return advantages


def clipped(logp: float, old: float, advantage: float, low: float, high: float) -> float:
    ratio = math.exp(logp - old)
    limited = min(max(ratio, 1 - low), 1 + high)
    return -min(ratio * advantage, limited * advantage)


def kl(logp: float, ref: float, estimator: str) -> float:
    d = logp - ref
    return {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[estimator]


def mean_over(values: Sequence[float], episodes: Sequence[int], turns: Sequence[int], mode: str) -> float:
    """The three aggregation modes as nested means."""
    if mode == "token":
        return sum(values) / len(values)
    turn_means: dict[int, float] = {}
    episode_of_turn: dict[int, int] = {}
    for turn in sorted(set(turns)):
        inside = [values[i] for i in range(len(values)) if turns[i] == turn]
        turn_means[turn] = sum(inside) / len(inside)
        episode_of_turn[turn] = next(episodes[i] for i in range(len(values)) if turns[i] == turn)
    if mode == "sequence":
        return sum(turn_means.values()) / len(turn_means)
    episode_means: list[float] = []
    for episode in sorted(set(episodes)):
        inside = [mean for turn, mean in turn_means.items() if episode_of_turn[turn] == episode]
        episode_means.append(sum(inside) / len(inside))
    return sum(episode_means) / len(episode_means)
