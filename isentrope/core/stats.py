"""Confidence intervals and quantiles, as pure functions; resampling uses a fixed seed.

share        Wilson's score interval (Wilson 1927), also for few games and for shares near 0 or 1; Clopper and Pearson's
             (1934) where an interval may never hold the truth less often than it says
clustered    several episodes of a game are not independent: Wilson's interval with fewer games to show for them.
             The design effect is how much larger the variance between games is than that of independent episodes
             (Kish 1965); episodes / design effect stands in the place of the number of games.
             Where only the shares of steps are known, their differences tell that number (`effective_of_steps`)
difference   square-and-add of two Wilson intervals (Newcombe 1998, method 10 for independent shares); for the same
             games with the correlation between the two, corrected downwards (Newcombe 1998, paired method 10)
two arms     Welch's t interval of the difference between two means over seeds
mean         over seeds: resample them with replacement, all n^n ways where they are few, else 10,000 times. The
             interval is that of the means, with Hesterberg's expanded percentiles (2015), because the plain ones are
             too narrow for few seeds. With n seeds no mean of a resample lies outside of their range, which holds the
             truth 75 % of the time for n = 3 and in 94 % for n = 5: so it is never narrower than Student's t interval.
             One seed has none.
pairs        runs of two cells with the same seed play the same games, so what is looked at is the difference by seed
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise, product
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
EXACT = 5  # seeds up to which all resamples are listed: 5^5 = 3,125
_SEED = 20250
_NUMBERS_AT_ONCE = 2**20  # of resamples that are in memory together
_NORMAL = 1.959963984540054  # the normal quantile of 97.5 %

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or -1 where the interval is clear of 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def within(self, least: float, most: float) -> Interval:
        """Without the ends that a value cannot have: a share lies between 0 and 1."""
        return Interval(max(least, self.low), min(most, self.high))


@dataclass(frozen=True)
class Mean:
    """A mean over `count` seeds; without an interval where one seed does not tell how much seeds differ."""

    value: float
    interval: Interval | None
    count: int

    @property
    def low(self) -> float | None:
        return self.interval.low if self.interval else None

    @property
    def high(self) -> float | None:
        return self.interval.high if self.interval else None

    @property
    def sign(self) -> int:
        """1 or -1 where the interval is clear of 0, else 0."""
        return self.interval.sign if self.interval else 0


@dataclass(frozen=True)
class Share:
    """A share of solved episodes and its 95 % interval."""

    value: float
    interval: Interval
    games: int
    episodes: int
    effective: float  # independent episodes that would say as much

    @property
    def low(self) -> float:
        return self.interval.low

    @property
    def high(self) -> float:
        return self.interval.high


@dataclass(frozen=True)
class Difference:
    value: float
    interval: Interval


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean over seeds, and the standard deviation (n - 1) if there are two or more."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def quantile(values: Sequence[float] | Vector, share: float) -> float:
    """The value that `share` of the values lie below, linear between two of them."""
    return float(np.quantile(values, share))


def median_of(values: Sequence[float | None]) -> float | None:
    """The median over seeds, where None is a seed that never got there: None where half of them did not."""
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return None if math.isinf(middle) else middle


# -- shares


def wilson(successes: float, count: float, z: float = _NORMAL) -> Interval:
    """Wilson's interval of a share, 95 % by default; it stays inside 0 to 1 and is honest for few games."""
    if count == 0:
        return Interval(0.0, 1.0)
    share = successes / count
    centre = share + z * z / (2 * count)
    half = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    scale = 1 + z * z / count
    # The share itself bounds both ends: rounding must not push it out of its own interval.
    return Interval(min(share, max(0.0, (centre - half) / scale)), max(share, min(1.0, (centre + half) / scale)))


def clopper_pearson(share: float, count: float, level: float) -> Interval:
    """Clopper and Pearson's interval of a share: it never holds the truth less often than it says."""
    hits, tail, beta = share * count, (1 - level) / 2, _special().betaincinv
    low = float(beta(hits, count - hits + 1, tail)) if hits > 0 else 0.0
    high = float(beta(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return Interval(low, high)


def share_of(wins: Sequence[int], episodes: Sequence[int]) -> Share:
    """The share over all episodes, given the wins and the episodes of each game, clustered by game."""
    games, total = len(episodes), sum(episodes)
    if total == 0:
        return Share(0.0, Interval(0.0, 1.0), games, 0, 0.0)
    value = sum(wins) / total
    effective = _effective(wins, episodes, value, total)
    return Share(value, wilson(value * effective, effective), games, total, effective)


def share_from(value: float, games: int, episodes: int, effective: float, level: float) -> Share:
    """A share of which only the value is known, with the independent episodes that it is worth."""
    value = min(1.0, max(0.0, value))  # a damaged file may say anything
    return Share(value, wilson(value * effective, effective, normal_quantile(level)), games, episodes, effective)


def effective_of_steps(shares: Sequence[float], groups: int, size: int) -> float:
    """Independent episodes that a step of `groups` × `size` episodes is worth, from the step-to-step differences of its
    share: never fewer than the groups, nor more than the episodes.

    Half the mean square of the differences is the variance of a step's share, whatever the design effect. Few
    differences may agree by chance, so the variance is taken at the upper end of its 80 % interval; n differences of
    neighbours are worth 2n/3 degrees of freedom.
    """
    count, mean = len(shares) - 1, math.fsum(shares) / max(1, len(shares))
    if count < 5 or not 0.0 < mean < 1.0:
        return float(groups)
    freedom = max(1, round(2 * count / 3))
    variance = math.fsum((b - a) ** 2 for a, b in pairwise(shares)) / (2 * count)
    low = float(chi_square_quantiles(np.asarray([0.1]), freedom)[0])
    upper = variance * freedom / low
    most = float(groups * size)
    return min(most, max(float(groups), mean * (1 - mean) / upper)) if upper > 0 else most


def least_difference(share: float, first: float, second: float, level: float) -> float:
    """The smallest rise or fall of a share that would show between so many independent episodes and so many."""
    before = share_from(share, 0, 0, first, level)
    points = [distance / 100 for distance in range(1, 101)]
    for distance in points:
        others = [share + distance, share - distance]
        afters = [share_from(other, 0, 0, second, level) for other in others if 0 <= other <= 1]
        if any(difference_of(after, before).interval.sign for after in afters):
            return distance
    return 1.0


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
    return Difference(value, Interval(value - below, value + above).within(-1.0, 1.0))


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


def normal_quantile(level: float) -> float:
    """The z that holds `level` of the normal distribution between -z and z."""
    return _NORMAL if level == 0.95 else NormalDist().inv_cdf((1 + level) / 2)


# -- means over seeds


def student(value: float, error: float, freedom: float, level: float = 0.95) -> Interval:
    """Student's t interval around a value with this standard error."""
    half = student_quantile(level, freedom) * error
    return Interval(value - half, value + half)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The difference of two means over seeds, at least two on each side, with Welch's 95 % t interval.

    None where the seeds of neither side differ: then they do not tell how much seeds differ.
    """
    (mean_a, std_a), (mean_b, std_b) = mean_and_std(first), mean_and_std(second)
    value, a, b = mean_a - mean_b, (std_a or 0.0) ** 2 / len(first), (std_b or 0.0) ** 2 / len(second)
    if a + b == 0.0:
        return None
    freedom = (a + b) ** 2 / (a * a / (len(first) - 1) + b * b / (len(second) - 1))
    return Difference(value, student(value, math.sqrt(a + b), freedom))


def bootstrap(values: Sequence[float], t: float | None = None) -> Mean:
    """The mean over seeds with its 95 % interval. `values` has one number a seed, at least one. `t` stands in for
    Student's quantile where results have to stay as they were."""
    return _bootstraps([values], t)[0]


def _bootstraps(rows: Sequence[Sequence[float]], t: float | None = None) -> list[Mean]:
    """The same of many rows, all of the same length, whose resamples are drawn together."""
    count = len(rows[0])
    if count < 2:
        return [Mean(mean_and_std(row)[0], None, count) for row in rows]
    t = student_quantile(0.95, count - 1) if t is None else t
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * t)
    resamples, table = _resamples(count), np.asarray(rows, dtype=np.float64)
    found: list[Mean] = []
    at_once = max(1, _NUMBERS_AT_ONCE // resamples.size)
    for first in range(0, len(rows), at_once):
        means = np.take(table[first : first + at_once], resamples, axis=1).mean(axis=2)
        lows, highs = np.quantile(means, [tail, 1 - tail], axis=1).tolist()
        for row, low, high in zip(rows[first : first + at_once], lows, highs, strict=True):
            mean, std = mean_and_std(row)
            half = t * (std or 0.0) / math.sqrt(count)
            found.append(Mean(mean, Interval(min(low, mean - half), max(high, mean + half)), count))
    return found


@cache
def _resamples(count: int) -> NDArray[np.int64]:
    """Which seeds each resample has: always the same ones, so that equal numbers have equal intervals."""
    if count <= EXACT:
        return np.asarray(list(product(range(count), repeat=count)))
    return np.random.default_rng(_SEED).integers(0, count, (DRAWS, count))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Mean | None:
    """ours - theirs by seed, over the seeds that both have; None if there is none."""
    seeds = sorted(ours.keys() & theirs.keys())
    return bootstrap([ours[seed] - theirs[seed] for seed in seeds]) if seeds else None


@dataclass(frozen=True)
class Band:
    """A curve over seeds: at each step that all of them have, the mean and its interval."""

    steps: tuple[int, ...]
    points: tuple[Mean, ...]


def band(curves: Sequence[tuple[Sequence[int], Sequence[float]]]) -> Band:
    tables = [dict(zip(steps, values, strict=True)) for steps, values in curves]
    shared = sorted(set(tables[0]).intersection(*tables[1:])) if tables else []
    rows = [[table[step] for table in tables] for step in shared]
    return Band(tuple(shared), tuple(_bootstraps(rows)) if rows else ())


# -- distributions, from scipy, with types


def _special() -> Any:
    """scipy's functions, loaded when they are first needed: training does without them."""
    try:
        import scipy.special as special  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:  # an installation without its dependencies
        message = f"intervals are computed with the package scipy, which is not here ({error}): pip install scipy"
        raise ImportError(message) from error
    return special


@lru_cache(maxsize=1024)
def student_quantile(level: float, freedom: float) -> float:
    """The t that holds `level` of Student's distribution between -t and t."""
    return float(_special().stdtrit(freedom, (1 + level) / 2))


def normal_below(values: Vector) -> Vector:
    """The normal distribution function."""
    return np.asarray(_special().ndtr(values), np.float64)


def chi_square_quantiles(shares: Vector, freedom: int) -> Vector:
    return np.asarray(_special().chdtri(freedom, 1 - shares), np.float64)


def digamma(values: Vector) -> Vector:
    return np.asarray(_special().digamma(values), np.float64)


def trigamma(values: Vector) -> Vector:
    return np.asarray(_special().polygamma(1, values), np.float64)


def inverse_trigamma(value: float) -> float:
    """x with ψ'(x) = value, by Newton's method on 1/ψ' (Smyth 2004, appendix)."""
    if value > 1e7:
        return 1 / float(np.sqrt(value))
    if value < 1e-6:
        return 1 / value
    polygamma, x = _special().polygamma, 0.5 + 1 / value
    for _ in range(50):
        at = float(polygamma(1, x))
        step = at * (1 - at / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x
