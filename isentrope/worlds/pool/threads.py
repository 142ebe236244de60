"""Plays tasks in threads of this process, each step within a time limit."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Step, View, World
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.deadline_threads import Batch, DeadlineThreads, Job, Late
from isentrope.worlds.pool.guarded import Command, Failure, GuardedTasks, Result, close_world
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.sanitize import in_words

_ONLY = 0  # the slot of a SlotTask, which has one task


class SlotTask:
    """The task of one slot.

    A thread that takes too long cannot be stopped, and its task must not be touched by another one meanwhile. So a task
    that is closed while it is being played is closed by the thread that plays it, when that comes back.
    """

    def __init__(self, world: World) -> None:
        self.tasks = GuardedTasks(world)
        self._lock = threading.Lock()
        self._playing = self._closed = False

    def play(self, command: Command, argument: Any) -> Result:
        with self._lock:
            if self._closed:
                raise TaskError("the pool of tasks is closed")
            self._playing = True
        try:
            return self.tasks.play(command, _ONLY, argument)
        finally:
            with self._lock:
                self._playing = False
                close = self._closed
            if close:
                self.tasks.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._playing:
                return
        self.tasks.close()


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
        self._told = 0

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        return self._play("start", slot_instances)

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        return self._play("step", actions)

    def notes(self) -> dict[str, float]:
        since, self._told = self._threads.left_behind - self._told, self._threads.left_behind
        notes = {"threads_left": float(since)} if since else {}
        if isinstance(self._world, RemoteWorld):
            notes |= self._world.notes()
        return notes

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
        return {slot: self._job(self._tasks[slot], command, argument) for slot, argument in arguments.items()}

    def _job(self, task: SlotTask, command: Command, argument: Any) -> Job[Any]:
        tasks = task.tasks
        return Job(lambda: task.play(command, argument), lambda: tasks.cut(_ONLY), lambda: tasks.waited(_ONLY))

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
