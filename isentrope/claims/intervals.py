"""Intervals of a mean over seeds and of a share of runs, when they decide, and how many seeds would.

A bootstrap over three or five seeds is too narrow: it knows no value beyond those it has seen. Student's interval is
right for them if they are about normal. What is used is the hull of the two, so a verdict needs both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from isentrope.claims.record import Interval, Part, Verdict

MOST = 1000  # seeds; beyond that we say "more than"
DRAWS = 10_000
LARGE = 200  # degrees of freedom from which Student's t is the normal's, to 1 %


def mean_interval(values: Sequence[float], level: float) -> Interval | None:
    """Of the mean, from independent values; None for fewer than two."""
    if len(values) < 2:
        return None
    student, drawn = student_interval(values, level), bootstrap_interval(values, level)
    return Interval(min(student.low, drawn.low), max(student.high, drawn.high))


def student_interval(values: Sequence[float], level: float) -> Interval:
    mean, half = float(np.mean(values)), half_width(float(np.std(values, ddof=1)), len(values), level)
    return Interval(mean - half, mean + half)


def bootstrap_interval(values: Sequence[float], level: float) -> Interval:
    """Percentiles of the means of resamples; the same for any order of the values."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    picks = np.random.default_rng(0).integers(0, len(ordered), size=(DRAWS, len(ordered)))
    low, high = np.quantile(ordered[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def half_width(deviation: float, count: int, level: float) -> float:
    return t_quantile(count - 1, level) * deviation / math.sqrt(count)


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
