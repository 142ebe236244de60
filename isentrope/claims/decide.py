"""From an effect and its intervals to a verdict, in words, and how many seeds would decide."""

from __future__ import annotations

import math

from isentrope.claims.inference import TWO_SAMPLES, Estimate
from isentrope.claims.record import Part, Verdict
from isentrope.core.stats import Interval, clopper_pearson

MOST = 1000  # seeds; beyond that we say "more than"
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
    for count in range(seeds + 1, MOST + 1):
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
