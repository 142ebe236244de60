"""The numbers of a log by key instead of by record: 200 runs of 5,000 steps with 80 keys are 80 million numbers, which
so take little more memory than they must.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.runs.log import NOT_NUMBERS, Record, Tail

_LONGEST = 3e38  # numbers up to it fit into 4 bytes
_PLANS = 256  # sets of keys whose places are remembered


class _Index:
    """In which records some keys stand: their numbers and steps. Keys of the same records share one."""

    def __init__(self, rows: array[int], steps: array[int], keys: int) -> None:
        self.rows, self.steps, self.keys = rows, steps, keys

    def add(self, row: int, step: int) -> None:
        self.rows.append(row)
        self.steps.append(step)


@dataclass
class _Column:
    index: _Index
    values: array[float]


class Columns:
    """The numbers of a log by key. `rows` counts the records, so that a reader can ask for what came after one.

    With `short`, numbers take 4 bytes in place of 8, but for `exact` keys: as many digits as `between` gives, of which
    the last may be one off. Smaller ones than 1e-37 are 0 then.
    """

    def __init__(self, short: bool = False, exact: Iterable[str] = ()) -> None:
        self.rows = 0
        self.last_step = -1
        self._short, self._exact = short, set(exact)
        self._columns: dict[str, _Column] = {}
        self._plans: dict[tuple[str, ...], tuple[list[Callable[[float], None]], list[_Index]]] = {}  # by keys

    @property
    def keys(self) -> list[str]:
        return list(self._columns)

    def add(self, record: Record) -> None:
        step = int(record["step"])
        self.last_step = max(self.last_step, step)
        numbers = {
            key: value if type(value) is float else _number(value)
            for key, value in record.items()
            if type(value) is float or (isinstance(value, int | float | None) and not isinstance(value, bool))
        }
        for key in NOT_NUMBERS:
            numbers.pop(key, None)
        if self._short and any(map(_LONGEST.__lt__, map(abs, numbers.values()))):
            self._lengthen(numbers)
        keys = tuple(numbers)
        appends, indexes = self._plans.get(keys) or self._plan(keys)
        for append, value in zip(appends, numbers.values(), strict=True):
            append(value)
        for index in indexes:
            index.add(self.rows, step)
        self.rows += 1

    def _plan(self, keys: tuple[str, ...]) -> tuple[list[Callable[[float], None]], list[_Index]]:
        """Where the numbers of a record with these keys go. An index that it has only some keys of is divided."""
        columns = self._columns
        present = Counter(id(columns[key].index) for key in keys if key in columns)
        moved: dict[int, _Index] = {}
        fresh = _Index(array("q"), array("q"), 0)
        for key in keys:
            if key not in columns:
                short = self._short and key not in self._exact
                columns[key] = _Column(fresh, array("f" if short else "d"))
                fresh.keys += 1
            elif present[id(columns[key].index)] < (old := columns[key].index).keys or id(old) in moved:
                copied = moved.setdefault(id(old), _Index(old.rows[:], old.steps[:], 0))
                columns[key].index = copied
                old.keys, copied.keys = old.keys - 1, copied.keys + 1
        if moved or len(self._plans) >= _PLANS:
            self._plans.clear()
        indexes = list({id(columns[key].index): columns[key].index for key in keys}.values())
        plan = self._plans[keys] = [columns[key].values.append for key in keys], indexes
        return plan

    def _lengthen(self, numbers: Mapping[str, float]) -> None:
        """Keys whose numbers are too large for 4 bytes have 8 from now on."""
        for key in [key for key, value in numbers.items() if abs(value) > _LONGEST and key not in self._exact]:
            self._exact.add(key)
            if key in self._columns:
                self._columns[key].values = array("d", self._columns[key].values)
                self._plans.clear()

    def between(self, key: str, since: int, until: int) -> tuple[list[int], list[float | None]]:
        """Steps and values of a key in the records from number `since` up to `until`; what is no number is None."""
        if key not in self._columns:
            return [], []
        part = self._part(key, since, until)
        column = self._columns[key]
        return list(column.index.steps[part]), [_rounded(value) for value in column.values[part]]

    def texts(self, keys: Iterable[str], since: int, until: int) -> tuple[list[str], dict[str, tuple[int, str]]]:
        """The same for many keys as JSON, which takes a tenth of the memory: lists of steps, and for each key that has
        any the place of its steps among those and its values."""
        steps: dict[tuple[int, int, int], int] = {}
        shown: list[str] = []
        values: dict[str, tuple[int, str]] = {}
        for key in keys:
            if key in self._columns and (part := self._part(key, since, until)).stop > part.start:
                index = self._columns[key].index
                name = id(index), part.start, part.stop
                if name not in steps:
                    steps[name] = len(shown)
                    shown.append(_json(index.steps[part], "%d"))
                values[key] = steps[name], _json(self._columns[key].values[part], "%.6g")
        return shown, values

    def _part(self, key: str, since: int, until: int) -> slice:
        rows = self._columns[key].index.rows
        return slice(bisect_left(rows, since), bisect_left(rows, until))

    def last(self, key: str) -> float | None:
        """The last value that is a number."""
        column = self._columns.get(key)
        if column is None:
            return None
        value = next((value for value in reversed(column.values) if math.isfinite(value)), None)
        return value if value is None or column.values.typecode == "d" else _rounded(value)


def _number(value: float | None) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _rounded(value: float) -> float | None:
    """Six digits: more than any screen shows, and a third of the bytes."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _json(numbers: array[Any], form: str) -> str:
    text = ",".join([form] * len(numbers)) % tuple(numbers)
    return f"[{text.replace('-inf', 'null').replace('inf', 'null').replace('nan', 'null')}]"


def read_columns(path: Path) -> tuple[Columns, str]:
    """The numbers of a log, and what of it was left out, in a line: damage costs those lines alone."""
    tail, columns = Tail(path), Columns()
    for record in tail.all_records():
        columns.add(record)
    return columns, tail.problem
