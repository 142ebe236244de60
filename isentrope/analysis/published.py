"""Published figures of the papers beside ours: rows of recipes/papers/rows.toml whose method has the name of a row."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.result_table import (
    ALL,
    AVERAGE,
    BEST,
    CONVERGED,
    KIND,
    Cell,
    ResultTable,
    TableRow,
    ordered_columns,
)
from isentrope.core.errors import ConfigError

_COLUMNS = {"all": ALL, "succ": ALL, "avg": AVERAGE, "score": "score", "pick2": f"{KIND}two"}
_SEEN, _UNSEEN = (
    ("seen", "valid_seen", "valid_in_distribution"),
    ("unseen", "valid_unseen", "valid_out_of_distribution"),
)
_OF_A_SPLIT = {  # printed for one split only
    "iid_best": (_SEEN, BEST),
    "iid": (_SEEN, CONVERGED),
    "ood_best": (_UNSEEN, BEST),
    "ood": (_UNSEEN, CONVERGED),
}


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
            raise ConfigError(
                f"{len(found)} rows of the papers are called {row.name!r} ({choices}); "
                "choose with --paper, --paper-task and --paper-model"
            )
        for one in found:
            cells = _cells(one.figures, table.split)
            title = f"{row.name} in {one.paper}, {one.table}: {one.task}, {one.model.rpartition('/')[2]}"
            rows += [TableRow(title, 0, 0, cells, from_paper=True)] if cells else []
    used = {column for row in rows for column in row.cells}
    return replace(table, rows=tuple(rows), columns=ordered_columns(used))


def _cells(figures: Mapping[str, float], split: str) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for key, value in figures.items():
        if key.endswith("_std"):
            continue
        splits, column = _OF_A_SPLIT.get(key, ((split,), _COLUMNS.get(key, KIND + key)))
        if split in splits:
            cells[column] = Cell(value, figures.get(f"{key}_std"))
    return cells
