"""Java processes for as many games as are played at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from isentrope.errors import TaskError
from isentrope.tasks.scienceworld.jvm import Jvm
from isentrope.tasks.scienceworld.simulator import Simulator

ROOM = 16  # megabytes that a game is given; it takes about 11


class Machines:
    """Starts processes when they are needed: the first `jvms` as games are opened, more only when those are full.

    A process that died or hung is forgotten, and the next game that finds no room starts a new one.
    """

    def __init__(self, jvms: int, memory: int, seconds: float, repeatable: bool) -> None:
        self._jvms = jvms
        self._start = partial(Jvm, memory, seconds, repeatable)
        self._room = max(1, memory // ROOM)
        self._lock = threading.Lock()
        self._starting: list[_Start] = []
        self._free: list[Simulator] = []
        self._closed = False

    def take(self, slow: bool = False) -> Simulator:
        """A simulator that nobody else uses, until it is given back."""
        with self._lock:
            if self._closed:
                raise TaskError("the world of ScienceWorld is closed")
            while self._free and not slow:
                simulator = self._free.pop()
                if not simulator.jvm.fault:
                    return simulator
            start, mine = self._seat()
        if mine:
            start.run(self._start)
        return Simulator(start.ready.result(), slow)

    def give(self, simulator: Simulator) -> None:
        with self._lock:
            if not simulator.jvm.fault:
                self._free.append(simulator)

    def processes(self) -> list[Jvm]:
        """Those that are up."""
        with self._lock:
            return [start.ready.result() for start in self._starting if start.is_up()]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            starting, self._starting, self._free = self._starting, [], []
        for start in starting:
            if start.ready.exception() is None:  # waits until it is up
                start.ready.result().close()

    def _seat(self) -> tuple[_Start, bool]:
        """A place in a process, and whether the caller is the one who has to start it."""
        self._starting = [start for start in self._starting if not start.is_lost()]
        best = min(self._starting, key=lambda start: start.games, default=None)
        if best is None or len(self._starting) < self._jvms or best.games >= self._room:
            best = _Start()
            self._starting.append(best)
        best.games += 1
        return best, best.games == 1


class _Start:
    """A process that is up or on its way, and how many simulators were promised a place in it."""

    def __init__(self) -> None:
        self.games = 0
        self.ready: Future[Jvm] = Future()

    def run(self, start: Callable[[], Jvm]) -> None:
        try:
            self.ready.set_result(start())
        except BaseException as error:
            self.ready.set_exception(error)

    def is_up(self) -> bool:
        return self.ready.done() and self.ready.exception() is None and not self.ready.result().fault

    def is_lost(self) -> bool:
        return self.ready.done() and not self.is_up()
