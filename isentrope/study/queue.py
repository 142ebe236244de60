"""The queue of a study: starts runs as processes of their own, as many side by side as there is room for.

Its state is what lies in the study's folder, so a study that was killed goes on by being started again: runs that are
done stay, runs that were under way resume from their last checkpoint, failed ones are left alone unless asked for.

Room on the CPU: one run for each core. On a GPU the first run is started alone; what it takes once it learns tells how
many more have room, up to one for each core, since every run needs one for its tasks and its bookkeeping.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from isentrope.charts.text import clipped, duration, visible
from isentrope.core.errors import RunError
from isentrope.core.process import signal_name
from isentrope.core.signals import ASKED_TO_END
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import Run, keep_numbers
from isentrope.runs.layout import METRICS
from isentrope.runs.lock import held_locks, is_alive
from isentrope.runs.log import last_records
from isentrope.study.jobs import Job
from isentrope.study.plan import log_file, note_file, read_note
from isentrope.study.read import DONE, FAILED, is_done

_FILLED = 0.9  # share of the memory that is given out
_SPARE = 1.15  # runs grow: episodes get longer
_TAIL = 20000  # bytes of a log
_REASON_LETTERS = 600
_BOX = re.compile(r"[│╭╮╰╯─]")
_PANEL = re.compile(r"╭─.*?╰─[^\n]*", re.DOTALL)


@dataclass
class Room:
    """Whether one more run may be started. `most` is a limit that somebody asked for or the number of cores."""

    most: int
    memory: Callable[[], tuple[float, float] | None] | None = None  # used and total, in MiB; None: not asked
    each: float = 0.0  # MiB of a run; 0: not known yet

    def __post_init__(self) -> None:
        seen = self.memory() if self.memory else None
        self._before = seen[0] if seen else 0.0

    def has_room(self, running: int, learning: int) -> bool:
        """`running` runs are under way, `learning` of them have done a step."""
        if running == 0:
            return True
        if running >= self.most:
            return False
        if self.memory is None:
            return True
        if not self.each and learning < running:
            return False
        seen = self.memory()
        if seen is None:
            return False
        self.each = self.each or max(1.0, (seen[0] - self._before) / running)
        return self._before + (running + 1) * self.each * _SPARE <= _FILLED * seen[1]


def room_for(device: str, asked: int, cores: int) -> Room:
    if asked:
        return Room(asked)
    on_gpu = device.startswith("cuda") or (device == "auto" and gpu_memory() is not None)
    return Room(cores, gpu_memory) if on_gpu else Room(cores)


def gpu_memory() -> tuple[float, float] | None:
    """MiB in use and in all, of the first GPU; None where there is none to ask."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
        used, total = told.splitlines()[0].split(",")
        return float(used), float(total)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def reason_of(code: int, log: Path) -> str:
    """Why a run failed, in a few words: from its exit status and the end of its log."""
    if code < 0 or code == ASKED_TO_END:
        name = signal_name(-code if code < 0 else signal.SIGTERM)
        return f"killed from outside ({name}), several times; was there too little memory?"
    said = _said(log)
    if code == 0:
        return clipped(f"ended without an error before its last step: {said}", _REASON_LETTERS)
    return clipped(said or f"ended with the exit status {code} and said nothing", _REASON_LETTERS)


def _said(log: Path) -> str:
    """The last error panel, without its frame; else the last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    panels = list(_PANEL.finditer(text))
    if panels and not text[panels[-1].end() :].strip():
        title, *body = panels[-1].group().splitlines()
        words = [" ".join(_BOX.sub(" ", part).split()) for part in (title, "\n".join(body))]
        return visible(": ".join(part for part in words if part))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return visible(lines[-1]) if lines else ""


class Progress:
    """How far a run has come, from the end of its log: cheap enough to ask every second."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.step, self.begun_at = 0, 0  # the last step; the one from which this process went on
        self.success: float | None = None  # at the last evaluation
        self.entropy: float | None = None
        self.began = self.looked = 0.0
        self.look()

    def begin(self) -> None:
        self.look()
        self.began, self.begun_at = time.monotonic(), self.step

    def look(self) -> None:
        self.looked = time.monotonic()
        for record in last_records(self.job.folder / METRICS):
            self.step = int(record["step"])
            self.entropy = _number(record.get("entropy/token"), self.entropy)
            told = [value for key, value in record.items() if key.startswith("eval/") and key.endswith("/success")]
            self.success = _number(told[-1], self.success) if told else self.success
        self.begun_at = min(self.begun_at, self.step)  # its checkpoint may be older than the end of the log was

    def is_done(self) -> bool:
        """Reads the whole folder: for a run that has ended."""
        try:
            return is_done(Run.open(self.job.folder))
        except RunError:
            return False

    @property
    def has_learnt(self) -> bool:
        """Whether this process has done a step: then it has all the memory that it needs."""
        return self.step > self.begun_at

    @property
    def steps_here(self) -> int:
        """That this process has done."""
        return self.step - self.begun_at if self.began else 0

    @property
    def seconds_per_step(self) -> float | None:
        """Evaluations and the start included; of a run that has ended, what it took."""
        return (self.looked - self.began) / self.steps_here if self.steps_here > 0 else None


def _number(value: Any, before: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else before


WAITING, RUNNING = "waiting", "running"
GRACE = 10.0  # seconds that a run has to end after it was asked to
_TRIES = 3  # times that a run is started that others kill, or that finds too little memory beside others
_SURE = 10  # steps after which a pace counts: the first ones hold the start and the first evaluation
_CLEARLY = 0.9  # of what it is expected to take: less time than this is clearly too little


@dataclass
class Entry:
    job: Job
    progress: Progress
    state: str = WAITING
    process: subprocess.Popen[bytes] | None = None
    tries: int = 0
    reason: str = ""


class Queue:
    def __init__(
        self, jobs: Sequence[Job], room: Room, threads: int, keep: str,
        retry: bool = False, elsewhere: Collection[str] = (), pace: float = 0.0,
    ) -> None:  # fmt: skip
        """`elsewhere` names jobs that were done in another place; `pace`: seconds a step until one is measured."""
        self.entries = [Entry(job, Progress(job), DONE if job.name in elsewhere else WAITING) for job in jobs]
        self.room, self.threads, self.keep, self.pace = room, threads, keep, pace
        self.say: Callable[[str], None] = lambda _: None  # what a user should know; by default nobody listens
        self._put_off: set[str] = set()
        for entry in self.of(WAITING):  # what the folder says of a run from before
            note = read_note(entry.job.folder)
            if entry.progress.is_done():
                self._done(entry)
            elif note is not None and not retry and note.get("settings") == list(entry.job.settings):
                entry.state, entry.reason = FAILED, str(note.get("reason", ""))
        needed = {entry.job.needs for entry in self.of(WAITING)}
        spent = {entry.job.needs for entry in self.entries} - needed  # warm-ups from which no run is to begin any more
        for entry in self.of(WAITING):
            if entry.job.name in spent:
                entry.state = DONE

    def of(self, state: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.state == state]

    @property
    def finished(self) -> bool:
        return not self.of(RUNNING) and not self._ready()

    def turn(self, may_start: bool = True, left: float = math.inf) -> list[Entry]:
        """See to the runs under way and start what there is room for; gives those that ended since the last time.

        `left`: seconds until the study has to stop.
        """
        ended = [entry for entry in self.of(RUNNING) if self._ended(entry)]
        while may_start:
            running = self.of(RUNNING)
            ready = self._ready()
            learning = sum(entry.progress.has_learnt for entry in running)
            if not ready or not self.room.has_room(len(running), learning):
                break
            locks = held_locks()
            free = [entry for entry in ready if not is_alive(entry.job.folder, locks)]
            if not free:  # somebody else runs them: wait
                break
            self._start(self._next(free, left))
        return ended

    def _next(self, free: Sequence[Entry], left: float) -> Entry:
        """The first that could end in the time left. If none could, the first of all: what it does is kept in its
        checkpoint, which is more than an idle device leaves."""
        seen = [entry.progress for entry in self.entries]
        could = [entry for entry in free if could_end(entry.progress, seen, self.pace, left)]
        chosen = could[0] if could else free[0]
        late = [entry.job.name for entry in free[: free.index(chosen)] if entry.job.name not in self._put_off]
        if late:
            self._put_off.update(late)
            more = f" and {len(late) - 1} more" if len(late) > 1 else ""
            self.say(f"put off: {late[0]}{more} cannot end in the {duration(left)} left; shorter runs go first")
        return chosen

    def _ready(self) -> list[Entry]:
        """Those that wait for nothing but room. What needs a failed warm-up fails with it."""
        states = {entry.job.name: entry.state for entry in self.entries}
        for entry in self.of(WAITING):
            if states.get(entry.job.needs) == FAILED:
                entry.state, entry.reason = FAILED, f"{entry.job.needs}, which it begins from, failed"
        return [entry for entry in self.of(WAITING) if states.get(entry.job.needs, DONE) == DONE]

    def command(self, job: Job) -> list[str]:
        return [sys.executable, "-m", "isentrope.study.child", str(os.getpid()), *job.command]

    def _start(self, entry: Entry) -> None:
        entry.job.folder.parent.mkdir(parents=True, exist_ok=True)
        note_file(entry.job.folder).unlink(missing_ok=True)
        environment = {"OMP_NUM_THREADS": str(self.threads), "PYTHONUNBUFFERED": "1"} | os.environ
        command = self.command(entry.job)
        with log_file(entry.job.folder).open("ab") as log:
            entry.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        entry.state, entry.tries = RUNNING, entry.tries + 1
        entry.progress.begin()

    def _ended(self, entry: Entry) -> bool:
        entry.progress.look()
        code = entry.process.poll() if entry.process else 0
        if code is None:
            return False
        if entry.progress.is_done():
            self._done(entry)
            return True
        reason = reason_of(code, log_file(entry.job.folder))
        crowded = len(self.of(RUNNING)) > 1 and "out of memory" in reason.lower()
        if (code < 0 or code == ASKED_TO_END or crowded) and entry.tries < _TRIES:  # it goes on from its checkpoint
            entry.state = WAITING
            if crowded:
                self.room.most = max(1, len(self.of(RUNNING)))
            return False
        entry.state, entry.reason = FAILED, reason
        note = {"status": FAILED, "reason": reason, "settings": list(entry.job.settings)}
        write_atomically(note_file(entry.job.folder), (json.dumps(note, indent=1) + "\n").encode())
        return True

    def _done(self, entry: Entry) -> None:
        entry.state = DONE
        note_file(entry.job.folder).unlink(missing_ok=True)
        if self.keep == "metrics" and entry.job.steps:
            keep_numbers(entry.job.folder)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End what is under way; it goes on from its last checkpoint when the study does. A run that gets SIGTERM first
        saves what it has done."""
        running = [entry for entry in self.of(RUNNING) if entry.process is not None]
        for entry in running:
            if number == signal.SIGTERM:  # to the run alone: a task that ended too would change its episodes
                with suppress(ProcessLookupError):
                    os.kill(cast("subprocess.Popen[bytes]", entry.process).pid, number)
            else:
                _signal(entry, number)
        saves = max((entry.job.config.run.grace for entry in running), default=0.0) if number == signal.SIGTERM else 0.0
        end = time.monotonic() + saves + GRACE
        for entry in running:
            assert entry.process is not None
            try:
                entry.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(entry, signal.SIGKILL)
                entry.process.wait()
            entry.progress.look()
            if entry.progress.is_done():
                self._done(entry)
            else:
                entry.state = WAITING


def _signal(entry: Entry, number: signal.Signals) -> None:
    """To the run and all processes that it started, such as task workers."""
    assert entry.process is not None
    try:
        os.killpg(entry.process.pid, number)
    except ProcessLookupError:
        pass


def seconds_left(run: Progress, seen: Sequence[Progress], told: float = 0.0) -> float:
    """What the rest of a run takes at the pace of its cell's other runs, or else of all that were seen, or else of
    `told` seconds a step; 0: nothing is known."""
    cell = run.job.folder.parent
    sure = [one for one in seen if one.steps_here >= _SURE and one.job.steps]
    alike = [one for one in sure if one.job.folder.parent == cell and one.seconds_per_step]
    paces = [pace for one in alike or sure if (pace := one.seconds_per_step)]
    return max(0, run.job.steps - run.step) * (median(paces) if paces else told)


def could_end(run: Progress, seen: Sequence[Progress], told: float, left: float) -> bool:
    """Whether a run could end in the `left` seconds: shortly before a study stops, shorter runs go first."""
    return _CLEARLY * seconds_left(run, seen, told) <= left
