"""An effect over runs with its standard error and its degrees of freedom: what the second edition's verdicts rest on.

Spread. How much the runs of a cell differ is known badly from three to five of them. So the variance of each cell is
drawn towards that of all cells of the setting (Smyth 2004, the moderated t of limma): s² = (d₀ s₀² + d s²) / (d₀ + d).
d₀ and s₀² are fitted by moments to the cells' log variances. We trust it one way only: a small variance is raised, a
large one stays as it is, and what is borrowed is worth at most `BORROWED` degrees of freedom, since cells do differ.

Seeds. Runs of one seed share what the seed decides, so they are averaged: a baseline and what equals it by definition,
or two algorithms in one arm. What is counted are seeds.

Pairing. Seeds are compared with each other if that gains something: if over the other cells of the setting, at least
`TELLING` degrees of freedom of them, the variance of paired differences is under `GAIN` of what independent runs would
have. Else the arms are two samples (Welch). The choice does not look at the cell that is judged.

More sources. Evaluation games are the same for all runs, so seeds say nothing about other games: the effect on each
kind of game tells how much it depends on games (two-way clustering: the variance over kinds beyond what chance between
runs gives). Runs that begin from several warm-ups vary with them too: the variance between starts is added, beyond
chance. Degrees of freedom are Satterthwaite's over all of these, and where starts add something at most one less than
there are starts: a few of them tell badly how much they differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

import numpy as np

from isentrope.core.stats import Interval, Vector, digamma, inverse_trigamma, student, student_quantile, trigamma

TWO_SAMPLES = "two samples of seeds"
GAIN = 0.6  # of the unpaired variance; above it pairing is not worth the degrees of freedom
TELLING = 12  # degrees of freedom of paired differences in other cells that can tell whether pairing gains
FEWEST_CELLS = 3  # cells from which a common spread can be told
BORROWED = 6.0  # degrees of freedom that other cells lend at most
EXPECTED = 2.0  # degrees of freedom that a measure's expected spread is worth where cells cannot tell
_SMALLEST = 1e-5  # of the median variance: a smaller one counts as this

Unit = tuple[str, int, str]


@dataclass(frozen=True)
class Part:
    """A part of a squared standard error."""

    variance: float = 0.0
    freedom: float = 1.0
    caps: bool = False  # whether the whole has no more degrees of freedom than this part


@dataclass(frozen=True)
class Sample:
    """A number of a run. `unit` is what pairs: algorithm, seed, and the weights it began from."""

    value: float
    unit: Unit
    kinds: Mapping[str, tuple[float, float]] | None = None  # success and number of games, by kind of game


Arm = Sequence[Sample]


@dataclass(frozen=True)
class Prior:
    """The spread that cells have in common, and how many degrees of freedom it is worth."""

    variance: float = 0.0
    freedom: float = 0.0

    def moderated(self, own: float, freedom: float) -> tuple[float, float]:
        """The variance of a cell, raised towards the common one if it is below, and its degrees of freedom."""
        total = self.freedom + freedom
        if total <= 0:
            return own, 1.0
        return max(own, (self.freedom * self.variance + freedom * own) / total), total


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
        return student(self.value, self.error, self.freedom, level)


def fit_prior(cells: Sequence[tuple[float, int]], expected: float = 0.0, most: float = BORROWED) -> Prior:
    """From the variances of cells and their degrees of freedom, by the moments of log s². Where they are too few, or do
    not vary at all, the `expected` spread of the measure stands in."""
    known = [(own, freedom) for own, freedom in cells if freedom >= 1]
    middle = float(np.median([own for own, _ in known])) if known else 0.0
    if len(known) < FEWEST_CELLS or middle <= 0:
        return Prior(expected**2, min(EXPECTED, most)) if expected > 0 else Prior()
    own = np.maximum([own for own, _ in known], _SMALLEST * middle)
    half = np.asarray([freedom for _, freedom in known], np.float64) / 2
    logs = np.log(own) - digamma(half) + np.log(half)
    beyond = float(np.var(logs, ddof=1) - np.mean(trigamma(half)))
    if beyond <= 0:
        return Prior(math.exp(float(np.mean(logs))), most)
    freedom = 2 * inverse_trigamma(beyond)
    level = float(np.mean(logs) + digamma(np.asarray(freedom / 2))) - math.log(freedom / 2)
    return Prior(math.exp(level), min(freedom, most))


def one_arm(runs: Arm, cells: Sequence[Arm], expected: float = 0.0) -> Estimate:
    """The mean over seeds, at least two of them."""
    seeds = by_seed(runs)
    values = [value for value, _ in seeds.values()]
    prior = fit_prior([spread(cell) for cell in cells], expected)
    own, freedom = prior.moderated(variance(values), len(values) - 1)
    parts = [Part(own / len(values), freedom), between_starts(list(seeds.values()))]
    return combined(fmean(values), parts, "")


def two_arms(treated: Arm, control: Arm, cells: Sequence[Arm], expected: float = 0.0) -> Estimate:
    """The difference of the means. `cells` are the others of the setting that have the number, without both arms."""
    games = over_games(treated, control)
    both = shared(treated, control)
    several = len({start for _, _, start in both}) > 1  # a pair begins from one start
    if len(both) >= 2 and (several or pairing_gain(control, cells) < GAIN):
        return _paired(treated, control, cells, games, expected)
    prior = fit_prior([spread(arm) for arm in (treated, control, *cells)], expected)
    arms = [list(by_unit(arm).values()) for arm in (treated, control)]
    moderated = [prior.moderated(_variance(values), len(values) - 1) for values in arms]
    parts = [Part(own / len(values), freedom) for (own, freedom), values in zip(moderated, arms, strict=True)]
    lent = prior.freedom  # both arms borrow the same: it counts once
    most = lent + math.fsum(len(values) - 1 for values in arms)
    starts = [between_starts([(value, unit[2]) for unit, value in by_unit(arm).items()]) for arm in (treated, control)]
    found = combined(fmean(arms[0]) - fmean(arms[1]), [*parts, games, *starts], TWO_SAMPLES)
    return replace(found, freedom=min(found.freedom, most))


def _paired(treated: Arm, control: Arm, cells: Sequence[Arm], games: Part, expected: float) -> Estimate:
    pairs = differences(treated, control)
    values = list(pairs.values())
    others = [list(differences(cell, control).values()) for cell in cells]
    lent = min(BORROWED, len(values) - 1.0)  # the others' differences share the control, so they tell less
    prior = fit_prior([(variance(found), len(found) - 1) for found in others if len(found) > 1], expected, lent)
    own, freedom = prior.moderated(variance(values), len(values) - 1)
    starts = between_starts([(value, start) for (_, _, start), value in pairs.items()])
    return combined(fmean(values), [Part(own / len(values), freedom), games, starts], "paired by seed")


def combined(value: float, parts: Sequence[Part], how: str) -> Estimate:
    """With Satterthwaite's degrees of freedom. More seeds lower the first part; of two samples the first two."""
    total = math.fsum(part.variance for part in parts)
    spent = math.fsum(part.variance**2 / part.freedom for part in parts if part.variance > 0)
    freedom = total * total / spent if spent > 0 else max(part.freedom for part in parts)
    freedom = min([freedom, *(part.freedom for part in parts if part.caps and part.variance > 0)])
    seeds = 2 if how == TWO_SAMPLES else 1
    return Estimate(value, math.sqrt(total), freedom, how, math.fsum(part.variance for part in parts[seeds:]))


def pairing_gain(control: Arm, cells: Sequence[Arm]) -> float:
    """The variance of paired differences over that of independent runs, over cells that are not judged; 1 where these
    are too few to tell."""
    paired = apart = 0.0
    telling = 0
    for cell in cells:
        both = shared(cell, control)
        if len(both) < 2:
            continue
        ours, theirs = ([arm[unit] for unit in both] for arm in (by_unit(cell), by_unit(control)))
        paired += (len(both) - 1) * variance([a - b for a, b in zip(ours, theirs, strict=True)])
        apart += (len(both) - 1) * (variance(ours) + variance(theirs))
        telling += len(both) - 1
    return paired / apart if apart > 0 and telling >= TELLING else 1.0


def by_unit(runs: Arm) -> dict[Unit, float]:
    """Runs of one algorithm, seed and start are averaged: a baseline and what equals it by definition."""
    found: dict[Unit, list[float]] = {}
    for run in runs:
        found.setdefault(run.unit, []).append(run.value)
    return {unit: fmean(values) for unit, values in found.items()}


def by_seed(runs: Arm) -> dict[tuple[int, str], tuple[float, str]]:
    """The mean over all runs of a seed and start, and that start."""
    found: dict[tuple[int, str], list[float]] = {}
    for (_, seed, start), value in by_unit(runs).items():
        found.setdefault((seed, start), []).append(value)
    return {key: (fmean(values), key[1]) for key, values in found.items()}


def shared(ours: Arm, theirs: Arm) -> list[Unit]:
    return sorted({run.unit for run in ours} & {run.unit for run in theirs})


def differences(ours: Arm, theirs: Arm) -> dict[Unit, float]:
    a, b = by_unit(ours), by_unit(theirs)
    return {unit: a[unit] - b[unit] for unit in shared(ours, theirs)}


def spread(runs: Arm) -> tuple[float, int]:
    """The variance over the seeds of a cell, and its degrees of freedom."""
    values = list(by_unit(runs).values())
    return _variance(values), len(values) - 1


def _variance(values: Sequence[float]) -> float:
    return variance(values) if len(values) > 1 else 0.0


def over_games(treated: Arm, control: Arm) -> Part:
    """The variance of the effect that comes from which games were played: what the effects on kinds of games differ by,
    less what chance between runs makes them differ by."""
    known = [set(run.kinds or {}) for run in (*treated, *control)]
    kinds = sorted(set[str].intersection(*known))  # those that every run was evaluated on
    if len(kinds) < 2 or min(len(treated), len(control)) < 2:
        return Part()
    counts = np.asarray([fmean((run.kinds or {})[kind][1] for run in control) for kind in kinds])
    weights = counts / counts.sum()
    ours, theirs = (_by_kind(arm, kinds, weights) for arm in (treated, control))
    squares = (ours.mean(0) - theirs.mean(0)) ** 2
    chance = ours.var(0, ddof=1) / len(ours) + theirs.var(0, ddof=1) / len(theirs)
    found = float((weights**2 * (squares - chance)).sum()) * len(kinds) / (len(kinds) - 1)
    return Part(max(0.0, found), len(kinds) - 1)


def _by_kind(arm: Arm, kinds: Sequence[str], weights: Vector) -> Vector:
    """Each run's success by kind, less its success over all."""
    table = np.asarray([[(run.kinds or {})[kind][0] for kind in kinds] for run in arm], np.float64)
    return table - (table @ weights)[:, None]


def between_starts(runs: Sequence[tuple[float, str]]) -> Part:
    """The variance of a mean that comes from which warm-ups its runs began from; 0 where all began from one."""
    groups: dict[str, list[float]] = {}
    for value, start in runs:
        groups.setdefault(start, []).append(value)
    many = [values for values in groups.values() if len(values) > 1]
    count = len(runs)
    if len(groups) < 2 or not many:
        return Part()
    mean = fmean(value for values in groups.values() for value in values)
    within = math.fsum((len(values) - 1) * variance(values) for values in many) / (count - len(groups))
    between = math.fsum(len(values) * (fmean(values) - mean) ** 2 for values in groups.values()) / (len(groups) - 1)
    size = (count - math.fsum(len(values) ** 2 for values in groups.values()) / count) / (len(groups) - 1)
    return Part(max(0.0, (between - within) / size) / len(groups), len(groups) - 1, caps=True)
