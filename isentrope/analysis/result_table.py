"""A table of results as the papers print them: its columns, rows and cells, and how they are written down.

Figures have one decimal, returns two. Several seeds: mean ± standard deviation over seeds. One: the 95 % interval
over its games. Below a row may stand what the papers print: the row of recipes/papers/rows.toml whose method has its
name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.measure import ordered_kinds
from isentrope.analysis.tables import Table, csv_text, latex, markdown, markdown_safe, one_line, spreadsheet_safe, text
from isentrope.core.errors import ConfigError

KIND = "kind/"  # in front of a type's name: a type may be called "all"
ALL, AVERAGE, BEST, CONVERGED, DIFFERENCE = "all", "avg", "succ_best", "succ", "difference"
PERCENT_MEANS = ("score", "valid_ratio")
MORE = ("return", "turns", "valid_ratio", "response_tokens")
TITLES = {  # in the order of the columns, behind the types
    ALL: "All", AVERAGE: "Avg.", "score": "Score", BEST: "Succ.*", CONVERGED: "Succ.", "return": "Return",
    "turns": "Turns", "valid_ratio": "Valid", "response_tokens": "Tokens", DIFFERENCE: "Difference",
}  # fmt: skip
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


def ordered_columns(rows: Sequence[TableRow]) -> tuple[str, ...]:
    used = {column for row in rows for column in row.cells}
    kinds = ordered_kinds({column.removeprefix(KIND) for column in used if column.startswith(KIND)})
    return (*(KIND + kind for kind in kinds), *(column for column in TITLES if column in used))


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
    rows: list[list[str]] = []
    for row in table.rows:
        figures = [figure(row.cells.get(column), column, intervals) for column in columns]
        rows.append([one_line(row.name), str(row.seeds or "-"), str(row.games or "-"), *figures])
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
    rows: list[list[object]] = []
    for split, row in ((table.split, row) for table in tables for row in table.rows):
        names = [spreadsheet_safe(one_line(name)) for name in (split, row.name)]
        cells = [row.cells.get(column) for column in used]
        values = [value for cell in cells for value in ((None,) * 4 if cell is None else astuple(cell))]
        numbers = ["" if value is None else f"{value:.4f}" for value in values]
        rows.append([*names, row.seeds or "", row.games or "", int(row.from_paper), *numbers])
    return csv_text([spreadsheet_safe(name) for name in ("split", "row", "seeds", "games", "from paper", *heads)], rows)


def _json(tables: Sequence[ResultTable]) -> str:
    return json.dumps([asdict(table) for table in tables], indent=1, allow_nan=False) + "\n"


_BLOCKS: dict[str, Callable[[ResultTable, Table], str]] = {"text": _text, "md": _markdown, "latex": _latex}
_WHOLE: dict[str, Callable[[Sequence[ResultTable]], str]] = {"csv": _csv, "json": _json}
FORMATS = (*_BLOCKS, *_WHOLE)


# -- what the papers print, beside ours


_COLUMNS = {"all": ALL, "succ": ALL, "avg": AVERAGE, "score": "score", "pick2": f"{KIND}two"}
_SEEN = ("seen", "valid_seen", "valid_in_distribution")
_UNSEEN = ("unseen", "valid_unseen", "valid_out_of_distribution")
_OF_A_SPLIT = {  # printed for one split only
    "iid_best": (_SEEN, BEST), "iid": (_SEEN, CONVERGED), "ood_best": (_UNSEEN, BEST), "ood": (_UNSEEN, CONVERGED),
}  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """One row of a paper's table."""

    paper: str
    table: str
    task: str
    model: str
    method: str
    figures: Mapping[str, float]


def read_printed(path: Path, **wanted: str | None) -> list[Printed]:
    """The rows with figures, of the paper, task and model that are wanted; a part of the model's name is enough."""
    try:
        rows = cast("list[dict[str, Any]]", tomllib.loads(path.read_text(encoding="utf-8"))["row"])
        found = [_printed(row) for row in rows if row.get("published")]
    except OSError as error:
        raise ConfigError(f"could not read {path}: {error.strerror or error}; give the papers' rows.toml") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not a list of papers' rows ({error}); give the papers' rows.toml") from error
    for name, value in wanted.items():
        if value is None:
            continue
        kept = [row for row in found if value.casefold() in str(getattr(row, name)).casefold()]
        if not kept:
            known = ", ".join(sorted({str(getattr(row, name)) for row in found}))
            raise ConfigError(f"{path} has no row with {name} {value!r}; it has {known}")
        found = kept
    return found


def _printed(row: dict[str, Any]) -> Printed:
    names = ("paper", "table", "task", "model", "method")
    figures = {str(key): float(value) for key, value in cast("dict[str, Any]", row["published"]).items()}
    return Printed(**{name: str(row[name]) for name in names}, figures=figures)


def with_papers(table: ResultTable, printed: Sequence[Printed]) -> ResultTable:
    """The table with the paper's row below each row whose name is that of a method in the paper."""
    rows: list[TableRow] = []
    for row in table.rows:
        rows.append(row)
        found = [one for one in printed if one.method.casefold() == row.name.casefold()]
        if len(found) > 1:
            choices = "; ".join(f"{one.paper}, {one.task}, {one.model}" for one in found[:8])
            told = f"{len(found)} rows of the papers are called {row.name!r} ({choices})"
            raise ConfigError(f"{told}; choose with --paper, --paper-task and --paper-model")
        for one in found:
            cells = _cells(one.figures, table.split)
            title = f"{row.name} in {one.paper}, {one.table}: {one.task}, {one.model.rpartition('/')[2]}"
            rows += [TableRow(title, 0, 0, cells, from_paper=True)] if cells else []
    return replace(table, rows=tuple(rows), columns=ordered_columns(rows))


def _cells(figures: Mapping[str, float], split: str) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for key, value in figures.items():
        if key.endswith("_std"):
            continue
        splits, column = _OF_A_SPLIT.get(key, ((split,), _COLUMNS.get(key, KIND + key)))
        if split in splits:
            cells[column] = Cell(value, figures.get(f"{key}_std"))
    return cells
