"""An effect over runs with its standard error and its degrees of freedom: what the second edition's verdicts rest on.

Spread. How much the runs of a cell differ is known badly from three to five of them. So the variance of each cell is
drawn towards that of all cells of the setting (Smyth 2004, the moderated t of limma): s² = (d₀ s₀² + d s²) / (d₀ + d),
with d₀ + d degrees of freedom. d₀ and s₀² are fitted by moments to the cells' log variances; the more alike these are,
the larger is d₀.

Pairing. Runs of one seed are compared with each other if that gains something: if over all cells of the setting the
variance of the paired differences is under `GAIN` of what independent runs would have. Else the runs of both arms are
two samples (Welch), and every run counts. The choice looks at all cells, not at the effect.

More sources. Evaluation games are the same for all runs, so seeds say nothing about other games: the effect on each
kind of game tells how much it depends on games (two-way clustering: the variance over kinds beyond what chance between
runs gives). Runs that begin from several warm-ups vary with them too: the variance between starts is added, beyond
chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

from isentrope.claims.distributions import Vector, digamma, inverse_trigamma, student_quantile, trigamma
from isentrope.claims.record import Interval

GAIN = 0.8  # of the unpaired variance; above it pairing is not worth the degrees of freedom
FEWEST_CELLS = 3  # cells from which a common spread can be told
_SMALLEST = 1e-5  # of the median variance: a smaller one counts as this


@dataclass(frozen=True)
class Sample:
    """The numbers of an arm, by run. `unit` is what pairs: algorithm and seed; `start` the weights it began from."""

    value: float
    unit: tuple[str, int]
    start: str = ""
    kinds: Mapping[str, tuple[float, float]] | None = None  # success and number of games, by kind of game


@dataclass(frozen=True)
class Prior:
    """The spread that cells have in common, and how many degrees of freedom it is worth."""

    variance: float = 0.0
    freedom: float = 0.0
    most: float = math.inf  # degrees of freedom that all cells have together

    def moderated(self, own: float, freedom: float) -> tuple[float, float]:
        """The variance of a cell drawn towards the common one, and its degrees of freedom."""
        if math.isinf(self.freedom):
            return self.variance, max(self.most, freedom)
        total = self.freedom + freedom
        return (self.freedom * self.variance + freedom * own) / total, min(total, max(self.most, freedom))


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float
    freedom: float
    how: str
    fixed: float = 0.0  # the part of the squared error that more seeds do not lower

    def reach(self, level: float) -> float:
        """Half of the interval's width."""
        return student_quantile(level, self.freedom) * self.error

    def interval(self, level: float) -> Interval:
        half = self.reach(level)
        return Interval(self.value - half, self.value + half)


def fit_prior(cells: Sequence[tuple[float, int]]) -> Prior:
    """From the variances of cells and their degrees of freedom, by the moments of log s²."""
    known = [(own, freedom) for own, freedom in cells if freedom >= 1]
    middle = float(np.median([own for own, _ in known])) if known else 0.0
    if len(known) < FEWEST_CELLS or middle <= 0:
        return Prior()
    own = np.maximum([own for own, _ in known], _SMALLEST * middle)
    half = np.asarray([freedom for _, freedom in known], np.float64) / 2
    logs = np.log(own) - digamma(half) + np.log(half)
    beyond = float(np.var(logs, ddof=1) - np.mean(trigamma(half)))
    most = float(2 * half.sum())
    if beyond <= 0:
        return Prior(math.exp(float(np.mean(logs))), math.inf, most)
    freedom = 2 * inverse_trigamma(beyond)
    level = float(np.mean(logs) + digamma(np.asarray(freedom / 2))) - math.log(freedom / 2)
    return Prior(math.exp(level), freedom, most)


def one_arm(runs: Sequence[Sample], cells: Sequence[Sequence[Sample]]) -> Estimate:
    """The mean over runs, at least two of them."""
    prior = fit_prior([_spread(cell) for cell in cells if len(cell) > 1])
    own, freedom = prior.moderated(*_spread(runs))
    starts = between_starts([(run.value, run.start) for run in runs])
    return _estimate(fmean(run.value for run in runs), own / len(runs), freedom, starts, "")


def two_arms(treated: Sequence[Sample], control: Sequence[Sample], cells: Sequence[Sequence[Sample]]) -> Estimate:
    """The difference of the means. `cells` are all others of the setting that have the number, without the controls."""
    games = over_games(treated, control)
    several = len({run.start for run in (*treated, *control)}) > 1  # a pair begins from one start
    if len(shared(treated, control)) >= 2 and (several or pairing_gain(control, cells) < GAIN):
        return _paired(treated, control, cells, games)
    prior = fit_prior([_spread(cell) for cell in (control, *cells) if len(cell) > 1])
    sides = [(*prior.moderated(*_spread(arm)), len(arm)) for arm in (treated, control)]
    parts = [own / count for own, _, count in sides]
    seeds = math.fsum(parts)
    spent = math.fsum(part * part / freedom for part, (_, freedom, _) in zip(parts, sides, strict=True))
    freedom = seeds * seeds / spent if spent > 0 else math.fsum(freedom for _, freedom, _ in sides)
    value = fmean(run.value for run in treated) - fmean(run.value for run in control)
    return _estimate(value, seeds, freedom, games, "two samples of runs")


def _paired(
    treated: Sequence[Sample], control: Sequence[Sample], cells: Sequence[Sequence[Sample]], games: float
) -> Estimate:
    pairs = differences(treated, control)
    others = [list(differences(cell, control).values()) for cell in cells]
    prior = fit_prior([(variance(found), len(found) - 1) for found in others if len(found) > 1])
    values = list(pairs.values())
    own, freedom = prior.moderated(variance(values), len(values) - 1)
    begun = {run.unit: run.start for run in treated}
    starts = between_starts([(value, begun[unit]) for unit, value in pairs.items()])
    return _estimate(fmean(values), own / len(values), freedom, games + starts, "paired by seed")


def _estimate(value: float, seeds: float, freedom: float, fixed: float, how: str) -> Estimate:
    return Estimate(value, math.sqrt(seeds + fixed), freedom, how, fixed)


def pairing_gain(control: Sequence[Sample], cells: Sequence[Sequence[Sample]]) -> float:
    """The variance of paired differences over that of independent runs, over all cells; 1 where none can tell."""
    paired = apart = 0.0
    for cell in cells:
        both = shared(cell, control)
        if len(both) < 2:
            continue
        ours, theirs = ([arm[unit] for unit in both] for arm in (by_unit(cell), by_unit(control)))
        paired += (len(both) - 1) * variance([a - b for a, b in zip(ours, theirs, strict=True)])
        apart += (len(both) - 1) * (variance(ours) + variance(theirs))
    return paired / apart if apart > 0 else 1.0


def by_unit(runs: Sequence[Sample]) -> dict[tuple[str, int], float]:
    """Runs of one algorithm and seed (a baseline and what equals it by definition) are averaged."""
    found: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        found.setdefault(run.unit, []).append(run.value)
    return {unit: fmean(values) for unit, values in found.items()}


def shared(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[tuple[str, int]]:
    return sorted({run.unit for run in ours} & {run.unit for run in theirs})


def differences(ours: Sequence[Sample], theirs: Sequence[Sample]) -> dict[tuple[str, int], float]:
    a, b = by_unit(ours), by_unit(theirs)
    return {unit: a[unit] - b[unit] for unit in shared(ours, theirs)}


def _spread(runs: Sequence[Sample]) -> tuple[float, int]:
    return (variance([run.value for run in runs]), len(runs) - 1) if len(runs) > 1 else (0.0, 0)


def over_games(treated: Sequence[Sample], control: Sequence[Sample]) -> float:
    """The variance of the effect that comes from which games were played: what the effects on kinds of games differ by,
    less what chance between runs makes them differ by."""
    kinds = _common_kinds((*treated, *control))
    if len(kinds) < 2 or min(len(treated), len(control)) < 2:
        return 0.0
    counts = np.asarray([fmean((run.kinds or {})[kind][1] for run in control) for kind in kinds])
    weights = counts / counts.sum()
    ours, theirs = (_by_kind(arm, kinds, weights) for arm in (treated, control))
    squares = (ours.mean(0) - theirs.mean(0)) ** 2 * len(kinds) / (len(kinds) - 1)
    chance = ours.var(0, ddof=1) / len(ours) + theirs.var(0, ddof=1) / len(theirs)
    return max(0.0, float((weights**2 * (squares - chance)).sum()))


def _common_kinds(runs: Sequence[Sample]) -> list[str]:
    """The kinds of game that every run was evaluated on."""
    known = [set(run.kinds or {}) for run in runs]
    return sorted(kind for kind in known[0] if all(kind in one for one in known))


def _by_kind(arm: Sequence[Sample], kinds: Sequence[str], weights: Vector) -> Vector:
    """Each run's success by kind, less its success over all."""
    table = np.asarray([[(run.kinds or {})[kind][0] for kind in kinds] for run in arm], np.float64)
    return table - (table @ weights)[:, None]


def between_starts(runs: Sequence[tuple[float, str]]) -> float:
    """The variance of a mean that comes from which warm-ups its runs began from; 0 where all began from one."""
    groups: dict[str, list[float]] = {}
    for value, start in runs:
        groups.setdefault(start, []).append(value)
    many = [values for values in groups.values() if len(values) > 1]
    count = len(runs)
    if len(groups) < 2 or not many:
        return 0.0
    mean = fmean(value for values in groups.values() for value in values)
    within = math.fsum((len(values) - 1) * variance(values) for values in many) / (count - len(groups))
    between = math.fsum(len(values) * (fmean(values) - mean) ** 2 for values in groups.values()) / (len(groups) - 1)
    size = (count - math.fsum(len(values) ** 2 for values in groups.values()) / count) / (len(groups) - 1)
    return max(0.0, (between - within) / size) / len(groups)
