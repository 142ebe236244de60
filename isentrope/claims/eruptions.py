"""Numbers of a run that are about its eruptions, as `isentrope/diagnosis/phases.py` finds them in entropy/token."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from isentrope.claims.measures import curve_of, mean
from isentrope.diagnosis.phases import find_phases
from isentrope.diagnosis.rise_detector import Rise
from isentrope.runs.curves import Curve
from isentrope.study.read import StudyRun

BEFORE = 5  # steps before an onset that tell the level there
AROUND = 1  # steps on each side of a peak
AFTER = 10  # steps after it has come back
NEAR = 15  # a probe within so many steps before an onset, or after the way back, is one of that time
START = 5  # steps that tell the entropy a run began with
REPEATED = 2  # eruptions that came down again: from so many on they are repeated


def eruptions(run: StudyRun) -> tuple[Rise, ...]:
    return _rises(*run.series("entropy/token"))


@lru_cache(maxsize=2048)
def _rises(steps: tuple[int, ...], values: tuple[float, ...]) -> tuple[Rise, ...]:
    """Many numbers are about the eruptions of one run, and finding them takes a third of a second."""
    return tuple(find_phases(steps, values).eruptions)


def erupted(run: StudyRun) -> str | None:
    """Why a run has nothing to say of eruptions; None if it has."""
    return None if eruptions(run) else "entropy never erupted"


def fell_again(rise: Rise) -> bool:
    return rise.over is not None and not rise.settled


def erupts_repeatedly(run: StudyRun) -> float | None:
    """1 if at least two eruptions came down again, else 0."""
    if not run.series("entropy/token")[0]:
        return None
    return float(sum(fell_again(rise) for rise in eruptions(run)) >= REPEATED)


def largest_amplitude(run: StudyRun) -> float | None:
    """Of the run's eruptions, over the entropy of its first steps; 0 without an eruption."""
    start = mean(curve_of(run, "entropy/token").values[:START])
    if start is None or start <= 0:
        return None
    return max((rise.amplitude for rise in eruptions(run)), default=0.0) / start


def erupts(run: StudyRun) -> float | None:
    """1 if there was an eruption, else 0."""
    return float(bool(eruptions(run))) if run.series("entropy/token")[0] else None


def log_height(run: StudyRun) -> float | None:
    """Logarithm of how many times the entropy of the first steps the largest eruption adds, plus 1; 0 without one."""
    found = largest_amplitude(run)
    return None if found is None else math.log1p(found)


def into_the_peak(run: StudyRun, key: str) -> float | None:
    """How much a metric rises from the steps before an onset to the peak, mean over the eruptions."""
    found = curve_of(run, key)
    return _over_eruptions(run, lambda rise: _difference(_at_peak(found, rise), _before(found, rise)))


def what_stays(run: StudyRun, key: str) -> float | None:
    """How much higher a metric is after an eruption has come back than before it, mean over the eruptions."""
    found = curve_of(run, key)
    return _over_eruptions(run, lambda rise: _difference(_after(found, rise), _before(found, rise)))


def gap_before(run: StudyRun, negative: str, positive: str) -> float | None:
    """(negative - positive) over their sizes, at the last probe before an onset, mean over the eruptions."""
    probes = _gap(run, negative, positive)
    return _over_eruptions(run, lambda rise: _probe_before(probes, rise))


def gap_change(run: StudyRun, negative: str, positive: str) -> float | None:
    """The same, less its value at the first probe after the eruption has come back."""
    probes = _gap(run, negative, positive)
    return _over_eruptions(run, lambda rise: _difference(_probe_before(probes, rise), _probe_after(probes, rise)))


def _over_eruptions(run: StudyRun, number: Callable[[Rise], float | None]) -> float | None:
    return mean([value for rise in eruptions(run) if (value := number(rise)) is not None])


def _before(found: Curve, rise: Rise) -> float | None:
    return mean(found.between(rise.onset - BEFORE, rise.onset - 1).values)


def _at_peak(found: Curve, rise: Rise) -> float | None:
    return mean(found.between(rise.peak - AROUND, rise.peak + AROUND).values)


def _after(found: Curve, rise: Rise) -> float | None:
    return None if rise.back is None else mean(found.between(rise.back, rise.back + AFTER - 1).values)


def _gap(run: StudyRun, negative: str, positive: str) -> Curve:
    below, above = (dict(zip(*run.series(key), strict=True)) for key in (negative, positive))
    both = [step for step in below if step in above and abs(below[step]) + abs(above[step]) > 0]
    values = [(below[step] - above[step]) / (abs(below[step]) + abs(above[step])) for step in both]
    return Curve(tuple(both), tuple(values))


def _probe_before(probes: Curve, rise: Rise) -> float | None:
    near = probes.between(rise.onset - NEAR, rise.onset - 1)
    return near.values[-1] if near.values else None


def _probe_after(probes: Curve, rise: Rise) -> float | None:
    near = Curve((), ()) if rise.back is None else probes.between(rise.back, rise.back + NEAR - 1)
    return near.values[0] if near.values else None


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
