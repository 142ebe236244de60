"""Intervals of a mean over seeds and of a share of runs, when they decide, and how many seeds would.

The interval of a mean is that of studies (`isentrope/core/stats.py`): a bootstrap over seeds, never narrower than
Student's. A claim with several parts is refuted by one of them only at a stricter level (Bonferroni), since among many
parts one will look bad by chance; for it to hold, all parts must hold, so no correction is needed there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np

from isentrope.claims.record import Part, Verdict
from isentrope.core.stats import Interval, bootstrap

MOST = 1000  # seeds; beyond that we say "more than"
USUAL = 0.95
LARGE = 200  # degrees of freedom from which Student's t is the normal's, to 1 %


def mean_interval(values: Sequence[float], level: float) -> Interval:
    """Of the mean over seeds, at least two of them: at 95 % that of the study, at other levels Student's around it."""
    found = bootstrap(values, summed_quantile(len(values) - 1))
    assert found.low is not None
    assert found.high is not None
    half = half_width(float(np.std(values, ddof=1)), len(values), level)
    if level < USUAL:
        return Interval(found.value - half, found.value + half)
    return Interval(min(found.low, found.value - half), max(found.high, found.value + half))


def half_width(deviation: float, count: int, level: float) -> float:
    return t_quantile(count - 1, level) * deviation / math.sqrt(count)


@cache
def summed_quantile(freedom: int) -> float:
    """The t of 95 %, to ten digits, as the study's intervals had it then.

    With t = √ν·tan θ the density is proportional to cos^(ν-1) θ on 0 to π/2, which a plain sum integrates well.
    """
    angle = np.linspace(0.0, math.pi / 2, 200_001)
    area = np.cumsum(np.cos((angle[1:] + angle[:-1]) / 2) ** (freedom - 1))
    at = float(np.interp(0.95 * float(area[-1]), area, angle[1:]))
    return math.sqrt(freedom) * math.tan(at)


def t_quantile(freedom: int, level: float) -> float:
    """The t that holds `level` of Student's distribution between -t and t; the normal's from `LARGE` freedoms on.

    For whole degrees of freedom the share between them is a finite sum in θ = atan(t/√ν) (Abramowitz and Stegun
    26.7.3 and 26.7.4); it grows with θ, so halving finds it.
    """
    if freedom >= LARGE:
        return NormalDist().inv_cdf((1 + level) / 2)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _held(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _held(angle: float, freedom: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom == 1:
        return 2 * angle / math.pi
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def share_interval(share: float, count: float, level: float) -> Interval:
    """Wilson's interval of a share."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return Interval(max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def decide(part: Part, value: float, usual: Interval, strict: Interval) -> Verdict:
    """Holds: the usual interval is beyond the border and the value is at least the least that counts.

    Does not hold: the strict interval does not reach the least that counts. Else undecided.
    """
    value, border, least, low = _facing_up(part, value, usual)
    reach = strict.high if part.upwards else -strict.low
    if reach < least:
        return Verdict.fails
    return Verdict.holds if low > border and value >= least else Verdict.open


def _facing_up(part: Part, value: float, usual: Interval) -> tuple[float, float, float, float]:
    if part.upwards:
        return value, part.border, part.least, usual.low
    return -value, -part.border, -part.least, -usual.high


def seeds_needed(part: Part, value: float, deviation: float, level: float, strict: float) -> int | None:
    """Seeds that would decide if value and deviation stayed as they are; None: more than `MOST`."""
    sign = 1 if part.upwards else -1
    value, border, least = sign * value, sign * part.border, sign * part.least
    holds = value >= least
    for count in range(2, MOST + 1):
        if part.shares:
            around = share_interval(abs(value), count, level if holds else strict)
            reached = around.low > border if holds else around.high < least
        else:
            half = half_width(deviation, count, level if holds else strict)
            reached = half < (value - border if holds else least - value)
        if reached:
            return count
    return None
