"""Runs jobs side by side in threads, each within a time limit.

A thread cannot be ended from outside. One that takes too long is left behind: its job counts as late, a new thread
takes its place, and it leaves when (if ever) it comes back.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

R = TypeVar("R")
MAX_STUCK = 64  # threads left behind and not yet come back; beyond that no new ones are started


@dataclass(frozen=True)
class Late:
    """Instead of a result. `begun` is False if there was no thread left to take the job."""

    begun: bool


@dataclass(eq=False)
class Job(Generic[R]):
    """Something to do, once; the fields below the first three are filled in by the threads."""

    work: Callable[[], R]
    cut: Callable[[], object] = lambda: None  # called, from another thread, when it is late
    waited: Callable[[], float] = lambda: 0.0  # seconds since it began that do not count
    batch: Batch[R] = field(init=False)
    began: float | None = None
    result: R | Late | BaseException | None = None
    done: bool = False
    late: bool = False

    def left(self, seconds: float) -> float:
        """Of the time that it has."""
        return seconds if self.began is None else self.began + self.waited() + seconds - time.monotonic()


class Batch(Generic[R]):
    """Jobs of one caller, each with so many seconds from when a thread takes it up; those that have not begun when
    `altogether` is over are given up. If the caller is interrupted, nothing more is begun."""

    def __init__(self, seconds: float, altogether: float = math.inf) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + altogether
        self.running: dict[int, Job[R]] = {}
        self.done, self.awaited = 0, 0  # jobs that are done, and as many as the caller waits for


class DeadlineThreads:
    """At most `threads` threads, started when there is work for them."""

    def __init__(self, threads: int) -> None:
        self._max_threads = threads
        lock = threading.Lock()
        self._work_there, self._moved = threading.Condition(lock), threading.Condition(lock)
        self._queue: deque[Job[Any]] = deque()
        self._threads = self._idle = self._stuck = 0
        self._open = True
        self.left_behind = 0

    def run(self, jobs: Mapping[int, Job[R]], seconds: float, altogether: float = math.inf) -> dict[int, R | Late]:
        """All jobs, in a batch of their own. Any thread may call this."""
        batch: Batch[R] = Batch(seconds, altogether)
        self.put(batch, jobs)
        results = self.take(batch, len(jobs))
        return {number: results[number] for number in jobs}

    def put(self, batch: Batch[R], jobs: Mapping[int, Job[R]]) -> None:
        """More jobs, by numbers that no job of the batch has which is not yet taken."""
        with self._given_up_if_interrupted(batch), self._moved:
            for number, job in jobs.items():
                batch.running[number], job.batch = job, batch
                self._queue.append(job)
                self._start_thread()
                self._work_there.notify()

    def take(self, batch: Batch[R], least: int) -> dict[int, R | Late]:
        """The jobs of the batch that are done, or whose time is up, once there are so many of them, or all."""
        with self._given_up_if_interrupted(batch), self._moved:
            batch.awaited = min(least, len(batch.running))
            self._leave_behind(batch, batch.seconds, batch.end)
            while batch.done < batch.awaited:
                self._moved.wait(self._patience(batch))
                self._leave_behind(batch, batch.seconds, batch.end)
            taken: dict[int, Any] = {number: item.result for number, item in batch.running.items() if item.done}
            for number in taken:
                del batch.running[number]
            batch.done = 0
            return taken

    def give_up(self, batch: Batch[Any]) -> None:
        """Nobody waits for these any more: what has not begun is not, and the rest is left behind."""
        with self._moved:
            self._leave_behind(batch, -math.inf, -math.inf)

    @contextmanager
    def _given_up_if_interrupted(self, batch: Batch[Any]) -> Generator[None]:
        try:
            yield
        except BaseException:  # Ctrl-C: nobody waits for these any more
            self.give_up(batch)
            raise

    def close(self) -> None:
        """Threads leave when they have nothing to do."""
        with self._work_there:
            self._open = False
            self._work_there.notify_all()

    def _start_thread(self) -> None:
        """A thread for the job that was just put into the queue, if none is free and there may be more."""
        if len(self._queue) > self._idle and self._threads < self._max_threads and self._stuck < MAX_STUCK:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name="isentrope-task").start()

    def _patience(self, batch: Batch[Any]) -> float:
        left = min((item.left(batch.seconds) for item in batch.running.values() if not item.done), default=0.0)
        if batch.end > (now := time.monotonic()):
            left = min(left, batch.end - now)
        return max(0.0, left) + 0.001

    def _leave_behind(self, batch: Batch[Any], seconds: float, end: float) -> None:
        """Jobs whose time is up. Those that no thread is left for, or no time, are given up too."""
        items = list(batch.running.values())
        if time.monotonic() >= end:
            self._give_up(items)
        for item in items:
            if not item.done and item.began is not None and item.left(seconds) <= 0:
                item.late = True
                self._finish(item, Late(begun=True))
                self._threads -= 1
                self._stuck += 1
                self.left_behind += 1
                self._start_thread()
                threading.Thread(target=item.cut, daemon=True).start()  # it may be slow: not with the lock held
        if self._threads == 0:
            self._give_up(items)

    def _give_up(self, items: Iterable[Job[Any]]) -> None:
        """Those that have not begun."""
        for item in items:
            if not item.done and item.began is None:
                if item in self._queue:  # not so if its batch was interrupted on the way there
                    self._queue.remove(item)
                self._finish(item, Late(begun=False))

    def _finish(self, item: Job[Any], result: Any) -> None:
        item.done, item.result = True, result
        item.batch.done += 1
        if item.batch.done >= item.batch.awaited:
            self._moved.notify_all()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            try:
                result = item.work()
            except BaseException as error:  # jobs report their own failures; this is for the reader of a traceback
                result = error
            with self._work_there:
                if not item.late:
                    self._finish(item, result)
                    continue
                self._stuck -= 1
                self._start_thread()
            return

    def _next(self) -> Job[Any] | None:
        with self._work_there:
            self._idle += 1
            while not self._queue and self._open:
                self._work_there.wait()
            self._idle -= 1
            if not self._queue:
                self._threads -= 1
                return None
            item = self._queue.popleft()
            item.began = time.monotonic()
            return item
