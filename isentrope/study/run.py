"""Run a study, or go on with one."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from isentrope.runs.lock import hold
from isentrope.study.begun import begun_cells, check_begun, done_before
from isentrope.study.device import room_for
from isentrope.study.folder import write_plan
from isentrope.study.jobs import cores, make_jobs
from isentrope.study.plan import Study
from isentrope.study.queue import DONE, GRACE, RUNNING, Entry, Queue
from isentrope.study.read import StudyData
from isentrope.study.show import Show
from isentrope.study.starts import other_start

_LOOK = 0.5  # seconds between two looks at the runs
_LEAST = 20.0  # seconds that must be left to begin another run: less would only be thrown away


@dataclass(frozen=True)
class How:
    """What the command line says beside the study file; 0: as that says."""

    side_by_side: int = 0
    minutes: float = 0.0
    only: tuple[str, ...] = ()
    retry: bool = False
    earlier: StudyData | None = None  # what was run of the study in other places


def run_study(study: Study, out: Path, how: How, show: Show) -> Queue:
    """Until all runs are done, the time is up, or somebody interrupts; the study goes on with the next call."""
    began = time.monotonic()
    minutes = how.minutes or study.plan.minutes
    deadline = began + 60 * minutes - GRACE if minutes else float("inf")
    checked = make_jobs(study, out, how.only)
    others = [name for name in begun_cells(study, out, how.earlier) if how.only and name not in how.only]
    every = [*checked, *(make_jobs(study, out, others) if others else ())]  # also what is not run now must fit the plan
    check_begun(every)
    elsewhere = done_before(every, how.earlier) if how.earlier else frozenset[str]()
    # one process at a time runs a study; the lock dies with it
    refused = f"another process runs the study in {out}; wait for it or choose another --out"
    with hold(out / "study.lock", refused):
        write_plan(out, study)
        room = room_for(checked[0].config.run.device, how.side_by_side or study.plan.side_by_side, cores())
        threads = max(1, cores() // min(room.most, len(checked)))
        jobs, pace = [one.job for one in checked], study.plan.seconds_per_step
        queue = Queue(jobs, room, threads, study.plan.keep, how.retry, elsewhere, pace)
        queue.say = show.say
        show.begin(queue, minutes)
        for entry in queue.of(DONE):
            _compare_start(entry, out, how, show)
        try:
            with _terminated_as_interrupted():
                while not queue.finished and time.monotonic() < deadline:
                    left = deadline - time.monotonic()
                    worth = left > min(_LEAST, 30 * minutes)
                    for entry in queue.turn(worth, left):
                        show.ended(entry)
                        _compare_start(entry, out, how, show)
                    show.look()
                    if not worth and not queue.of(RUNNING):
                        break
                    time.sleep(_LOOK)
        finally:
            queue.stop()
            show.end()
    return queue


def _compare_start(entry: Entry, out: Path, how: How, show: Show) -> None:
    if told := other_start(out, entry.job.name, how.earlier):
        show.say(f"MIND: {told}")


@contextmanager
def _terminated_as_interrupted() -> Generator[None]:
    """Whoever ends the study by SIGTERM gets what Ctrl-C gets: runs that were asked to end."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
