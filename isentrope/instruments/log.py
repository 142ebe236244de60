"""The numbers of a run: metrics.jsonl, timings.jsonl, TensorBoard and other trackers; what happened: events.jsonl.

    {"step": 12, "kind": "train", "entropy/token": 0.41, ...}
    {"step": 61, "kind": "alarm", "name": "eruption", "text": "Entropy erupted: ...", "remedy": "..."}

One line per record, written in one piece and flushed to the disk before the run goes on. What the clock says
goes into a file of its own, so that two equal runs give the same metrics.jsonl, byte for byte.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError, writing
from isentrope.metrics.glossary import entry_of
from isentrope.metrics.trackers import Trackers, say_on_stderr
from isentrope.rollout.files import write_atomically

KINDS = ("train", "eval", "sft")
METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
EVENTS = "events.jsonl"
Record = dict[str, Any]


class MetricsLog:
    """Appends to the logs of one run folder. `truncate` it before going on with an earlier run."""

    def __init__(
        self, run_dir: Path | str, track: Sequence[str] = (), say: Callable[[str], None] = say_on_stderr
    ) -> None:
        self.run = Path(run_dir)
        self._purge_step: int | None = None
        self._board: Any = None
        self._trackers = Trackers(self.run, track, say)

    def write(self, step: int, metrics: Mapping[str, float], kind: str = "train") -> None:
        """Append one record; a key that the glossary does not know is refused."""
        _append(self.run / METRICS, record_of(step, metrics, kind))
        self._show(step, metrics)
        self._trackers.write(step, metrics)

    def write_timings(self, step: int, timings: Mapping[str, float], kind: str = "train") -> None:
        """Append what the clock says: `seconds/{stage}` and `tokens_per_second/{stage}`."""
        _append(self.run / TIMINGS, record_of(step, timings, kind))
        self._show(step, timings)
        self._trackers.write(step, timings)

    def write_events(self, events: Sequence[Record]) -> None:
        """Append what happened at a step: a change of phase, an alarm, a method switched on."""
        for event in events:
            _append(self.run / EVENTS, event)

    def truncate(self, after_step: int) -> None:
        """Forget what came after `after_step`, and a last line that was cut off in the middle."""
        for name in (METRICS, TIMINGS, EVENTS):
            path = self.run / name
            if path.exists():
                kept = [record for record in read_records(path) if record["step"] <= after_step]
                write_atomically(path, "".join(_line(record) for record in kept).encode())
        self.close()
        self._purge_step = after_step + 1

    def close(self) -> None:
        self._trackers.close()
        if self._board is not None:
            self._board.close()
            self._board = None

    def _show(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write TensorBoard scalars. The writer comes with torch, which is too slow to load for a report."""
        folder = self.run / "tensorboard"
        with writing(folder):
            if self._board is None:
                from torch.utils.tensorboard import SummaryWriter

                self._board = SummaryWriter(str(folder), purge_step=self._purge_step)
            for key, value in sorted(metrics.items()):
                if math.isfinite(value):
                    self._board.add_scalar(key, float(value), step)
            self._board.flush()


def record_of(step: int, metrics: Mapping[str, float], kind: str) -> Record:
    """One line's content. JSON has no NaN: a number that is not finite becomes null and its key is listed."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    if "step" in metrics:
        raise KeyError("'step' is given beside the metrics, not among them")
    for key in metrics:
        entry_of(key)
    values = {key: float(metrics[key]) for key in sorted(metrics)}
    record: Record = {"step": int(step), "kind": kind}
    record |= {key: value if math.isfinite(value) else None for key, value in values.items()}
    nonfinite = [key for key, value in values.items() if not math.isfinite(value)]
    return record | ({"nonfinite": nonfinite} if nonfinite else {})


def read_records(path: Path) -> list[Record]:
    """The records of a log. A last line that was cut off, by a kill or because it is being written, is left out."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"could not read {path}: {error.strerror or error}") from error
    lines = data.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        record = _parse(line)
        if record is not None:
            records.append(record)
        elif number < len(lines):
            raise RunError(f"{path} is damaged: line {number} is not a record; delete the line")
    return records


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: neither JSON nor, perhaps, UTF-8
        return None
    if not isinstance(record, dict):
        return None
    known = cast("Record", record)
    return known if isinstance(known.get("step"), int) else None


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _append(path: Path, record: Record) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(_line(record).encode())
            file.flush()
            os.fsync(file.fileno())
