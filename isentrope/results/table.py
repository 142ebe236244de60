"""Tables of results as the papers print them: one for each split, a row for each method, success by type of task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.core.errors import ConfigError, RunError
from isentrope.results.compare import compare
from isentrope.results.curve import Window, best, chosen, converged, last_step
from isentrope.results.layout import (
    ALL,
    AVERAGE,
    BEST,
    CONVERGED,
    DIFFERENCE,
    KIND,
    MORE,
    PERCENT_MEANS,
    Cell,
    ResultTable,
    TableRow,
    ordered_columns,
)  # fmt: skip
from isentrope.results.measure import SplitResult, ordered_kinds
from isentrope.results.notes import choice, lost
from isentrope.results.rows import Row, check_row, check_rows
from isentrope.results.source import Source
from isentrope.results.statistics import mean_and_std


@dataclass(frozen=True)
class Choices:
    splits: tuple[str, ...] = ()  # empty: every split of any row
    at: str = "last"
    window: Window = field(default_factory=Window)
    against: str | None = None
    mixed: bool = False
    more: bool = False


def make_tables(rows: Sequence[Row], choices: Choices) -> list[ResultTable]:
    names = [row.name for row in rows]
    if choices.against is not None and choices.against not in names:
        raise ConfigError(f"--against {choices.against!r}: no row is called so; there are {', '.join(names)}")
    common = [note for row in rows for note in check_row(row, choices.mixed)] + check_rows(rows)
    splits = choices.splits or _splits(rows)
    tables = [_table(rows, split, choices, common) for split in splits]
    for split, table in zip(splits, tables, strict=True):
        if not table.rows:
            raise RunError(f"no row was evaluated on the split {split!r}; there are {', '.join(_splits(rows))}")
    return tables


def _splits(rows: Sequence[Row]) -> tuple[str, ...]:
    """All splits, in the order in which evaluations name them."""
    return tuple(
        dict.fromkeys(
            split for row in rows for source in row.sources for one in source.evaluations for split in one.splits
        )
    )


def _table(rows: Sequence[Row], split: str, choices: Choices, common: Sequence[str]) -> ResultTable:
    notes, made = list(common), list[TableRow]()
    for row in rows:
        made_row = _row(row, split, choices, notes)
        if made_row is None:
            notes.append(f"{row.name} was not evaluated on {split}")
        else:
            made.append(made_row)
    if choices.against is not None and any(row.name == choices.against for row in made):
        present = [row for row in rows if any(one.name == row.name for one in made)]
        made = _with_differences(made, present, split, choices, notes)
    used = {column for row in made for column in row.cells}
    return ResultTable(split, ordered_columns(used), tuple(made), tuple(dict.fromkeys(notes)))


def shown_sources(row: Row) -> list[Source]:
    """Those whose success by type is shown: files of `isentrope eval` where there are any, else the runs."""
    return [source for source in row.sources if not source.is_run] or list(row.sources)


def curve_sources(row: Row) -> list[Source]:
    """Those whose checkpoints are compared: the runs where there are any, else files with several checkpoints."""
    runs = [source for source in row.sources if source.is_run]
    return runs or [source for source in row.sources if len(source.trained) > 1]


def _played(row: Row, split: str, at: str) -> list[Source]:
    return [source for source in shown_sources(row) if chosen(source, split, at) is not None]


def _row(row: Row, split: str, choices: Choices, notes: list[str]) -> TableRow | None:
    picked = [(source, chosen(source, split, choices.at)) for source in shown_sources(row)]
    missing = [source.path for source, one in picked if one is None]
    if len(missing) == len(picked):
        return None
    if missing and not choices.mixed:
        raise RunError(
            f"the row {row.name!r} mixes splits: {missing[0]} was not evaluated on {split!r}, others were; give them "
            "rows of their own, or allow it with --mixed"
        )
    notes += [f"{row.name}: {path} was not evaluated on {split} and is left out" for path in missing]
    picked = [(source, one) for source, one in picked if one is not None]
    results = [one.splits[split] for _, one in picked]
    games = {result.success.games for result in results}
    if len(games) > 1:
        counts = ", ".join(f"{source.path}: {r.success.games}" for (source, _), r in zip(picked, results, strict=True))
        if not choices.mixed:
            raise RunError(
                f"the row {row.name!r} mixes numbers of {split} games ({counts}); give them rows of their own, "
                "or allow it with --mixed"
            )
        notes.append(f"{row.name}: numbers of games differ ({counts})")
    notes += lost(row.name, split, results) + choice(row.name, picked)
    cells = _success_cells(results) | _curve_cells(row, split, choices.window, notes)
    if any(abs(r.means.get("score", r.success.value) - r.success.value) > 1e-9 for r in results) or choices.more:
        cells |= _mean_cells(results, ("score",))
    if choices.more:
        cells |= _mean_cells(results, MORE)
    return TableRow(row.name, len(results), min(games), cells)


def _success_cells(results: Sequence[SplitResult]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    kinds = set(results[0].kinds).intersection(*(result.kinds for result in results))
    for column, shares in (
        *((KIND + kind, [result.kinds[kind] for result in results]) for kind in ordered_kinds(kinds)),
        (ALL, [result.success for result in results]),
    ):
        cell = cell_of([100 * share.value for share in shares])
        if len(shares) == 1:  # an interval over games; over seeds it is the deviation that counts
            cell = Cell(cell.value, None, 100 * shares[0].low, 100 * shares[0].high)
        cells[column] = cell
    averages = [result.average for result in results]
    known = [100 * average for average in averages if average is not None]
    return cells | ({AVERAGE: cell_of(known)} if len(known) == len(results) else {})


def _curve_cells(row: Row, split: str, window: Window, notes: list[str]) -> dict[str, Cell]:
    sources = curve_sources(row)
    bests = [found for source in sources if (found := best(source, split)) is not None]
    late = [found for source in sources if (found := converged(source, split, window))]
    cells = {BEST: cell_of([100 * value for value in bests])} if bests else {}
    if late:
        cells[CONVERGED] = cell_of([100 * mean_and_std(values)[0] for values in late])
        counts = sorted({len(values) for values in late})
        often = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        notes.append(f"{row.name}: Succ. is the mean of the evaluations {window.words()}, {often} in each run")
    for source in sources:
        reached = max((one.step or 0 for one in source.evaluations), default=0)
        if reached < last_step(source):
            notes.append(f"{row.name}: {source.path} was evaluated up to step {reached} of {last_step(source)} only")
    seeds = max(len(sources), len(shown_sources(row)))
    if bests and len(bests) < seeds:
        notes.append(f"{row.name}: Succ.* is over {len(bests)} of {seeds} seeds; the others have no such evaluations")
    if bests and len(late) not in (0, len(sources)):
        notes.append(f"{row.name}: Succ. has {len(late)} of {len(sources)} runs; the others have not come so far")
    return cells


def _mean_cells(results: Sequence[SplitResult], names: Sequence[str]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for name in names:
        values = [result.means[name] for result in results if name in result.means]
        if len(values) == len(results):
            cells[name] = cell_of([(100 if name in PERCENT_MEANS else 1) * value for value in values])
    return cells


def cell_of(values: Sequence[float]) -> Cell:
    mean, std = mean_and_std(values)
    return Cell(mean, std)


def _with_differences(
    made: Sequence[TableRow], rows: Sequence[Row], split: str, choices: Choices, notes: list[str]
) -> list[TableRow]:
    """Each row with how far its success over all games lies above the one named by --against."""
    base = next(row for row in rows if row.name == choices.against)
    done: list[TableRow] = []
    for shown, row in zip(made, rows, strict=True):
        if row is base:
            done.append(shown)
            continue
        ours, theirs = (_played(one, split, choices.at) for one in (row, base))
        found, how = compare(ours, theirs, split, choices.at)
        cell = Cell(100 * found.value, None, 100 * found.low, 100 * found.high)
        done.append(TableRow(shown.name, shown.seeds, shown.games, shown.cells | {DIFFERENCE: cell}))
        notes.append(f"{row.name} against {base.name}: {how}")
    return done
