"""A log that grows while it is read. Only what was added since the last look is read again.

`Columns` keeps numbers by key instead of records: 50 runs of 500 steps with 80 keys are 2 million numbers, which take
50 MB as columns and ten times that as dictionaries.
"""

from __future__ import annotations

import json
import math
import os
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

_MOST_BYTES = 64 << 20  # of one look; the rest comes with the next ones
_MOST_KEYS = 4000  # a damaged or hostile log must not fill the memory
_NOT_NUMBERS = ("step", "kind", "nonfinite")


class Tail:
    """The lines of one file, each given once. A file that was cut or replaced begins anew: `begun` counts that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun = 0
        self.bad = 0  # lines that are no records
        self.changed = 0.0  # when the file was last written
        self._offset = 0
        self._inode = -1
        self._head = b""

    def new_records(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether what was read before no longer holds, and the records added since. A half-written line waits."""
        try:
            check_is_file(self.path)
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                again = self._restarted(status, file.read(len(self._head)))
                if again:
                    self._forget(status.st_ino)
                self.changed = status.st_mtime
                if status.st_size == self._offset:
                    return again, []
                file.seek(self._offset)
                data = file.read(_MOST_BYTES)
        except OSError:  # not written yet, or gone
            gone = self._offset > 0
            if gone:
                self._forget(-1)
            return gone, []
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _MOST_BYTES:  # no record is that long: it is passed over
            end = len(data)
        if self._offset == 0:
            self._head = data[: min(end, 64)]
        self._offset += end
        return again, list(self._parse(data[:end]))

    def _restarted(self, status: os.stat_result, head: bytes) -> bool:
        """Resumed runs write their logs anew, as a new file; the first bytes tell where file numbers are reused."""
        if self._offset == 0:
            self._inode = status.st_ino
            return False
        return status.st_ino != self._inode or status.st_size < self._offset or head != self._head

    def _forget(self, inode: int) -> None:
        self.begun += 1
        self.bad = 0
        self._offset, self._inode, self._head = 0, inode, b""

    def _parse(self, data: bytes) -> Iterator[dict[str, Any]]:
        for line in data.split(b"\n"):
            if not line.strip():
                continue
            try:
                record: Any = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            step = cast("dict[str, Any]", record).get("step") if isinstance(record, dict) else None
            if isinstance(step, int) and abs(step) < 1 << 53:
                yield cast("dict[str, Any]", record)
            else:
                self.bad += 1


def check_is_file(path: Path) -> None:
    """A pipe or a device would be waited for or read without an end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path.name} is not a file")


class Columns:
    """The numbers of a log by key. `rows` counts the records, so that a reader can ask for what came after one."""

    def __init__(self) -> None:
        self.rows = 0
        self.last_step = -1
        self._columns: dict[str, tuple[array[int], array[int], array[float]]] = {}  # rows, steps, values

    @property
    def keys(self) -> list[str]:
        return list(self._columns)

    def add(self, record: dict[str, Any]) -> None:
        step = int(record["step"])
        self.last_step = max(self.last_step, step)
        for key, value in record.items():
            if key in _NOT_NUMBERS or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            column = self._columns.get(key)
            if column is None:
                if len(self._columns) >= _MOST_KEYS:
                    continue
                column = self._columns[key] = (array("q"), array("q"), array("d"))
            column[0].append(self.rows)
            column[1].append(step)
            column[2].append(_number(value))
        self.rows += 1

    def between(self, key: str, since: int, until: int) -> tuple[list[int], list[float | None]]:
        """Steps and values of a key in the records from number `since` up to `until`; what is no number is None."""
        column = self._columns.get(key)
        if column is None:
            return [], []
        a, b = bisect_left(column[0], since), bisect_left(column[0], until)
        return list(column[1][a:b]), [_rounded(value) for value in column[2][a:b]]

    def last(self, key: str) -> float | None:
        """The last value that is a number."""
        column = self._columns.get(key)
        return next((value for value in reversed(column[2]) if math.isfinite(value)), None) if column else None


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
