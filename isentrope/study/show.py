"""What a study shows: its progress, as a live table in a terminal, elsewhere a plain line every few seconds; and with
`--dry-run` its cells, settings and the expected time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from isentrope.analysis.tables import rich_table
from isentrope.charts.text import clipped, duration, visible
from isentrope.core.process import usable_cores
from isentrope.study.cells import shared_settings
from isentrope.study.jobs import Job
from isentrope.study.measures import all_seconds
from isentrope.study.plan import Study
from isentrope.study.queue import RUNNING, WAITING, Entry, Queue
from isentrope.study.read import DONE, FAILED, StudyData, StudyRun, read_one

LINE_SECONDS = 15.0  # plain lines come no faster than this
_SHOWN_RUNS = 24


class Show:
    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(quiet=quiet, highlight=False)
        self._live = Live(console=self.console, refresh_per_second=2, transient=True, auto_refresh=False)
        self._terminal = self.console.is_terminal and not quiet
        self._queue: Queue | None = None
        self._began = self._line = self._minutes = self._done_before = 0.0

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


def show_plan(
    study: Study, jobs: Sequence[Job], out: Path, side_by_side: int, console: Console, earlier: StudyData | None
) -> None:
    """Lists every cell, and runs nothing; the jobs are those that make_jobs has checked. `earlier`: run elsewhere."""
    common = shared_settings(study.cells)
    # what the settings of all cells end with: what --set lays over them
    turned = [replace(cell, settings=cell.settings[len(common) :][::-1]) for cell in study.cells]
    last = shared_settings(turned)[::-1]
    rows: list[list[str]] = []
    steps = {job.folder.parent.name: job.steps for job in jobs if job.steps}
    for cell in study.cells:
        if cell.name in steps:
            tags = ", ".join(f"{key}={value}" for key, value in cell.tags.items())
            own = " ".join(cell.settings[len(common) : len(cell.settings) - len(last)])
            row = (cell.name, tags, str(len(cell.seeds)), str(steps[cell.name]), cell.against, own)
            rows.append([visible(text) for text in row])
    head, title = ("cell", "tags", "seeds", "steps", "against", "settings of its own"), visible(study.name)
    title += f": {len(study.cells)} cells"
    console.print(rich_table(head, rows, right=("seeds", "steps"), fold=True, title=title, box=None))
    together = {one.partition("=")[0]: one for one in (*common, *last)}  # of two for one setting the last one wins
    console.print(Text(f"\nAll runs: {visible(' '.join(together.values())) or 'as the recipe says'}"))
    found = [read_one(out, cell, seed) for cell in study.cells for seed in cell.seeds]
    found += earlier.runs if earlier else ()
    done = {run.name: run for run in found if run.status == DONE}
    console.print(Text(_estimate(study, jobs, side_by_side or study.plan.side_by_side or usable_cores(), done)))


def _estimate(study: Study, jobs: Sequence[Job], at_once: int, done: Mapping[str, StudyRun]) -> str:
    runs = [job for job in jobs if job.steps]
    left = [job.steps for job in runs if job.name not in done]
    told = f"{len(runs)} runs, {len(runs) - len(left)} of them done; {sum(left):,} steps left"
    pace, whence = study.plan.seconds_per_step, "as seconds_per_step says"
    measured = [seconds / run.steps for run in done.values() if (seconds := all_seconds(run)) and run.steps]
    if measured:
        pace, whence = median(measured), f"as in the {len(measured)} runs that are done, beside others"
    if not pace:
        return f"{told}. How long a step takes is not known yet: run one cell (--only) first, or set seconds_per_step."
    alone = sum(left) * pace
    together = f"{duration(alone / at_once)} with {at_once} at a time if they do not slow each other"
    return f"{told}. {pace:.2f} s a step, {whence}: {duration(alone)} one after the other, {together}."
