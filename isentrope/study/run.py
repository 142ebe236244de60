"""Runs a study, or continues one.

Runs that were begun before must have the settings that the study file asks for now. Runs that were made in several
places must begin from the same weights: the losses of their warm-ups tell, since warm-ups are not kept with a study's
numbers and one that is made again on another device may be another model.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from isentrope.config.schema import Auto
from isentrope.config.text import as_table
from isentrope.core.errors import RunError
from isentrope.core.process import usable_cores
from isentrope.core.signals import Interrupted, asked_to_end
from isentrope.methods.options import with_options
from isentrope.runs.folder import leaves, read_config
from isentrope.runs.layout import METRICS, recorded_config
from isentrope.runs.lock import hold
from isentrope.study.jobs import Job, make_jobs
from isentrope.study.plan import WARMUP, Study, run_folder, write_plan
from isentrope.study.queue import GRACE, RUNNING, Entry, Queue, room_for
from isentrope.study.read import DONE, StudyData, StudyRun, read_warmup
from isentrope.study.show import Show

# settings that say where and how a run runs, or that the run itself writes out
_NOT_COMPARED = (
    "run.device", "run.threads", "run.keep_last", "run.checkpoint_every", "run.track", "task.where", "task.workers",
    "engine.memory", "learn.micro_tokens", "eval.splits", "run.grace",
    "cluster.kind", "cluster.trainers", "cluster.engines", "cluster.seconds",
)  # fmt: skip
_POLL_SECONDS = 0.5  # between two looks at the runs
_SHORTEST_START = 20.0  # seconds that must be left to begin another run: less would only be thrown away


def check_begun(jobs: Sequence[Job]) -> None:
    """Refuse to mix runs: also one that is done must have the settings that it would be begun with."""
    for job in jobs:
        if not (job.folder / METRICS).is_file() or recorded_config(job.folder) is None:
            continue
        before = leaves(read_config(job.folder)[1])
        if told := differing(before, leaves(as_table(with_options(job.config)))):
            raise RunError(
                f"{job.folder} was begun with other settings: {told}. Give the cell another name or the study another "
                "--out, or remove the folder"
            )


def done_before(jobs: Sequence[Job], earlier: StudyData) -> frozenset[str]:
    """The names of the jobs that were done in an earlier part of the study, elsewhere."""
    found = {run.name: run for run in earlier.runs if run.status == DONE}
    for job in jobs:
        run = found.get(job.name)
        now = leaves(as_table(with_options(job.config)))
        if run is not None and (told := differing(run.config, {**now, "policy.model": run.config.get("policy.model")})):
            raise RunError(f"{run.name} was run earlier with other settings: {told}. Give the cell another name")
    return frozenset(job.name for job in jobs if job.name in found)


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first settings in which the two differ, in words; empty if they do not. One that an older run did not
    record is at its default."""
    told: list[str] = []
    for key in sorted(now.keys() & before.keys() - {*_NOT_COMPARED}):
        if isinstance(now[key], Auto):  # the run knows what it came to
            continue
        value = list(cast("tuple[Any, ...]", now[key])) if isinstance(now[key], tuple) else now[key]
        told += [f"{key} was {before[key]!r}, now {value!r}"] if before[key] != value else []
    return "; ".join(told[:3])


def other_start(out: Path, job: str, earlier: StudyData | None) -> str:
    """What a user must know of a job that is done, if it is a warm-up and not the one that runs made elsewhere began
    from; empty if there is nothing to know."""
    kind, _, name = job.partition("/")
    there = earlier.warmups.get(name) if earlier and kind == WARMUP else None
    if earlier is None or there is None or there.status != DONE:
        return ""
    here = read_warmup(out, name)
    begun = sum(run.status == DONE and earlier.study.cell(run.cell).warmup == name for run in earlier.runs)
    apart = _apart(here, there) if begun and here.status == DONE else ""
    if not apart:
        return ""
    runs = "an earlier run" if begun == 1 else f"{begun} earlier runs"
    return (
        f"{job} is not the one that {runs} began from: {apart}. Runs are compared seed by seed, so a seed of which one "
        "run was made there and another here begins from two models. If you have that warm-up, stop and put its folder "
        f"in the place of {out / WARMUP / name}"
    )


def _apart(here: StudyRun, there: StudyRun) -> str:
    """The first step at which two warm-ups differ, in words. Both are known to four digits."""
    points = [zip(*run.series("sft/loss"), strict=True) for run in (here, there)]
    for now, before in zip_longest(*points):
        if now != before:
            step = (now or before)[0]
            values = [f"{point[1]:.4g}" if point else "none" for point in (before, now)]
            return f"at step {step} its loss was {values[0]} there and is {values[1]} here"
    return ""


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
    jobs = make_jobs(study, out, how.only)
    every = jobs + (_not_asked_for(study, out, how) if how.only else [])
    check_begun(every)
    elsewhere = done_before(every, how.earlier) if how.earlier else frozenset[str]()
    # one process at a time runs a study; the lock dies with it
    refused = f"another process runs the study in {out}; wait for it or choose another --out"
    with hold(out / "study.lock", refused):
        write_plan(out, study)
        room = room_for(jobs[0].config.run.device, how.side_by_side or study.plan.side_by_side, usable_cores())
        threads = max(1, usable_cores() // min(room.most, len(jobs)))
        queue = Queue(jobs, room, threads, study.plan.keep, how.retry, elsewhere, study.plan.seconds_per_step)
        queue.say = show.say
        show.begin(queue, minutes)
        for entry in queue.of(DONE):
            _compare_start(entry, out, how, show)
        number = signal.SIGINT
        try:
            with asked_to_end(_interrupt):
                while not queue.finished and time.monotonic() < deadline:
                    left = deadline - time.monotonic()
                    may_start = left > min(_SHORTEST_START, 30 * minutes)
                    for entry in queue.turn(may_start, left):
                        show.ended(entry)
                        _compare_start(entry, out, how, show)
                    show.look()
                    if not may_start and not queue.of(RUNNING):
                        break
                    time.sleep(_POLL_SECONDS)
        except Interrupted:
            number = signal.SIGTERM  # the runs save what they have done
            raise
        finally:
            queue.stop(number)
            show.end()
    return queue


def _not_asked_for(study: Study, out: Path, how: How) -> list[Job]:
    """The jobs of cells that --only leaves out and of which a run was begun here, or done elsewhere: they too must fit
    the plan."""
    begun = {run.cell for run in how.earlier.runs if run.status == DONE} if how.earlier else set[str]()
    for cell in study.cells:
        if any((run_folder(out, cell.name, seed) / METRICS).is_file() for seed in cell.seeds):
            begun.add(cell.name)
    others = [cell.name for cell in study.cells if cell.name in begun - {*how.only}]
    return make_jobs(study, out, others) if others else []


def _compare_start(entry: Entry, out: Path, how: How, show: Show) -> None:
    if told := other_start(out, entry.job.name, how.earlier):
        show.say(f"MIND: {told}")


def _interrupt(number: int) -> None:
    raise Interrupted(number)
