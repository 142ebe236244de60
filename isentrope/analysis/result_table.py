"""A table of results as the papers print them: its columns, rows and cells, and how they are written down.

Figures have one decimal, returns two. Several seeds: mean ± standard deviation over seeds. One: the 95 % interval
over its games.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from isentrope.analysis.measure import ordered_kinds
from isentrope.analysis.tables import Table, csv_text, latex, markdown, markdown_safe, one_line, spreadsheet_safe, text

KIND = "kind/"  # in front of a type's name: a type may be called "all"
ALL, AVERAGE, BEST, CONVERGED, DIFFERENCE = "all", "avg", "succ_best", "succ", "difference"
PERCENT_MEANS = ("score", "valid_ratio")
MORE = ("return", "turns", "valid_ratio", "response_tokens")
TITLES = {
    ALL: "All",
    AVERAGE: "Avg.",
    "score": "Score",
    BEST: "Succ.*",
    CONVERGED: "Succ.",
    "return": "Return",
    "turns": "Turns",
    "valid_ratio": "Valid",
    "response_tokens": "Tokens",
    DIFFERENCE: "Difference",
}
_WITH_INTERVAL = (ALL, DIFFERENCE)


@dataclass(frozen=True)
class Cell:
    """A figure in the unit it is shown in: percent, except for return, turns and tokens."""

    value: float
    std: float | None = None  # over seeds
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TableRow:
    name: str
    seeds: int
    games: int  # 0: not known
    cells: dict[str, Cell]
    from_paper: bool = False


@dataclass(frozen=True)
class ResultTable:
    split: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]


def ordered_columns(used: set[str]) -> tuple[str, ...]:
    kinds = ordered_kinds({column.removeprefix(KIND) for column in used if column.startswith(KIND)})
    order = [*(KIND + kind for kind in kinds), ALL, AVERAGE, "score", BEST, CONVERGED, *MORE, DIFFERENCE]
    return tuple(column for column in order if column in used)


def title_of(column: str) -> str:
    return one_line(column.removeprefix(KIND)) if column.startswith(KIND) else TITLES[column]


def figure(cell: Cell | None, column: str, intervals: bool) -> str:
    if cell is None:
        return "-"
    places = 2 if column == "return" else 1
    value = round(cell.value, places) + 0.0  # a zero has no sign
    shown = f"{value:+.1f}" if column == DIFFERENCE else f"{value:.{places}f}"
    if cell.std is not None:
        return f"{shown} ± {cell.std:.{places}f}"
    if cell.low is not None and cell.high is not None and (intervals or column in _WITH_INTERVAL):
        return f"{shown} [{cell.low:.1f}, {cell.high:.1f}]"
    return shown


def lines_of(table: ResultTable, columns: Sequence[str], intervals: bool = False, first: str = "row") -> Table:
    """The table as text; `first` is the head of the rows' names."""
    head = [first, "seeds", "games", *(title_of(column) for column in columns)]
    rows = [
        [
            one_line(row.name),
            str(row.seeds or "-"),
            str(row.games or "-"),
            *(figure(row.cells.get(column), column, intervals) for column in columns),
        ]
        for row in table.rows
    ]
    return Table(head, rows)


def render(tables: Sequence[ResultTable], form: str, intervals: bool = False) -> str:
    """`intervals`: show them for the types too, where there is room."""
    if form in _WHOLE:
        return _WHOLE[form](tables)
    return "\n\n".join(_BLOCKS[form](table, lines_of(table, table.columns, intervals)) for table in tables) + "\n"


def _text(table: ResultTable, lines: Table) -> str:
    notes = [one_line(note) for note in table.notes]
    return "\n".join([one_line(table.split), "", text(lines), *([""] if notes else []), *notes])


def _markdown(table: ResultTable, lines: Table) -> str:
    notes = [f"- {markdown_safe(one_line(note))}" for note in table.notes]
    title = f"**{markdown_safe(one_line(table.split))}**, success in percent"
    return "\n".join([title, "", markdown(lines), *([""] if notes else []), *notes])


def _latex(table: ResultTable, lines: Table) -> str:
    """The notes as comments."""
    return "\n".join([*(f"% {one_line(note)}" for note in (table.split, *table.notes)), latex(lines)])


def _csv(tables: Sequence[ResultTable]) -> str:
    """A line for each split and row; each figure with its deviation and interval in columns of their own."""
    used = list(dict.fromkeys(column for table in tables for column in table.columns))
    heads = [f"{title_of(column)}{part}" for column in used for part in ("", " std", " low", " high")]
    rows = [
        [
            *(spreadsheet_safe(one_line(name)) for name in (table.split, row.name)),
            *(row.seeds or "", row.games or "", int(row.from_paper)),
            *(_number(value) for column in used for value in _values(row, column)),
        ]
        for table in tables
        for row in table.rows
    ]
    return csv_text([spreadsheet_safe(name) for name in ("split", "row", "seeds", "games", "from paper", *heads)], rows)


def _values(row: TableRow, column: str) -> tuple[float | None, ...]:
    cell = row.cells.get(column)
    return (None,) * 4 if cell is None else (cell.value, cell.std, cell.low, cell.high)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _json(tables: Sequence[ResultTable]) -> str:
    return json.dumps([asdict(table) for table in tables], indent=1, allow_nan=False) + "\n"


_BLOCKS: dict[str, Callable[[ResultTable, Table], str]] = {"text": _text, "md": _markdown, "latex": _latex}
_WHOLE: dict[str, Callable[[Sequence[ResultTable]], str]] = {"csv": _csv, "json": _json}
FORMATS = (*_BLOCKS, *_WHOLE)
