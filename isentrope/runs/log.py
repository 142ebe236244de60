"""The logs of a run: lines of JSON in metrics.jsonl, timings.jsonl and events.jsonl.

    {"step": 12, "kind": "train", "entropy/token": 0.41, ...}
    {"step": 61, "kind": "alarm", "name": "eruption", "text": "Entropy erupted: ...", "remedy": "..."}

A record is written in one piece and flushed to the disk before the run goes on. `read_records` reads a log whole,
`last_records` its end, `Tail` what was added since the last look. `Columns` keeps numbers by key instead of records: 50
runs of 500 steps with 80 keys are 2 million numbers, which take 50 MB as columns and ten times that as dictionaries.
"""

from __future__ import annotations

import json
import math
import os
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError, writing
from isentrope.runs.atomic import write_atomically
from isentrope.runs.layout import EVENTS, METRICS, TIMINGS

Record = dict[str, Any]

KINDS = ("train", "eval", "sft")
CLOCK = ("seconds/", "rollout_seconds/", "tokens_per_second/", "cores/", "memory/")  # how keys of timings.jsonl begin
NOT_NUMBERS = ("step", "kind", "nonfinite")  # keys of a record that are no metrics
_END_BYTES = 65536  # that `last_records` reads, several records
_LOOK_BYTES = 64 << 20  # of one look; the rest comes with the next ones
_LOOKS = 16  # at most, of one reading: a GiB, far more than any run writes
_KEY_LIMIT = 4000  # a damaged or hostile log must not fill the memory


def record_of(step: int, metrics: Mapping[str, float], kind: str) -> Record:
    """One line's content. JSON has no NaN: a number that is not finite becomes null and its key is listed."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    if "step" in metrics:
        raise KeyError("'step' is given beside the metrics, not among them")
    values = {key: float(metrics[key]) for key in sorted(metrics)}
    record: Record = {"step": int(step), "kind": kind}
    record |= {key: value if math.isfinite(value) else None for key, value in values.items()}
    nonfinite = [key for key, value in values.items() if not math.isfinite(value)]
    return record | ({"nonfinite": nonfinite} if nonfinite else {})


def append_record(path: Path, record: Record) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(_line(record).encode())
            file.flush()
            os.fsync(file.fileno())


def truncate_logs(run: Path, after_step: int, damaged: bool = False) -> None:
    """Forget what came after `after_step`, and a last line that was cut off in the middle; of logs that are known to be
    `damaged` all lines that are no records."""
    for path in (run / METRICS, run / TIMINGS, run / EVENTS):
        if path.exists():
            kept = [record for record in read_records(path, damaged) if record["step"] <= after_step]
            write_atomically(path, "".join(_line(record) for record in kept).encode())


def mend_end(path: Path) -> None:
    """Forget a last line that was cut off in the middle, so that a record may follow."""
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        write_atomically(path, "".join(map(_line, read_records(path))).encode())


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def read_records(path: Path, damaged: bool = False) -> list[Record]:
    """The records of a log. A last line that was cut off, by a kill or because it is being written, is left out; where
    the log may be `damaged`, so is every line that is no record."""
    try:
        check_is_file(path)
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"could not read {path}: {error.strerror or error}") from error
    lines = data.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        if (record := _parse(line)) is not None:
            records.append(record)
        elif number < len(lines) and not damaged:
            raise RunError(f"{path} is damaged: line {number} is not a record; delete the line")
    return records


def last_records(path: Path) -> list[Record]:
    """The records at the end of a log, whole ones only: cheap enough to ask for every second."""
    try:
        check_is_file(path)
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _END_BYTES))
            lines = file.read().split(b"\n")[(1 if size > _END_BYTES else 0) : -1]
    except OSError:
        return []
    return [record for line in lines if (record := _parse(line)) is not None]


def _whole_number(digits: str) -> int | float:
    """One that fits into 64 bits; a longer one, which no run writes, is a float, infinite perhaps."""
    return int(digits) if len(digits) <= 18 else float(digits)


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line, parse_int=_whole_number)
    except (ValueError, RecursionError):  # ValueError: neither JSON nor, perhaps, UTF-8
        return None
    if not isinstance(record, dict):
        return None
    known = cast("Record", record)
    return known if isinstance(known.get("step"), int) else None


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

    def new_records(self) -> tuple[bool, list[Record]]:
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
                data = file.read(_LOOK_BYTES)
        except OSError:  # not written yet, or gone
            gone = self._offset > 0
            if gone:
                self._forget(-1)
            return gone, []
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _LOOK_BYTES:  # no record is that long: it is passed over
            end = len(data)
        if self._offset == 0:
            self._head = data[: min(end, 64)]
        self._offset += end
        return again, list(self._records(data[:end]))

    def all_records(self) -> Iterator[Record]:
        """What there is by now, of however many looks."""
        for _ in range(_LOOKS):
            began = self._offset
            yield from self.new_records()[1]
            if self._offset == began:
                break

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

    def _records(self, data: bytes) -> Iterator[Record]:
        for line in data.split(b"\n"):
            if not line.strip():
                continue
            record = _parse(line)
            if record is not None and abs(record["step"]) < 1 << 53:
                yield record
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

    def add(self, record: Record) -> None:
        step = int(record["step"])
        self.last_step = max(self.last_step, step)
        for key, value in record.items():
            if key in NOT_NUMBERS or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            column = self._columns.get(key)
            if column is None:
                if len(self._columns) >= _KEY_LIMIT:
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


def read_columns(path: Path) -> tuple[Columns, int]:
    """The numbers of a log, and how many lines are no records: damage costs those lines alone."""
    tail, columns = Tail(path), Columns()
    for record in tail.all_records():
        columns.add(record)
    return columns, tail.bad
