"""The logs of a run: lines of JSON in metrics.jsonl, timings.jsonl and events.jsonl.

    {"step": 12, "kind": "train", "entropy/token": 0.41, ...}
    {"step": 61, "kind": "alarm", "name": "eruption", "text": "Entropy erupted: ...", "remedy": "..."}

A record is written in one piece and flushed to the disk before the run goes on. One reader, `Tail`, is behind all that
look at logs: it gives what was added since the last look, within the limits of core/limits.py, and counts the lines
that are no records. `read_log` reads a log whole, `last_records` its end. columns.py keeps numbers by key instead of
records.

Only a run that is resumed reads strictly (`truncate_logs`): it writes the log anew, and must not lose a line of it.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError, writing
from isentrope.core.limits import (
    KEY_CHARS,
    KEYS,
    LARGEST,
    LINE_BYTES,
    LOG_BYTES,
    LOG_NUMBERS,
    LOG_ROWS,
    TEXT_CHARS,
    THIN_BYTES,
    open_plain,
    read_bounded,
    whole_number,
)
from isentrope.core.text import count, plain
from isentrope.runs.atomic import open_to_append, write_atomically
from isentrope.runs.layout import EVENTS, METRICS, TIMINGS

LOG = logging.getLogger("isentrope")
Record = dict[str, Any]

KINDS = ("train", "eval", "sft")
CLOCK = ("seconds/", "rollout_seconds/", "tokens_per_second/", "cores/", "memory/")  # how keys of timings.jsonl begin
NOT_NUMBERS = ("step", "kind", "nonfinite")  # keys of a record that are no metrics
_DECODER = json.JSONDecoder(parse_int=whole_number)  # json.loads makes one for each line: a third of its time
_END_BYTES = 65536  # that `last_records` reads, several records
_LOOK_BYTES = 1 << 18  # of one look; the rest comes with the next ones. Records take ten times that while they are kept
_TRAINING = re.compile(rb'\{"step": \d{1,18}, "kind": "(?:train|sft)"')  # how such a line begins, as we write it
_LONG_LOOK_BYTES = 8 << 20  # of a look that finds no end of a line


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
        with open_to_append(path) as file:
            file.write(_line(record).encode())
            file.flush()
            os.fsync(file.fileno())


def truncate_logs(run: Path, after_step: int, damaged: bool = False) -> None:
    """Forget what came after `after_step`, and a last line that was cut off in the middle; of logs that are known to be
    `damaged` all lines that are no records."""
    for path in (run / METRICS, run / TIMINGS, run / EVENTS):
        if os.path.lexists(path):
            _write_anew(path, (record for record in _whole(path, damaged) if record["step"] <= after_step))


def mend_end(path: Path) -> None:
    """Forget a last line that was cut off in the middle, so that a record may follow."""
    if os.path.lexists(path) and not _all_of(path).endswith(b"\n"):
        _write_anew(path, _whole(path))


def _write_anew(path: Path, records: Iterable[Record]) -> None:
    """A record at a time: all records of a log take many times what its text takes."""
    text = bytearray()
    for record in records:
        text += _line(record).encode()
    write_atomically(path, text)


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _all_of(path: Path) -> bytes:
    try:
        return read_bounded(path, LOG_BYTES)
    except OSError as error:
        raise RunError(f"could not read {path}: {error.strerror or error}") from error


def _whole(path: Path, damaged: bool = False) -> Iterator[Record]:
    """All records as they stand there. A last line that was cut off, by a kill, is left out; any other is an error,
    unless the log is known to be `damaged`."""
    data = _all_of(path)
    end = len(data.rstrip())
    with io.BytesIO(data) as file:
        for number, line in enumerate(file, start=1):
            if (record := _parse(line)) is not None:
                yield record
            elif file.tell() < end and not damaged:
                raise RunError(f"{path} is damaged: line {number} is not a record; delete the line")


@dataclass(frozen=True)
class Log:
    """A log as far as it can be read."""

    records: list[Record] = field(default_factory=list[Record])
    problem: str = ""  # what was left out, in a line


def read_log(path: Path, kind: str = "", thin: bool = False) -> Log:
    """All records of a log, or those of a kind. Damaged lines are left out, as are a last one that is being written or
    was cut off by a kill, and what goes beyond the limits. `thin`: of a very large log as many as can be looked at."""
    tail = Tail(path, thin)
    records = [record for record in tail.all_records() if not kind or record.get("kind") == kind]
    records += [record for record in tail.last_record() if not kind or record.get("kind") == kind]
    return Log(records, tail.problem)


def read_records(path: Path, kind: str = "") -> list[Record]:
    """As `read_log`; what was left out is said on the log of the package."""
    log = read_log(path, kind)
    if log.problem:
        LOG.warning(f"{plain(str(path.parent))}: {plain(log.problem)}")
    return log.records


def last_records(path: Path) -> list[Record]:
    """The records at the end of a log, whole ones only: cheap enough to ask for every second."""
    try:
        with open_plain(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _END_BYTES))
            lines = file.read(_END_BYTES).split(b"\n")[(1 if size > _END_BYTES else 0) : -1]
    except OSError:
        return []
    return [bounded(record, Names()) for line in lines if (record := _parse(line)) is not None]


def _parse(line: bytes) -> Record | None:
    try:
        record = _DECODER.decode(line.decode("utf-8", "surrogatepass").removeprefix("\ufeff"))
    except (ValueError, RecursionError):  # ValueError: neither JSON nor, perhaps, UTF-8
        return None
    if not isinstance(record, dict):
        return None
    known = cast("Record", record)
    return known if type(known.get("step")) is int else None


class Names:
    """The names of the entries of a log: each once, of a usual length, and no more than KEYS of them."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {"step": "step", "kind": "kind"}

    def get(self, key: str) -> str | None:
        name = self._known.get(key)
        if name is None and len(key) <= KEY_CHARS and len(self._known) < KEYS:
            name = self._known[key] = key
        return name


def bounded(record: Record, names: Names) -> Record:
    """The entries that can be reckoned with and shown. Numbers beyond `LARGEST` count as not finite, which is null."""
    kept: Record = {}
    for key, value in record.items():
        name = names.get(key)
        if name is None or isinstance(value, dict) or (name == "kind" and not isinstance(value, str)):
            continue
        if type(value) is float:
            kept[name] = value if -LARGEST <= value <= LARGEST else None
        elif isinstance(value, str):
            kept[name] = value[:TEXT_CHARS]
        elif isinstance(value, list):
            kept[name] = [item for item in cast("list[Any]", value)[:KEYS] if isinstance(item, str)]
        else:
            kept[name] = value
    return kept


class Tail:
    """The lines of one file, each given once. A file that was cut or replaced begins anew: `begun` counts that.

    With `thin`, of a file that has more than `THIN_BYTES` when it is first read, only every n-th training record is
    read (`every` is n), the last one, and all of other kinds.
    """

    def __init__(self, path: Path, thin: bool = False) -> None:
        self.path = path
        self._thin = thin
        self.begun = 0
        self.changed = 0.0  # when the file was last written
        self.refused = ""  # why the file is not read at all
        self._forget(-1)
        self.begun = 0

    def _forget(self, inode: int) -> None:
        self.begun += 1
        self.bad = 0  # lines that are no records
        self.full = False  # whether there is more than is read of a log
        self.every, self._training = 1, 0
        self._offset, self._inode, self._head = 0, inode, b""
        self._rows = self._numbers = 0
        self._names = Names()
        self._rest = b""  # a line that has no end yet

    @property
    def problem(self) -> str:
        """What of the file is not read, in a line; empty if all of it is."""
        if self.refused:
            return f"{self.path.name} could not be read: {self.refused}"
        told = [f"{count(self.bad, 'damaged line')} left out"] if self.bad else []
        told += ["read up to the size that a log may have, and no further"] if self.full else []
        told += [f"it is large: one of {self.every} training records is read"] if self.every > 1 else []
        return f"{self.path.name}: {'; '.join(told)}" if told else ""

    def new_records(self) -> tuple[bool, list[Record]]:
        """Whether what was read before no longer holds, and the records added since, as far as one look reads. A
        half-written line waits."""
        try:
            with open_plain(self.path) as file:
                status = os.fstat(file.fileno())
                again = self._restarted(status, file.read(len(self._head)))
                if again:
                    self._forget(status.st_ino)
                self.changed, self.refused = status.st_mtime, ""
                if status.st_size == self._offset or self.full:
                    return again, []
                file.seek(self._offset)
                data = file.read(_LOOK_BYTES)
                if b"\n" not in data:
                    data += file.read(_LONG_LOOK_BYTES - len(data))
        except OSError as error:  # not written yet, gone, or no file
            self.refused = "" if isinstance(error, FileNotFoundError) else str(error.strerror or error)
            gone = self._offset > 0
            if gone:
                self._forget(-1)
            return gone, []
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _LONG_LOOK_BYTES:  # no record is that long: it is passed over
            end = len(data)
        if self._offset == 0:
            self._head = data[: min(end, 64)]
            self.every = max(1, math.ceil(status.st_size / THIN_BYTES)) if self._thin else 1
        self._offset += end
        self._rest = data[end:]
        self.full = self.full or self._offset > LOG_BYTES
        return again, list(self._records(data[:end], self._offset == status.st_size))

    def all_records(self) -> Iterator[Record]:
        """What there is by now, of however many looks."""
        while True:
            began = self._offset
            yield from self.new_records()[1]
            if self._offset == began:
                break

    def last_record(self) -> list[Record]:
        """The record at the end of a log whose last line has no end, if it is a whole one."""
        record = _parse(self._rest) if self._rest and not self.full else None
        return [] if record is None else [bounded(record, self._names)]

    def _restarted(self, status: os.stat_result, head: bytes) -> bool:
        """Resumed runs write their logs anew, as a new file; the first bytes tell where file numbers are reused."""
        if self._offset == 0:
            self._inode = status.st_ino
            return False
        return status.st_ino != self._inode or status.st_size < self._offset or head != self._head

    def _passed_over(self, line: bytes) -> bool:
        if self.every == 1 or not _TRAINING.match(line):
            return False
        self._training += 1
        return self._training % self.every != 1

    def _records(self, data: bytes, to_the_end: bool) -> Iterator[Record]:
        lines = data.split(b"\n")
        last = len(lines) - 2 if to_the_end else -1
        for number, line in enumerate(lines):
            if (self._passed_over(line) and number != last) or not line.strip():
                continue
            record = _parse(line) if len(line) <= LINE_BYTES else None
            if record is None or abs(record["step"]) >= 1 << 53:
                self.bad += 1
                continue
            self._rows += 1
            self._numbers += len(record)
            self.full = self.full or self._rows > LOG_ROWS or self._numbers > LOG_NUMBERS
            if self.full:
                return
            yield bounded(record, self._names)
