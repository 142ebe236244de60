"""Effect of each method on the success of each algorithm, and over all algorithms.

A change is what a cell's tags have and those of its baseline have not. Rows are changes, columns baselines, and each
entry is the difference in Succ. over pairs of seeds. Over all: the mean over baselines, each of which counts once
however many seeds it has, with an interval over baselines. That says how a change does on algorithms like these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isentrope.charts.grid import Row, Table
from isentrope.charts.text import signed
from isentrope.core.stats import Mean, bootstrap
from isentrope.study.cells import Cell
from isentrope.study.measures import converged_success
from isentrope.study.read import DONE, StudyData

TITLE = "The same change on several baselines"
PICTURE = "changes.svg"
NOTE = (
    "points of success (Succ.) against the baseline, small: pairs of seeds; over all: 95 % interval over baselines; "
    "framed or bold: the 95 % interval leaves zero out"
)
LEAST_PAIRS = 3  # for an interval over seeds
LEAST_BASELINES = 3  # for an interval over them


@dataclass(frozen=True)
class Entry:
    cell: str
    by_seed: Mapping[int, float]  # differences in Succ., a share

    @property
    def mean(self) -> float:
        return sum(self.by_seed.values()) / len(self.by_seed)

    @property
    def is_clear(self) -> bool:
        """Whether the interval over pairs leaves zero out."""
        return len(self.by_seed) >= LEAST_PAIRS and bool(bootstrap(list(self.by_seed.values())).sign)


@dataclass(frozen=True)
class Change:
    name: str
    entries: Mapping[str, Entry]  # by baseline

    @property
    def overall(self) -> Mean:
        """Over baselines; without ends where they are too few to tell how much they differ."""
        found = bootstrap([entry.mean for entry in self.entries.values()])
        return found if found.count >= LEAST_BASELINES else Mean(found.value, None, found.count)


@dataclass(frozen=True)
class Grid:
    baselines: tuple[str, ...]
    changes: tuple[Change, ...]


def make_grid(data: StudyData) -> Grid | None:
    """None where no change was tried on two baselines. A baseline on which fewer than half of the changes were tried is
    left out: over all, it would stand for a few of them only."""
    cells = {cell.name: cell for cell in data.study.cells}
    found: dict[str, dict[str, Entry]] = {}
    for cell in data.study.cells:
        pairs = differences(data, cell)
        if pairs:
            base = cells[cell.against].tags
            change = ", ".join(value for key, value in cell.tags.items() if base.get(key) != value) or cell.name
            taken = cell.against in found.get(change, {})  # by a cell that tags do not tell from this one
            found.setdefault(cell.name if taken else change, {})[cell.against] = Entry(cell.name, pairs)
    shared = _on_several(found)
    tried = {name: sum(name in entries for entries in shared.values()) for name in cells}
    kept = [name for name, count in tried.items() if count and 2 * count >= len(shared)]
    rows = _on_several(
        {change: {name: entries[name] for name in kept if name in entries} for change, entries in shared.items()}
    )
    places = {name: place for place, name in enumerate(cells)}
    ordered = sorted(rows, key=lambda change: min(places[entry.cell] for entry in rows[change].values()))
    return Grid(tuple(kept), tuple(Change(change, rows[change]) for change in ordered)) if rows else None


def _on_several(found: Mapping[str, Mapping[str, Entry]]) -> dict[str, Mapping[str, Entry]]:
    return {change: entries for change, entries in found.items() if len(entries) > 1}


def differences(data: StudyData, cell: Cell) -> dict[int, float]:
    """A cell's Succ. less that of its baseline, by seed. Runs of different lengths are not compared."""
    if not cell.against:
        return {}
    ours, theirs = _ends(data, cell.name), _ends(data, cell.against)
    pairs = {seed: (ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())}
    return {seed: us[1] - them[1] for seed, (us, them) in pairs.items() if us[0] == them[0]}


def _ends(data: StudyData, cell: str) -> dict[int, tuple[int, float]]:
    """By seed: the steps and Succ."""
    told = {run.seed: (run.steps, converged_success(run, data.study.plan)) for run in data.cell(cell, DONE)}
    return {seed: (steps, value) for seed, (steps, value) in told.items() if value is not None}


def as_table(grid: Grid) -> Table:
    """What the picture of it shows, in points."""
    rows: list[Row] = []
    for change in grid.changes:
        overall = change.overall
        told = signed(100 * overall.value)
        if overall.interval is not None:
            told += f" [{signed(100 * overall.interval.low)}, {signed(100 * overall.interval.high)}]"
        cells = {name: (100 * entry.mean, len(entry.by_seed)) for name, entry in change.entries.items()}
        clear = [name for name, entry in change.entries.items() if entry.is_clear]
        rows.append(Row(change.name, cells, told, bool(overall.sign), clear))
    return Table(TITLE, NOTE, grid.baselines, rows)
