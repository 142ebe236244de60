"""The tables of a study: a row for each cell with a finished run, means over its seeds with intervals, and each cell
against the one that it is compared with, paired by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isentrope.core.stats import Mean, bootstrap, median_of, paired
from isentrope.metrics.temperature import entropy_temperature, footnotes
from isentrope.study.cells import Cell
from isentrope.study.grid import TITLE, Grid, make_grid
from isentrope.study.measures import MEASURES, Measure, measured
from isentrope.study.read import DONE, FAILED, StudyData

TITLES = {
    "results": "Success", "grid": TITLE, "entropy": "Entropy and eruptions", "degeneracy": "Degeneracy", "cost": "Cost",
}  # fmt: skip
# Seeds for an interval. One over two seeds is thirteen times as wide as they lie apart, and says nothing.
LEAST_SEEDS = 3
_MOST_REASON = 160


@dataclass(frozen=True)
class Over:
    """A number over seeds: its mean, an interval where there are enough seeds for one, and what each seed has."""

    value: float
    by_seed: Mapping[int, float]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Counted:
    """A number that some seeds never come to: the median, None where half of them do not."""

    value: float | None
    by_seed: Mapping[int, float | None]  # None: never

    @property
    def reached(self) -> int:
        return sum(value is not None for value in self.by_seed.values())


Figure = Over | Counted | None


@dataclass(frozen=True)
class Row:
    cell: str
    tags: Mapping[str, str]
    seeds: int  # that are done
    planned: int
    figures: tuple[Figure, ...]  # one for each measure of the table
    against: str = ""  # of a difference: the cell that it is a difference to
    note: str = ""  # on its figures; a row with one is marked


@dataclass(frozen=True)
class StudyTable:
    key: str
    title: str
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    differences: bool = False
    names: tuple[str, ...] = ("cell", "seeds")  # of the columns before the figures


def make_tables(data: StudyData) -> list[StudyTable]:
    """Each table, followed by the differences that belong to it. Only runs that are done count; a cell without one has
    no row."""
    values: dict[str, Values] = {cell.name: {} for cell in data.study.cells}
    for run in data.runs:
        if run.status == DONE:
            values[run.cell][run.seed] = measured(run, data.study.plan)
    cells = [cell for cell in data.study.cells if values[cell.name]]
    pairs = [cell for cell in cells if cell.against and values[cell.name].keys() & values[cell.against].keys()]
    made: list[StudyTable] = []
    grid = make_grid(data)
    for key, title in TITLES.items():
        if key == "grid":
            made += [_grid_table(grid, data)] if grid else []
            continue
        measures, heat = MEASURES[key], entropy_notes(data) if key == "entropy" else dict[str, str]()
        rows = [_row(cell, measures, values[cell.name], heat) for cell in cells]
        compared = tuple(measure for measure in measures if not measure.counted)
        differences = [_difference(cell, compared, values, heat) for cell in pairs]
        if rows:
            made.append(StudyTable(key, title, measures, tuple(rows)))
        if any(figure for row in differences for figure in row.figures):
            told = f"{title}: difference to the cell it is compared with, by seed"
            made.append(StudyTable(key, told, compared, tuple(differences), True, ("cell", "against", "seeds")))
    return made


def entropy_notes(data: StudyData) -> dict[str, str]:
    """Cells whose entropy was measured at another temperature than 1, and what has to be said of it."""
    found: dict[str, str] = {}
    for run in data.runs:
        note = entropy_temperature(run.config, run.train) if run.status == DONE and run.cell not in found else None
        found |= {run.cell: note} if note else {}
    return found


def _grid_table(grid: Grid, data: StudyData) -> StudyTable:
    """A column for each baseline, and one over all of them: there the interval is over baselines."""
    columns = tuple(
        Measure(name, name, f"difference in Succ. to {name}", lambda run, plan: None, 1, 100)
        for name in (*grid.baselines, "over all")
    )  # a difference between cells: no run has it by itself
    planned = {cell.name: len(cell.seeds) for cell in data.study.cells}
    rows: list[Row] = []
    for change in grid.changes:
        entries = change.entries
        pairs = sum(len(entry.by_seed) for entry in entries.values())
        by_seed = [entries[name].by_seed if name in entries else None for name in grid.baselines]
        figures = [_over(one, bootstrap(list(one.values()))) if one else None for one in by_seed]
        means = {number: entry.mean for number, entry in enumerate(entries.values())}
        over_all = Over(change.overall.value, means, change.overall.low, change.overall.high)
        wanted = sum(planned[entry.cell] for entry in entries.values())
        rows.append(Row(change.name, {}, pairs, wanted, (*figures, over_all)))
    title = f"{TITLE}: difference in Succ. by seed; over all: over baselines"
    return StudyTable("grid", title, columns, tuple(rows), True, ("change", "pairs"))


Values = dict[int, dict[str, float]]  # of a cell: seed -> measure -> value


def _row(cell: Cell, measures: Sequence[Measure], values: Values, notes: Mapping[str, str]) -> Row:
    figures: list[Figure] = []
    for measure in measures:
        every, known = {seed: found.get(measure.key) for seed, found in values.items()}, _column(values, measure.key)
        if measure.counted:
            figures.append(Counted(median_of(list(every.values())), every))
        else:
            figures.append(_over(known, bootstrap(list(known.values())), (0.0, measure.most)) if known else None)
    note = f"{cell.name}: {notes[cell.name]}" if cell.name in notes else ""
    return Row(cell.name, cell.tags, len(values), len(cell.seeds), tuple(figures), note=note)


def _over(by_seed: Mapping[int, float], found: Mean, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Over:
    """`bounds`: ends that a value cannot have say nothing; a share lies between 0 and 1."""
    if len(by_seed) < LEAST_SEEDS or found.interval is None:
        return Over(found.value, by_seed)
    ends = found.interval.within(*bounds)
    return Over(found.value, by_seed, ends.low, ends.high)


def _difference(cell: Cell, measures: Sequence[Measure], values: Mapping[str, Values], notes: Mapping[str, str]) -> Row:
    ours, theirs, figures = values[cell.name], values[cell.against], list[Figure]()
    for measure in measures:
        us, them = _column(ours, measure.key), _column(theirs, measure.key)
        found = paired(us, them)
        by_seed = {seed: value - them[seed] for seed, value in us.items() if seed in them}
        figures.append(_over(by_seed, found) if found else None)
    # marked for both of its cells
    note = "; ".join(f"{name}: {notes[name]}" for name in (cell.name, cell.against) if name in notes)
    seeds = len(ours.keys() & theirs.keys())
    return Row(cell.name, cell.tags, seeds, len(cell.seeds), tuple(figures), cell.against, note)


def _column(values: Values, key: str) -> dict[int, float]:
    return {seed: found[key] for seed, found in values.items() if key in found}


def state(data: StudyData) -> str:
    """How much of the study there is, in one line."""
    cells, runs = data.study.cells, len(data.runs)
    done = [run for run in data.runs if run.status == DONE]
    failed = sum(run.status == FAILED for run in data.runs)
    empty = len(cells) - len({run.cell for run in done})
    told = f"{len(done)} of {_count(runs, 'run')} {'is' if runs == 1 else 'are'} done, "
    told += f"in {len(cells) - empty} of {_count(len(cells), 'cell')}"
    left = runs - len(done) - failed
    told += f"; {left} not made yet" if left else ""
    told += f"; {failed} failed" if failed else ""
    return f"{told}." + (f" {_count(empty, 'cell')} without a finished run: not in the tables." if empty else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def notes(data: StudyData) -> list[str]:
    """What a reader of the tables has to know, beside the state."""
    plan = data.study.plan
    told = [
        f"Success is on {plan.split} games. Succ.* is a run's best evaluation after step 0, Succ. the mean of those in "
        f"the last {100 * plan.converged:g} % of its steps; both are means over seeds.",
        f"In square brackets: 95 % interval over seeds, from {LEAST_SEEDS} seeds up; by bootstrap, never narrower than "
        "Student's. Two seeds: both values, in round brackets, instead of an interval. One seed: its value.",
        "Differences are paired by seed. With fewer than three seeds they may be luck, whatever their size.",
        f"Steps to and tokens to: success {100 * plan.threshold:g} % at an evaluation; median over seeds, and how many "
        "seeds got there.",
        "Seconds were measured with other runs beside; to compare costs, run cells alone (--side-by-side 1).",
    ]
    told += footnotes(entropy_notes(data))
    for cell in data.study.cells:  # whose runs are longer or shorter than those that they are compared with
        lengths = [sorted({run.steps for run in data.cell(name, DONE)} - {0}) for name in (cell.name, cell.against)]
        if all(lengths) and lengths[0] != lengths[1]:
            ours, theirs = (" or ".join(str(steps) for steps in several) for several in lengths)
            told.append(f"{cell.name} is compared with runs of another length: {ours} steps, {cell.against} {theirs}.")
    failed = [run for run in data.runs if run.status == FAILED]
    return told + [f"{run.name} failed: {run.reason[:_MOST_REASON]}" for run in failed]
