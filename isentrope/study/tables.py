"""The tables of a study: a row for each cell, means over its finished seeds with intervals, and each cell against the
one that it is compared with, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isentrope.study.cells import Cell
from isentrope.study.measure_list import MEASURES, Measure, measured
from isentrope.study.read import DONE, FAILED, StudyData
from isentrope.study.statistics import Interval, bootstrap, median_of, paired

TITLES = {
    "results": "Success",
    "entropy": "Entropy and eruptions",
    "degeneracy": "Degeneracy",
    "cost": "Cost",
}
_MOST_REASON = 160


@dataclass(frozen=True)
class Counted:
    """A number that some seeds never come to: the median, None where half of them do not."""

    value: float | None
    reached: int
    count: int


Figure = Interval | Counted | None


@dataclass(frozen=True)
class Row:
    cell: str
    tags: Mapping[str, str]
    seeds: int  # that are done
    planned: int
    figures: tuple[Figure, ...]  # one for each measure of the table
    against: str = ""  # of a difference: the cell that it is a difference to


@dataclass(frozen=True)
class StudyTable:
    key: str
    title: str
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    differences: bool = False


def make_tables(data: StudyData) -> list[StudyTable]:
    """Each table, followed by the differences that belong to it. Only runs that are done count."""
    values = by_cell(data)
    made: list[StudyTable] = []
    for key, title in TITLES.items():
        measures = tuple(measure for measure in MEASURES if measure.table == key)
        rows = tuple(_row(cell, measures, values[cell.name]) for cell in data.study.cells)
        made.append(StudyTable(key, title, measures, rows))
        compared = tuple(measure for measure in measures if not measure.counted)
        pairs = [(cell, values[cell.name], values[cell.against]) for cell in data.study.cells if cell.against]
        differences = tuple(_difference(cell, compared, ours, theirs) for cell, ours, theirs in pairs)
        if any(figure for row in differences for figure in row.figures):
            told = f"{title}: difference to the cell it is compared with, by seed"
            made.append(StudyTable(key, told, compared, differences, differences=True))
    return made


Values = dict[int, dict[str, float]]  # of a cell: seed -> measure -> value


def by_cell(data: StudyData) -> dict[str, Values]:
    plan = data.study.plan
    return {
        cell.name: {run.seed: measured(run, plan) for run in data.cell(cell.name, DONE)} for cell in data.study.cells
    }


def _row(cell: Cell, measures: Sequence[Measure], values: Values) -> Row:
    figures = tuple(_figure(measure, values) for measure in measures)
    return Row(cell.name, cell.tags, len(values), len(cell.seeds), figures)


def _figure(measure: Measure, values: Values) -> Figure:
    known = [found[measure.key] for found in values.values() if measure.key in found]
    if measure.counted:
        every = [found.get(measure.key) for found in values.values()]
        return Counted(median_of(every), len(known), len(every)) if every else None
    return _within(bootstrap(known), measure.most) if known else None


def _within(found: Interval, most: float) -> Interval:
    """Ends that a value cannot have say nothing: a share lies between 0 and 1."""
    if found.low is None or found.high is None:
        return found
    return Interval(found.value, max(0.0, found.low), min(most, found.high), found.count)


def _difference(cell: Cell, measures: Sequence[Measure], ours: Values, theirs: Values) -> Row:
    shared = ours.keys() & theirs.keys()
    figures = tuple(paired(_column(ours, measure.key), _column(theirs, measure.key)) for measure in measures)
    return Row(cell.name, cell.tags, len(shared), len(cell.seeds), figures, cell.against)


def _column(values: Values, key: str) -> dict[int, float]:
    return {seed: found[key] for seed, found in values.items() if key in found}


def notes(data: StudyData) -> list[str]:
    """What a reader of the tables has to know."""
    plan = data.study.plan
    told = [
        f"Success is on {plan.split} games. Succ.* is a run's best evaluation after step 0, Succ. the mean of those in "
        f"the last {100 * plan.converged:g} % of its steps; both are means over seeds.",
        "In brackets: 95 % interval over seeds, by bootstrap and never narrower than Student's; differences are paired "
        "by seed. One seed has no interval.",
        f"Steps to and tokens to: success {100 * plan.threshold:g} % at an evaluation; median over seeds, and how many "
        "seeds got there.",
        "Seconds were measured with other runs beside; to compare costs, run cells alone (--side-by-side 1).",
    ]
    states = {state: [run for run in data.runs if run.status == state] for state in (DONE, FAILED)}
    left = len(data.runs) - len(states[DONE]) - len(states[FAILED])
    told.append(f"{len(data.runs)} runs: {len(states[DONE])} done, {len(states[FAILED])} failed, {left} unfinished.")
    return told + [f"{run.name} failed: {run.reason[:_MOST_REASON]}" for run in states[FAILED]]
