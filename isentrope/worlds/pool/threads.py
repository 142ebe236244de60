"""Plays tasks in threads of this process, each step within a time limit.

A thread cannot be ended from outside. One that takes too long is left behind: its job counts as late, a new thread
takes its place, and it leaves when (if ever) it comes back.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Step, View, World
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.guarded import Command, Failure, GuardedTasks, Result, close_world
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.sanitize import in_words

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
                if not item.done:  # else it was late
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


_ONLY = 0  # the slot of a SlotTask, which has one task


class SlotTask:
    """The task of one slot.

    A thread that takes too long cannot be stopped, and its task must not be touched by another one meanwhile. So a task
    that is closed while it is being played is closed by the thread that plays it, when that comes back.
    """

    def __init__(self, world: World) -> None:
        self._tasks = GuardedTasks(world)
        self._lock = threading.Lock()
        self._playing = self._closed = False

    def job(self, command: Command, argument: Any) -> Job[Result]:
        tasks = self._tasks
        return Job(lambda: self._play(command, argument), lambda: tasks.cut(_ONLY), lambda: tasks.waited(_ONLY))

    def _play(self, command: Command, argument: Any) -> Result:
        with self._lock:
            if self._closed:
                raise TaskError("the pool of tasks is closed")
            self._playing = True
        try:
            return self._tasks.play(command, _ONLY, argument)
        finally:
            with self._lock:
                self._playing = False
                close = self._closed
            if close:
                self._tasks.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._playing:
                return
        self._tasks.close()


CLOSE_SECONDS = 5.0  # for a task in a thread to close, and for its world
CLOSE_ALL_SECONDS = 10.0  # for all tasks in threads
MOST_CLOSERS = 8


class ThreadTasks(TaskPool):
    """Slots in threads of this process, for worlds that wait for something else: a JVM, a server, a program.

    `start` and `step` may be called by several threads at once, for different slots; `send` and `receive` belong to
    one.
    """

    def __init__(self, world: World, count: int, threads: int, step_seconds: float) -> None:
        super().__init__(world, count)
        self._threads = DeadlineThreads(min(threads, count))
        self._step_seconds = step_seconds
        self._tasks = {slot: SlotTask(world) for slot in range(count)}
        self._sent: Batch[Any] = Batch(step_seconds)

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        return self._play("start", slot_instances)

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        return self._play("step", actions)

    def _happened(self) -> Counter[str]:
        lost = self._world.fleet.lost_count if isinstance(self._world, RemoteWorld) else 0
        return Counter(threads_left=self._threads.left_behind, servers_lost=lost)

    def close(self) -> None:
        if self._open:
            super().close()
            self._threads.give_up(self._sent)
            self._threads.close()
            closing = {slot: Job(task.close) for slot, task in self._tasks.items()}
            closers = DeadlineThreads(min(MOST_CLOSERS, len(closing)))  # the threads that play may all be stuck
            closers.run(closing, min(CLOSE_SECONDS, self._step_seconds), CLOSE_ALL_SECONDS)
            closers.close()
            last = threading.Thread(target=close_world, args=(self._world,), daemon=True)
            last.start()
            last.join(CLOSE_SECONDS)

    def _begin(self, command: Command, arguments: Mapping[int, Any]) -> None:
        self._threads.put(self._sent, self._jobs(command, arguments))

    def _gather(self, wait: bool) -> dict[int, Result]:
        return self._results(self._threads.take(self._sent, 1 if wait else 0))

    def _play(self, command: Command, arguments: Mapping[int, Any]) -> dict[int, Any]:
        self._check(arguments)
        return self._results(self._threads.run(self._jobs(command, arguments), self._step_seconds))

    def _jobs(self, command: Command, arguments: Mapping[int, Any]) -> dict[int, Job[Any]]:
        return {slot: self._tasks[slot].job(command, argument) for slot, argument in arguments.items()}

    def _results(self, found: Mapping[int, Any]) -> dict[int, Any]:
        return {slot: self._result(slot, result) for slot, result in found.items()}

    def _result(self, slot: int, result: Any) -> Result:
        if isinstance(result, BaseException):
            return Failure("task_error", in_words(result))
        if not isinstance(result, Late):
            return result
        if not result.begun:
            why = "all threads that may be left behind by tasks that hang have been; try task.where = processes"
            return Failure("time_limit", f"not begun: {why}")
        self._tasks[slot].close()  # its thread does it, when it comes back
        self._tasks[slot] = SlotTask(self._world)
        return Failure("time_limit", f"no answer within {self._step_seconds:g} s; its thread was left behind")
