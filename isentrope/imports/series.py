"""Numbers read from a foreign log: (step, name, value) in any order, within the limits of a run folder.

    series = Series()
    series.add(12, "train/reward", 0.4)
    for step, values in series.rows(): ...

Numbers are kept as columns, 16 bytes each. Where a step comes twice the later number counts.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from isentrope.core.limits import KEY_CHARS, KEYS, LARGEST, LOG_NUMBERS, LOG_ROWS
from isentrope.core.text import count, plain

HIGHEST_STEP = 1 << 53
_OUR_KEYS = 100  # names of a log that are left for ours


class Series:
    """`restarts`: a step that is smaller than one before it means that the program began again there, so that what it
    had beyond is no longer part of the run. TensorBoard reads its files so."""

    def __init__(self, restarts: bool = False) -> None:
        self.restarts = restarts
        self.numbers = 0
        self.cut = ""  # where reading ended before the end of the file, and why
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._names: dict[str, str] = {}  # as the program has it: as it is kept
        self._left_out: Counter[str] = Counter()

    @property
    def keys(self) -> list[str]:
        return list(self._columns)

    @property
    def full(self) -> bool:
        return self.numbers >= LOG_NUMBERS

    def add(self, step: object, key: str, value: float) -> None:
        if type(step) is not int or not 0 <= step < HIGHEST_STEP:
            self.left_out("number", "without a step that is a whole number from 0 on")
        elif self.full:
            self.left_out("number", f"beyond the {LOG_NUMBERS:,} that a run may have")
        elif (name := self._name(key)) is None:
            self.left_out("number", f"of names beyond the {KEYS - _OUR_KEYS:,} that a run may have, or without a name")
        else:
            steps, values = self._columns.setdefault(name, (array("q"), array("d")))
            steps.append(step)
            values.append(value if -LARGEST <= value <= LARGEST else math.nan)
            self.numbers += 1

    def left_out(self, what: str, why: str, times: int = 1) -> None:
        """Count what is not taken; `problems` says it."""
        self._left_out[f"{what}|{why}"] += times

    @property
    def problems(self) -> list[str]:
        """What of the files was not taken, a line each."""
        told = [[*key.split("|"), str(times)] for key, times in self._left_out.items()]
        lines = [f"{count(int(times), what)} left out: {why}" for what, why, times in told]
        return [*([self.cut] if self.cut else []), *lines]

    def values(self, key: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """One metric's numbers by step, each step once."""
        if key not in self._columns:
            return np.zeros(0, np.int64), np.zeros(0)
        steps, values = (np.array(column) for column in self._columns[key])
        kept = _before_restarts(steps) if self.restarts else _last_of_each(steps)
        order = np.argsort(steps[kept], kind="stable")
        return steps[kept][order], values[kept][order]

    def rows(self, names: Mapping[str, str]) -> Iterator[tuple[int, dict[str, float]]]:
        """Step by step what was measured, under the names that `names` has for them."""
        keys = [key for key in self._columns if key in names]
        parts = [(number, *self.values(key)) for number, key in enumerate(keys)]
        if not parts:
            return
        steps = np.concatenate([part[1] for part in parts])
        which = np.concatenate([np.full(len(part[1]), part[0], np.int32) for part in parts])
        values = np.concatenate([part[2] for part in parts])
        parts.clear()
        order = np.argsort(steps, kind="stable")
        ends = np.flatnonzero(np.diff(steps[order])) + 1
        begins = [0, *ends.tolist()]
        for row, (first, last) in enumerate(zip(begins, [*begins[1:], len(order)], strict=True)):
            if row >= LOG_ROWS:
                self.left_out("step", f"beyond the {LOG_ROWS:,} that a run may have", len(begins) - row)
                return
            places = order[first:last]
            told = zip(which[places].tolist(), values[places].tolist(), strict=True)
            yield int(steps[places[0]]), {names[keys[number]]: value for number, value in told}

    def _name(self, key: str) -> str | None:
        if key not in self._names:
            name = " ".join(plain(key).split())[:KEY_CHARS]
            if not name or (name not in self._columns and len(self._columns) >= KEYS - _OUR_KEYS):
                return None
            if len(self._names) >= 2 * KEYS:
                return name if name in self._columns else None
            self._names[key] = name
        return self._names[key]


def _last_of_each(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the numbers that no later one of the same step replaces."""
    _, places = np.unique(steps[::-1], return_index=True)
    return np.sort(len(steps) - 1 - places)


def _before_restarts(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the numbers after which no step so low comes again."""
    lowest = np.minimum.accumulate(steps[::-1])[::-1]
    later = np.append(lowest[1:], HIGHEST_STEP)
    return np.flatnonzero(steps < later)
