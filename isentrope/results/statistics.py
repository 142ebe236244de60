"""Intervals of success and of differences in success.

share        Wilson's score interval (Wilson 1927), also for few games and for shares near 0 or 1
clustered    several episodes of a game are not independent: Wilson's interval with fewer games to show for them.
             The design effect is how much larger the variance between games is than that of independent episodes
             (Kish 1965); episodes / design effect stands in the place of the number of games.
difference   square-and-add of two Wilson intervals (Newcombe 1998, method 10 for independent shares); for the same
             games with the correlation between the two, corrected downwards (Newcombe 1998, paired method 10)
seeds        Welch's t interval of the difference between two means over seeds
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isentrope.metrics.episodes import wilson


@dataclass(frozen=True)
class Share:
    """A share of solved episodes and its 95 % interval."""

    value: float
    low: float
    high: float
    games: int
    episodes: int
    effective: float  # independent episodes that would say as much


@dataclass(frozen=True)
class Difference:
    value: float
    low: float
    high: float


def share_of(wins: Sequence[int], episodes: Sequence[int]) -> Share:
    """The share over all episodes, given the wins and the episodes of each game, clustered by game."""
    games, total = len(episodes), sum(episodes)
    if total == 0:
        return Share(0.0, 0.0, 1.0, games, 0, 0.0)
    value = sum(wins) / total
    effective = _effective(wins, episodes, value, total)
    low, high = wilson(value * effective, effective)
    return Share(value, low, high, games, total, effective)


def _effective(wins: Sequence[int], episodes: Sequence[int], value: float, total: int) -> float:
    """Episodes over design effect. Never fewer than the games, which are independent, nor more than the episodes."""
    games = len(episodes)
    if games == total:
        return float(total)
    if games < 2 or value in (0.0, 1.0):  # nothing varies, so nothing is known of the variance between games
        return float(games)
    residuals = sum((won - value * played) ** 2 for won, played in zip(wins, episodes, strict=True))
    variance = residuals * games / (games - 1) / total**2
    if variance == 0.0:
        return float(total)
    return min(float(total), max(float(games), value * (1 - value) / variance))


def difference_of(first: Share, second: Share, correlation: float = 0.0) -> Difference:
    """first - second; `correlation` is that between the two on the same games, 0 for different games."""
    value = first.value - second.value
    below = _add(first.value - first.low, second.high - second.value, correlation)
    above = _add(first.high - first.value, second.value - second.low, correlation)
    return Difference(value, max(-1.0, value - below), min(1.0, value + above))


def _add(a: float, b: float, correlation: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))


def correlation_of(first: Mapping[object, float], second: Mapping[object, float], count: float) -> float:
    """The correlation over the games that both have, 0 where one of the two does not vary.

    Newcombe's correction: a positive covariance is reduced by 1/(2·count), at most to 0. Otherwise two that solve the
    same games would seem to differ by nothing, for certain. `count` is the number of games, or for several episodes of
    each the independent episodes that say as much.
    """
    games = [game for game in first if game in second]
    a = np.array([first[game] for game in games], dtype=np.float64)
    b = np.array([second[game] for game in games], dtype=np.float64)
    if len(games) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    covariance = float(np.mean((a - np.mean(a)) * (b - np.mean(b)), dtype=np.float64))
    if covariance > 0:
        covariance = max(0.0, covariance - 1 / (2 * count))
    return min(1.0, max(-1.0, covariance / (float(a.std()) * float(b.std()))))


def welch(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The difference of two means over seeds, at least two on each side, with Welch's 95 % t interval.

    None where the seeds of neither side differ: then they do not tell how much seeds differ.
    """
    (mean_a, std_a), (mean_b, std_b) = mean_and_std(first), mean_and_std(second)
    value, a, b = mean_a - mean_b, (std_a or 0.0) ** 2 / len(first), (std_b or 0.0) ** 2 / len(second)
    if a + b == 0.0:
        return None
    freedom = (a + b) ** 2 / (a * a / (len(first) - 1) + b * b / (len(second) - 1))
    half = t_quantile(freedom) * math.sqrt(a + b)
    return Difference(value, value - half, value + half)


def t_quantile(freedom: float) -> float:
    """The t that holds 95 % of Student's distribution between -t and t.

    With t = √ν·tan θ the density is proportional to cos^(ν-1) θ on 0 to π/2, which a plain sum integrates well.
    """
    angle = np.linspace(0.0, math.pi / 2, 200_001)
    area = np.cumsum(np.cos((angle[1:] + angle[:-1]) / 2) ** (freedom - 1))
    at = float(np.interp(0.95 * float(area[-1]), area, angle[1:]))
    return math.sqrt(freedom) * math.tan(at)


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean over seeds, and the standard deviation (n - 1) if there are two or more."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
