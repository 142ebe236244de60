"""The task of one slot that is played in threads.

A thread that takes too long cannot be stopped, and its task must not be touched by another one meanwhile. So a home
that is closed while its task is being played is closed by that thread, when it comes back.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

from isentrope.errors import TaskError
from isentrope.tasks.contract import Step, View, World
from isentrope.tasks.slots import Failure, Slots

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
