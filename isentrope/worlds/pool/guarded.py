"""Plays tasks by slot number and turns whatever goes wrong in them into a `Failure`.

Tasks in this process, in threads and in worker processes are all played through this, so they give the same results.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from isentrope.core.errors import TaskError
from isentrope.core.signals import Interrupted
from isentrope.worlds.contract import Step, Task, View, World
from isentrope.worlds.pool.sanitize import Garbage, in_words, sanitize_step, sanitize_view

MAX_ACTION = 100_000  # characters that a task is given of an action

FailureKind = Literal["task_error", "time_limit", "worker_died", "garbage"]
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
Command = Literal["start", "step"]


@dataclass(frozen=True)
class Failure:
    """Why a slot has no result. Its episode is over; a new start may be tried.

    task_error: the task raised. time_limit: no answer in time. worker_died: the process or server that played it is
    gone. garbage: it answered, but its answer cannot be used.
    """

    kind: FailureKind
    detail: str


Result = View | Step | Failure


class TaskFailed(TaskError):
    """Raised by a task that knows better than "it raised" what became of it: one behind HTTP, say."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(detail)
        self.kind: FailureKind = kind


class GuardedTasks:
    """One task per slot, opened when first started, and opened anew after it failed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: dict[int, Task] = {}

    def play(self, command: Command, slot: int, argument: Any) -> Result:
        """Start the instance, or step with the action, that `argument` is."""
        try:
            if command == "start":
                if slot not in self._tasks:
                    self._tasks[slot] = self._world.open()
                return sanitize_view(self._tasks[slot].start(argument))
            if slot not in self._tasks:
                raise TaskError("step before start")
            return sanitize_step(self._tasks[slot].step(argument[:MAX_ACTION]))
        except BaseException as error:  # a task is somebody else's code: it may raise anything
            self.drop(slot)
            if _may_be_the_users(error):
                raise
            if isinstance(error, TaskFailed):
                return Failure(error.kind, in_words(error).partition(": ")[2])
            return Failure("garbage" if isinstance(error, Garbage) else "task_error", in_words(error))

    def close(self) -> None:
        for slot in list(self._tasks):
            self.drop(slot)

    def cut(self, slot: int) -> None:
        """Tell the slot's task, from another thread, that nobody waits for it any more, if it can be told."""
        cut = getattr(self._tasks.get(slot), "cut", None)
        if callable(cut):
            cut()

    def waited(self, slot: int) -> float:
        """Seconds that the slot's task waited for its turn somewhere else, within what it is doing, if it says so."""
        seconds = getattr(self._tasks.get(slot), "waited", 0.0)
        return seconds if isinstance(seconds, float) else 0.0

    def drop(self, slot: int) -> None:
        task = self._tasks.pop(slot, None)
        if task is not None:
            _quietly(task.close)


def close_world(world: World) -> None:
    """Let a world that holds something (processes, connections) give it back."""
    close = getattr(world, "close", None)
    if callable(close):
        _quietly(close)


def _quietly(close: Callable[[], object]) -> None:
    try:
        close()
    except BaseException as error:
        if _may_be_the_users(error):
            raise
        # else it is being thrown away: that it also closes badly changes nothing


def _may_be_the_users(error: BaseException) -> bool:
    """Whether this may be Ctrl-C, or a signal that asks for the end: they reach the main thread only, and worker
    processes leave them to the trainer."""
    return isinstance(error, Interrupted) or (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )
