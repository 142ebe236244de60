"""Comparisons that several papers make."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from isentrope.claims.measures import converged_success
from isentrope.claims.record import Measure, Part, Select

SUCCESS = Measure(
    converged_success,
    "success after convergence: mean of the evaluations in the last fifth of the steps, over all splits played",
    ("eval/{split}/success",),
)
FLOOR, CEILING = 0.05, 0.95  # a control outside of these leaves no room to see a method in
WORTH = 0.02  # the smallest gain in success that we would call one
NO_WORSE = -0.03  # a loss in success up to this is none


def room(successes: Sequence[float]) -> str | None:
    """A world that is solved, or never solved, without the method cannot tell what the method does."""
    level = fmean(successes)
    if FLOOR <= level <= CEILING:
        return None
    return f"the runs compared with are at success {level:.2f}: no room outside of {FLOOR:g} to {CEILING:g}"


def better(
    name: str, runs: Select, *against: Select, least: float = WORTH, border: float = 0.0, counts: bool = True
) -> Part:
    """`runs` end with more success than the first of `against` that there is."""
    return Part(name, runs, SUCCESS, border, least, against, counts=counts, unit="success", ground=room)
