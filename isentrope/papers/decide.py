"""Verdict of an effect with its intervals, the seeds that would decide, and the power of a rule before its runs.

Power is computed from the rule alone. A part compares two arms of n runs each, or looks at n runs. Its number differs
from run to run by the spread that its measure expects; runs are taken as two samples, without what cells have in
common, in one setting. The power is the chance that the part holds if the effect is real, and that it does not hold if
there is none.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from isentrope.core.stats import Interval, Vector, chi_square_quantiles, clopper_pearson, normal_below, student_quantile
from isentrope.papers.inference import TWO_SAMPLES, Estimate
from isentrope.papers.record import Claim, Part, Verdict

SEEDS = (3, 5, 8, 12, 20)
WANTED = 0.8  # the power that a study should have
SEEDS_TRIED = 200  # seeds; beyond that we say "more than"
_POINTS = 400  # of the distribution of the estimated spread that are looked at


class Power(NamedTuple):
    found: float  # chance to hold where the true effect is the expected one
    ruled_out: float  # chance not to hold where there is no effect; see `none` below


def power(part: Part, claim: Claim, runs: int, spread: float) -> Power | None:
    """With `runs` runs in each arm; None where the measure expects no spread, or the part is a share of runs."""
    if spread <= 0 or part.shares:
        return None
    sign = 1 if part.upwards else -1
    arms = 2 if part.against else 1
    freedom, error = arms * (runs - 1), spread * math.sqrt(arms / runs)
    border, least, true = sign * part.border, sign * part.least, sign * part.expect
    strict = 1 - (1 - claim.confidence) / max(1, claim.voices)
    none = 0.0 if border == 0 else 2 * border - true  # beyond a border other than 0, as far as the expected one
    width = _estimated(freedom) * error
    usual, wide = (width * student_quantile(level, freedom) for level in (claim.confidence, strict))
    # that the lower end is above the border and the mean at least `least`, and that the upper end is below `least`
    found = normal_below((true - np.maximum(border + usual, least)) / error)
    ruled_out = normal_below((least - wide - none) / error)
    return Power(float(np.mean(found)), float(np.mean(ruled_out)))


def seeds_for(part: Part, claim: Claim, spread: float) -> int | None:
    """Runs an arm from which the expected effect is found as often as `WANTED`; None: more than `MOST`, or unknown."""
    for runs in range(3, SEEDS_TRIED + 1):
        found = power(part, claim, runs, spread)
        if found is None:
            return None
        if found.found >= WANTED:
            return runs
    return None


@cache
def _estimated(freedom: int) -> Vector:
    """The spread that a study estimates over the true one: `_POINTS` equally likely values."""
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    return np.sqrt(chi_square_quantiles(shares, freedom) / freedom)


SEEDS_TOLD = 1000  # seeds; beyond that we say "more than"
FACTOR = "times "  # units that begin so are of logarithms, which are told as factors


def factor(value: float) -> str:
    """A logarithm as a factor: `× 1.13`."""
    return f"× {math.exp(value):.3g}" if abs(value) < 20 else f"× e^{value:.0f}"


def number(value: float, unit: str) -> str:
    """A border of a rule: `0.02`, or as a factor `× 1.05`."""
    return factor(value) if unit.startswith(FACTOR) else f"{value:g}"


def decide(part: Part, value: float, held: Interval, strict: Interval) -> Verdict:
    """Holds: `held` lies beyond the border and the value is at least the least that counts.

    Does not hold: `strict` does not reach the least that counts. Else undecided.
    """
    sign = 1 if part.upwards else -1
    low = held.low if part.upwards else -held.high
    reach = strict.high if part.upwards else -strict.low
    if reach < sign * part.least:
        return Verdict.fails
    return Verdict.holds if low > sign * part.border and sign * value >= sign * part.least else Verdict.open


def said(part: Part, verdict: Verdict, held: Interval, level: float, strict_level: float) -> str:
    beyond, reach, short = ("above", "at least", "below") if part.upwards else ("below", "at most", "above")
    border, least = number(part.border, part.unit), number(part.least, part.unit)
    if verdict == Verdict.holds:
        size = "" if part.border == part.least else f", the mean is {reach} {least}"
        return f"the {percent(level)} interval lies {beyond} {border}{size}"
    if verdict == Verdict.fails:
        return f"the {percent(strict_level)} interval lies {short} {least}"
    if held.low <= part.border <= held.high:
        return f"the {percent(level)} interval includes {border}"
    return f"it may be on either side of {least} ({percent(strict_level)} interval)"


def percent(level: float) -> str:
    """`95 %`, `98.3 %`, `99.72 %`: as many places as tell it from 100."""
    return f"{100 * level:.{0 if level <= 0.95 else 1 if level < 0.99 else 2}f} %"


def seeds_needed(part: Part, found: Estimate, seeds: int, level: float, strict: float) -> int | None:
    """Seeds an arm that would decide if value and spread stayed as they are; None: more than `MOST`."""
    sign = 1 if part.upwards else -1
    value, border, least = sign * found.value, sign * part.border, sign * part.least
    holds = value >= least
    distance = value - border if holds else least - value
    for count in range(seeds + 1, SEEDS_TOLD + 1):
        if part.shares:
            around = clopper_pearson(abs(value), count, level if holds else strict)
            reached = around.low > border if holds else around.high < least
        else:
            reached = _grown(found, seeds, count).reach(level if holds else strict) < distance
        if reached:
            return count
    return None


def _grown(found: Estimate, seeds: int, count: int) -> Estimate:
    """The same effect of `count` seeds an arm: what seeds add to the error shrinks, what games and starts add stays."""
    lowered = (found.error**2 - found.fixed) * seeds / count
    freedom = found.freedom + (2 if found.how == TWO_SAMPLES else 1) * (count - seeds)
    return Estimate(found.value, math.sqrt(max(0.0, lowered) + found.fixed), freedom, found.how, found.fixed)
