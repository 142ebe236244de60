"""Tasks in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Literal

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Step, View, World
from isentrope.worlds.pool.base import Command, Pool, Result
from isentrope.worlds.pool.deadline_threads import Crew, Job, Late
from isentrope.worlds.pool.guarded import Failure, Slots, close_world
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.sanitize import in_words

# The task of one slot that is played in threads.
#
# A thread that takes too long cannot be stopped, and its task must not be touched by another one meanwhile. So a home
# that is closed while its task is being played is closed by that thread, when it comes back.


_ONLY = 0


class Home:
    def __init__(self, world: World) -> None:
        self._slots = Slots(world)
        self._lock = threading.Lock()
        self._playing = self._closed = False

    def play(self, command: Literal["start", "step"], argument: Any) -> View | Step | Failure:
        with self._lock:
            if self._closed:
                raise TaskError("the pool of tasks is closed")
            self._playing = True
        try:
            return self._slots.start(_ONLY, argument) if command == "start" else self._slots.step(_ONLY, argument)
        finally:
            with self._lock:
                self._playing = False
                close = self._closed
            if close:
                self._slots.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._playing:
                return
        self._slots.close()

    def cut(self) -> None:
        """Tell the task, from another thread, that nobody waits for it any more, if it can be told."""
        self._slots.cut(_ONLY)

    def waited(self) -> float:
        """Seconds of what is being played that do not count, as the task only waited for its turn somewhere else."""
        return self._slots.waited(_ONLY)


CLOSE_SECONDS = 5.0  # for a task in a thread to close, and for its world
CLOSE_ALL_SECONDS = 10.0  # for all tasks in threads
MOST_CLOSERS = 8


class ThreadTasks(Pool):
    """Slots in threads of this process, for worlds that wait for something else: a JVM, a server, a program.

    `start` and `step` may be called by several threads at once, for different slots; `send` and `receive` belong to
    one.
    """

    def __init__(self, world: World, count: int, threads: int, step_seconds: float) -> None:
        super().__init__(world, count)
        self._crew = Crew(min(threads, count))
        self._step_seconds = step_seconds
        self._homes = {slot: Home(world) for slot in range(count)}
        self._sent = self._crew.batch(step_seconds)
        self._told = 0

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        self._check(slot_instances)
        return self._play("start", slot_instances)

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        self._check(actions)
        return self._play("step", actions)

    def notes(self) -> dict[str, float]:
        since, self._told = self._crew.left_behind - self._told, self._crew.left_behind
        notes = {"threads_left": float(since)} if since else {}
        if isinstance(self._world, RemoteWorld):
            notes |= self._world.notes()
        return notes

    def close(self) -> None:
        if self._open:
            super().close()
            self._sent.give_up()
            self._crew.close()
            closing = {slot: Job(home.close) for slot, home in self._homes.items()}
            closers = Crew(min(MOST_CLOSERS, len(closing)))  # the threads that play may all be stuck
            closers.run(closing, min(CLOSE_SECONDS, self._step_seconds), CLOSE_ALL_SECONDS)
            closers.close()
            last = threading.Thread(target=close_world, args=(self._world,), daemon=True)
            last.start()
            last.join(CLOSE_SECONDS)

    def _begin(self, command: Command, arguments: Mapping[int, Any]) -> None:
        self._sent.put({slot: self._job(slot, command, argument) for slot, argument in arguments.items()})

    def _gather(self, wait: bool) -> dict[int, Result]:
        return {slot: self._result(slot, found) for slot, found in self._sent.take(1 if wait else 0).items()}

    def _play(self, command: Command, arguments: Mapping[int, Any]) -> dict[int, Any]:
        jobs = {slot: self._job(slot, command, argument) for slot, argument in arguments.items()}
        return {slot: self._result(slot, found) for slot, found in self._crew.run(jobs, self._step_seconds).items()}

    def _job(self, slot: int, command: Command, argument: Any) -> Job[Any]:
        home = self._homes[slot]
        return Job(lambda: home.play(command, argument), home.cut, home.waited)

    def _result(self, slot: int, found: Any) -> Any:
        if isinstance(found, Late):
            if found.begun:
                self._homes[slot].close()  # its thread does it, when it comes back
                self._homes[slot] = Home(self._world)
            return Failure("time_limit", _lateness(found, self._step_seconds))
        return Failure("task_error", in_words(found)) if isinstance(found, BaseException) else found


def _lateness(late: Late, seconds: float) -> str:
    if late.begun:
        return f"no answer within {seconds:g} s; its thread was left behind"
    return "not begun: all threads that may be left behind by tasks that hang have been; try task.where = processes"
