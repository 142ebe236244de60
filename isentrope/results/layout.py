"""What a table is made of: columns, rows and cells, before anybody writes them down."""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.results.measure import ordered_kinds

KIND = "kind/"  # in front of a type's name: a type may be called "all"
ALL, AVERAGE, BEST, CONVERGED, DIFFERENCE = "all", "avg", "succ_best", "succ", "difference"
PERCENT_MEANS = ("score", "valid_ratio")
MORE = ("return", "turns", "valid_ratio", "response_tokens")


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
