"""How likely a rule is to decide, computed from the rule alone: printed before the runs are made.

A part compares two arms of n runs each, or looks at n runs. Its number differs from run to run by the spread that its
measure expects; runs are taken as two samples, without what cells have in common, in one setting. What is computed is
the chance that the part holds if the effect is real, and that it does not hold if there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from isentrope.claims.record import Claim, Part
from isentrope.core.stats import Vector, chi_square_quantiles, normal_below, student_quantile

SEEDS = (3, 5, 8, 12, 20)
WANTED = 0.8  # the power that a study should have
MOST = 200  # seeds; beyond that we say "more than"
_POINTS = 400  # of the distribution of the estimated spread that are looked at


@dataclass(frozen=True)
class Power:
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
    return Power(
        _chance_above(true, error, freedom, border, claim.confidence, least),
        _chance_below(none, error, freedom, least, strict),
    )


def seeds_for(part: Part, claim: Claim, spread: float) -> int | None:
    """Runs an arm from which the expected effect is found as often as `WANTED`; None: more than `MOST`, or unknown."""
    for runs in range(3, MOST + 1):
        found = power(part, claim, runs, spread)
        if found is None:
            return None
        if found.found >= WANTED:
            return runs
    return None


def _chance_above(true: float, error: float, freedom: int, border: float, level: float, least: float) -> float:
    """That the lower end of the interval is above the border, and the mean at least `least`."""
    reach = _estimated(freedom) * error * student_quantile(level, freedom)
    return float(np.mean(normal_below((true - np.maximum(border + reach, least)) / error)))


def _chance_below(true: float, error: float, freedom: int, least: float, level: float) -> float:
    """That the upper end of the interval is below `least`."""
    reach = _estimated(freedom) * error * student_quantile(level, freedom)
    return float(np.mean(normal_below((least - reach - true) / error)))


@cache
def _estimated(freedom: int) -> Vector:
    """The spread that a study estimates over the true one: `_POINTS` equally likely values."""
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    return np.sqrt(chi_square_quantiles(shares, freedom) / freedom)
