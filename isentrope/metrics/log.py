"""Writes a run's metrics: metrics.jsonl, timings.jsonl, TensorBoard and other trackers.

What the clock says goes into a file of its own, so that two equal runs give the same metrics.jsonl, byte for byte.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.core.errors import writing
from isentrope.core.metric import Metric
from isentrope.core.part import Part
from isentrope.metrics.glossary import declare, entry_of
from isentrope.metrics.trackers import Trackers, say_on_stderr
from isentrope.runs import log
from isentrope.runs.layout import EVENTS, METRICS, TENSORBOARD, TIMINGS
from isentrope.runs.log import Record, append_record, truncate_logs
from isentrope.runs.writer import add_to_about


class MetricsLog:
    """Appends to the logs of one run folder. `truncate` it before going on with an earlier run."""

    def __init__(
        self,
        run_dir: Path | str,
        track: Sequence[str] = (),
        say: Callable[[str], None] = say_on_stderr,
        board: bool = True,
    ) -> None:
        """`board`: TensorBoard's files too."""
        self.run, self._shows = Path(run_dir), board
        self._purge_step: int | None = None
        self._board: Any = None
        self._trackers = Trackers(self.run, track, say)

    def declare(self, part: Part | Sequence[Metric]) -> None:
        """What the part declares may be written from now on."""
        metrics = part.metrics if isinstance(part, Part) else part
        declare(metrics)
        if metrics:
            add_to_about(self.run, "metrics", {metric.key: [metric.unit, metric.meaning] for metric in metrics})

    def write(self, step: int, metrics: Mapping[str, float], kind: str = "train") -> None:
        """Append one record; a key that the glossary does not know is refused."""
        append_record(self.run / METRICS, record_of(step, metrics, kind))
        self._show(step, metrics)
        self._trackers.write(step, metrics)

    def write_timings(self, step: int, timings: Mapping[str, float], kind: str = "train") -> None:
        """Append what the clock says: `seconds/{stage}` and `tokens_per_second/{stage}`."""
        append_record(self.run / TIMINGS, record_of(step, timings, kind))
        self._show(step, timings)
        self._trackers.write(step, timings)

    def write_events(self, events: Sequence[Record]) -> None:
        """Append what happened at a step: a change of phase, an alarm, a method switched on."""
        for event in events:
            append_record(self.run / EVENTS, event)

    def truncate(self, after_step: int) -> None:
        """Forget what came after `after_step`, and a last line that was cut off in the middle."""
        truncate_logs(self.run, after_step)
        self.close()
        self._purge_step = after_step + 1

    def close(self) -> None:
        self._trackers.close()
        if self._board is not None:
            self._board.close()
            self._board = None

    def _show(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write TensorBoard scalars. The writer comes with torch, which is too slow to load for a report."""
        if not self._shows:
            return
        folder = self.run / TENSORBOARD
        with writing(folder):
            if self._board is None:
                from torch.utils.tensorboard import SummaryWriter

                if not isinstance(threading.excepthook, _LeftToFlush):
                    threading.excepthook = _LeftToFlush(threading.excepthook)
                self._board = SummaryWriter(str(folder), purge_step=self._purge_step)
            for key, value in sorted(metrics.items()):
                if math.isfinite(value):
                    self._board.add_scalar(key, float(value), step)
            self._board.flush()


class _LeftToFlush:
    """TensorBoard writes in a thread. What that cannot write, `flush` raises; it need not be printed as well."""

    def __init__(self, before: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._before = before

    def __call__(self, raised: threading.ExceptHookArgs) -> None:
        of_writer = type(raised.thread).__module__.startswith("tensorboard.")
        if not (of_writer and isinstance(raised.exc_value, OSError)):
            self._before(raised)


def record_of(step: int, metrics: Mapping[str, float], kind: str) -> Record:
    """One line's content; a key that the glossary does not know is refused."""
    for key in metrics:
        entry_of(key)
    return log.record_of(step, metrics, kind)
