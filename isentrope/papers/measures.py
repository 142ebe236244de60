"""Numbers of one run that claims compare. Each is None where the run did not measure what it takes.

A window is given in shares of the run's steps: over(run, key, 0.8, 1) is the last fifth, its first step included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, median

from isentrope.analysis.success import NOT_TRAINING_BY_CLAIMS, Window, converged_over_splits, seconds_of
from isentrope.diagnosis.phases import Rise, find_phases
from isentrope.runs.curves import Curve
from isentrope.study.measures import variance
from isentrope.study.read import StudyRun

CONVERGED = 0.2  # Succ. is taken over this share of the steps, at the end


def curve_of(run: StudyRun, key: str) -> Curve:
    steps, values = run.series(key)
    return Curve(tuple(steps), tuple(values))


def window(run: StudyRun, key: str, begin: float, end: float) -> tuple[float, ...]:
    """The values from a share of the steps to another, both steps included."""
    first, last = begin * run.steps - 1e-9, end * run.steps + 1e-9
    return curve_of(run, key).between(math.ceil(first), math.floor(last)).values


def over(run: StudyRun, key: str, begin: float = 0.0, end: float = 1.0) -> float | None:
    """The mean of a metric over a part of the run."""
    return mean(window(run, key, begin, end))


def converged_success(run: StudyRun) -> float | None:
    """Succ.: mean success of the evaluations in the last fifth of the steps, then over the splits."""
    return converged_over_splits([run.series(key) for key in splits_of(run)], run.steps, Window(CONVERGED))


def after_start(run: StudyRun, key: str, least: float) -> float | None:
    """The mean of all values after the first step, if there are at least so many."""
    values = curve_of(run, key).between(2, run.steps).values
    return fmean(values) if len(values) >= least else None


def positive_share(run: StudyRun, key: str, least: float) -> float | None:
    """The share of the values after the first step that are above 0."""
    values = curve_of(run, key).between(2, run.steps).values
    return fmean(value > 0 for value in values) if len(values) >= least else None


def log_deviation(run: StudyRun, key: str, begin: float) -> float | None:
    """Logarithm of a metric's standard deviation over the steps from a share of them on."""
    found = variance(window(run, key, begin, 1.0))
    return None if found is None or found <= 0 else math.log(found) / 2


def change(run: StudyRun, key: str, first: float, end: float, last: float, relative: str = "yes") -> float | None:
    """Mean of the `last` numbers up to a step less that of the `first` ones; relative: over the latter."""
    found = curve_of(run, key)
    start = mean(found.between(1, int(first)).values)
    after = mean(found.between(int(end - last) + 1, int(end)).values)
    if start is None or after is None:
        return None
    if relative == "no":
        return after - start
    return (after - start) / start if start > 0 else None


def early_change(run: StudyRun, key: str, share: float, relative: str, most: float = math.inf) -> float | None:
    """Change over the first part of the run, at most so many steps: its last five against the run's first three."""
    return change(run, key, 3, _opening(run, share, most), 5, relative)


def _opening(run: StudyRun, share: float, most: float) -> float:
    return min(most, max(8, math.floor(share * run.steps)))


def seconds_per_token(run: StudyRun) -> float | None:
    """Median over the steps of what a token took in the update."""
    values = [1 / value for value in curve_of(run, "tokens_per_second/update").values if value > 0]
    return median(values) if values else None


def share_of_time(run: StudyRun, key: str) -> float | None:
    """Seconds of a stage over all seconds of the steps that tell it; looking and keeping are left out."""
    spent = whole = 0.0
    for row in run.timings:
        if row.get("kind") == "eval" or key not in row:
            continue
        spent += float(row[key])
        whole += seconds_of(row, NOT_TRAINING_BY_CLAIMS)
    return spent / whole if whole > 0 else None


def mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def log_mean(run: StudyRun, key: str, begin: float, end: float) -> float | None:
    """Logarithm of the mean of a metric over a part of the run."""
    found = over(run, key, begin, end)
    return math.log(found) if found is not None and found > 0 else None


def log_change(run: StudyRun, key: str, first: float, end: float, last: float) -> float | None:
    """Logarithm of the mean of the `last` numbers up to a step over that of the `first` ones."""
    relative = change(run, key, first, end, last)
    return math.log1p(relative) if relative is not None and relative > -1 else None


def early_log_change(run: StudyRun, key: str, share: float, most: float) -> float | None:
    """As `early_change`, of logarithms."""
    return log_change(run, key, 3, _opening(run, share, most), 5)


def log_seconds_per_token(run: StudyRun) -> float | None:
    found = seconds_per_token(run)
    return None if found is None else math.log(found)


def first_values(run: StudyRun, key: str, count: float) -> float | None:
    """The mean of a metric over the first steps."""
    return mean(curve_of(run, key).between(1, int(count)).values)


def success_between(run: StudyRun, begin: float, end: float) -> float | None:
    """Mean success of the evaluations from a share of the steps to another, both included, then over the splits."""
    means = [mean(window(run, key, begin, end)) for key in splits_of(run)]
    return fmean(value for value in means if value is not None) if means and None not in means else None


def splits_of(run: StudyRun) -> list[str]:
    """The keys of the success on each split that was played."""
    keys = {key for row in run.evals for key in row}
    return sorted(key for key in keys if key.startswith("eval/") and key.endswith("/success") and key.count("/") == 2)


def rise(run: StudyRun, key: str, begin: float, end: float) -> float | None:
    """How much a metric rises over a part of the run: its last fifth against its first."""
    fifth = (end - begin) / 5
    last, first = over(run, key, end - fifth, end), over(run, key, begin, begin + fifth)
    return None if last is None or first is None else last - first


def rise_while_measured(run: StudyRun, key: str) -> float | None:
    """How much a metric rises in the last fifth of the steps, by the slope of a line through the last two fifths."""
    first = (1 - 2 * CONVERGED) * run.steps - 1e-9
    found = curve_of(run, key).between(math.ceil(first), run.steps)
    if len(found.values) < 3:
        return None
    steps, level = fmean(found.steps), fmean(found.values)
    spread = math.fsum((step - steps) ** 2 for step in found.steps)
    slope = math.fsum((s - steps) * (v - level) for s, v in zip(found.steps, found.values, strict=True)) / spread
    return slope * CONVERGED * run.steps


def success_by_kind(run: StudyRun) -> dict[str, tuple[float, float]]:
    """Succ. and number of games by split and kind of game; empty where a kind was not played in each evaluation."""
    rows = [row for row in run.evals if row["step"] > 0 and row["step"] >= Window(CONVERGED).start(run.steps)]
    keys = sorted({key for row in rows for key in row if key.startswith("eval/") and "/success/" in key})
    told: dict[str, tuple[float, float]] = {}
    for key in keys:
        games = key.replace("/success/", "/games/")
        if all(key in row and games in row for row in rows):
            told[key] = fmean(float(row[key]) for row in rows), fmean(float(row[games]) for row in rows)
    return told


# -- eruptions, as `isentrope/diagnosis/phases.py` finds them in entropy/token


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


def erupts_repeatedly(run: StudyRun) -> float | None:
    """1 if at least two eruptions came down again, else 0."""
    if not run.series("entropy/token")[0]:
        return None
    return float(sum(rise.over is not None and not rise.settled for rise in eruptions(run)) >= REPEATED)


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
    found, rises = curve_of(run, key), list[float]()
    for rise in eruptions(run):
        before = found.between(rise.onset - BEFORE, rise.onset - 1).values
        peak = found.between(rise.peak - AROUND, rise.peak + AROUND).values
        rises += [fmean(peak) - fmean(before)] if peak and before else []
    return mean(rises)


def what_stays(run: StudyRun, key: str) -> float | None:
    """How much higher a metric is after an eruption has come back than before it, mean over the eruptions."""
    found, stayed = curve_of(run, key), list[float]()
    for rise in eruptions(run):
        before = found.between(rise.onset - BEFORE, rise.onset - 1).values
        after = found.between(rise.back, rise.back + AFTER - 1).values if rise.back is not None else ()
        stayed += [fmean(after) - fmean(before)] if after and before else []
    return mean(stayed)


def gap_before(run: StudyRun, negative: str, positive: str) -> float | None:
    """(negative - positive) over their sizes, at the last probe before an onset, mean over the eruptions."""
    found, probes = list[float](), _gap(run, negative, positive)
    for rise in eruptions(run):
        found += probes.between(rise.onset - NEAR, rise.onset - 1).values[-1:]
    return mean(found)


def gap_change(run: StudyRun, negative: str, positive: str) -> float | None:
    """The same, less its value at the first probe after the eruption has come back."""
    found, probes = list[float](), _gap(run, negative, positive)
    for rise in eruptions(run):
        before = probes.between(rise.onset - NEAR, rise.onset - 1).values
        after = probes.between(rise.back, rise.back + NEAR - 1).values if rise.back is not None else ()
        found += [before[-1] - after[0]] if before and after else []
    return mean(found)


def _gap(run: StudyRun, negative: str, positive: str) -> Curve:
    below, above = (dict(zip(*run.series(key), strict=True)) for key in (negative, positive))
    both = [step for step in below if step in above and abs(below[step]) + abs(above[step]) > 0]
    values = [(below[step] - above[step]) / (abs(below[step]) + abs(above[step])) for step in both]
    return Curve(tuple(both), tuple(values))
