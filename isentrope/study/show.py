"""Progress display of a study: a live table in a terminal, elsewhere a plain line every few seconds."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from isentrope.charts.text import clipped, duration, visible
from isentrope.study.queue import RUNNING, WAITING, Entry, Queue
from isentrope.study.read import DONE, FAILED

LINE_SECONDS = 15.0  # plain lines come no faster than this
_SHOWN_RUNS = 24


class Show:
    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(quiet=quiet, highlight=False)
        self._live = Live(console=self.console, refresh_per_second=2, transient=True, auto_refresh=False)
        self._terminal = self.console.is_terminal and not quiet
        self._queue: Queue | None = None
        self._began = self._line = 0.0
        self._minutes = 0.0
        self._done_before = 0.0

    def begin(self, queue: Queue, minutes: float) -> None:
        self._queue, self._minutes, self._began, self._line = queue, minutes, time.monotonic(), time.monotonic()
        self._done_before = self._steps_done()
        self.say(self._summary())
        if self._terminal:
            self._live.start()

    def say(self, line: str) -> None:
        self.console.print(visible(line), markup=False, emoji=False, soft_wrap=True)

    def ended(self, entry: Entry) -> None:
        if entry.state == FAILED:
            self.say(f"{entry.job.name} failed: {clipped(entry.reason, 300)}")
        else:
            success = entry.progress.success
            told = f", success {100 * success:.1f} %" if success is not None else ""
            self.say(f"{entry.job.name} done{told}  ({self._summary()})")
            self._line = time.monotonic()

    def look(self) -> None:
        if self._terminal:
            self._live.update(self._picture(), refresh=True)
        elif time.monotonic() - self._line >= LINE_SECONDS:
            self._line = time.monotonic()
            self.say(self._summary() + self._under_way())

    def end(self) -> None:
        if self._terminal:
            self._live.stop()
        self.say(self._summary())

    def _summary(self) -> str:
        queue = self._queue
        if queue is None:
            return ""
        counts = {state: len(queue.of(state)) for state in (DONE, RUNNING, WAITING, FAILED)}
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        spent = duration(time.monotonic() - self._began)
        budget = f" of {duration(60 * self._minutes)}" if self._minutes else ""
        left = self._left()
        return f"{told or 'no runs'}; {spent}{budget}" + (f", about {duration(left)} left" if left else "")

    def _steps_done(self) -> float:
        entries = self._queue.entries if self._queue else []
        return sum(e.job.steps if e.state == DONE else min(e.progress.step, e.job.steps) for e in entries)

    def _left(self) -> float | None:
        """Seconds that the rest takes at the pace so far."""
        if self._queue is None:
            return None
        wanted = sum(entry.job.steps for entry in self._queue.entries if entry.state != FAILED)
        done = self._steps_done()
        fresh, spent = done - self._done_before, time.monotonic() - self._began
        return spent / fresh * (wanted - done) if fresh > 0 and wanted > done else None

    def _under_way(self) -> str:
        running = self._queue.of(RUNNING) if self._queue else []
        told = [f"{entry.job.name} {_steps(entry)}" for entry in running[:6]]
        return f"; {', '.join(told)}{' ...' if len(running) > 6 else ''}" if told else ""

    def _picture(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for title, right in (("run", False), ("step", True), ("success", True), ("entropy", True), ("s/step", True)):
            table.add_column(title, justify="right" if right else "left", style="dim" if title != "run" else "")
        running = self._queue.of(RUNNING) if self._queue else []
        for entry in running[:_SHOWN_RUNS]:
            seen = entry.progress
            success = f"{100 * seen.success:.1f} %" if seen.success is not None else ""
            entropy = f"{seen.entropy:.3f}" if seen.entropy is not None else ""
            pace = f"{seen.seconds_per_step:.1f}" if seen.seconds_per_step else ""
            table.add_row(Text(visible(entry.job.name)), _steps(entry), success, entropy, pace)
        more = [Text(f"and {len(running) - _SHOWN_RUNS} more")] if len(running) > _SHOWN_RUNS else []
        return Group(Text(self._summary(), style="bold"), table, *more)


def _steps(entry: Entry) -> str:
    return f"{entry.progress.step}/{entry.job.steps}" if entry.job.steps else f"{entry.progress.step}"
