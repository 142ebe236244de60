"""The episodes that a task server plays: sessions, each with a slot of a pool of tasks.

A client names its session and numbers its steps (the start is number 0). The last answer of a session is kept, so a
request that is made again after a broken connection gets the same answer, and nothing is played twice.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from isentrope.config.schema import TaskSettings
from isentrope.errors import TaskError
from isentrope.tasks.contract import Step, View
from isentrope.tasks.pool import Failure, ThreadTasks, WorkerTasks
from isentrope.tasks.registry import make_world
from isentrope.tasks.slots import close_world
from isentrope.tasks.where import place_of
from isentrope.tasks.wire import Table, result_to_table

_SESSION = re.compile(r"[0-9a-f]{32}")


class Refusal(Exception):
    """A request that is not carried out."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.words, self.status = words, status


class Desk:
    """Plays slots for many threads at once, where the settings say: in worker processes, or in threads."""

    def __init__(self, task: TaskSettings, count: int) -> None:
        self.world = make_world(task.world, task.options)
        place = place_of(task.where, task.workers, self.world)
        if place.workers:
            with ThreadPoolExecutor(place.workers) as threads:  # all come up at the same time
                begun = [threads.submit(self._worker, task, count) for _ in range(place.workers)]
            self._pools: list[Any] = [worker.result() for worker in begun]
            # a worker does one thing after another
            self._locks: list[AbstractContextManager[Any]] = [threading.Lock() for _ in self._pools]
        else:
            self._pools = [ThreadTasks(self.world, count, max(1, place.threads), task.step_seconds)]
            self._locks = [nullcontext()]

    def _worker(self, task: TaskSettings, count: int) -> WorkerTasks:
        return WorkerTasks(task.world, task.options, count, 1, task.step_seconds, self.world)

    def play(self, command: str, slot: int, argument: Any) -> View | Step | Failure:
        at = slot % len(self._pools)
        with self._locks[at]:
            played = self._pools[at].start if command == "start" else self._pools[at].step
            return played({slot: argument})[slot]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        close_world(self.world)


class _Session:
    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.lock = threading.Lock()
        self.number = -1
        self.request: object = None
        self.answer: Table = {}
        self.used = time.monotonic()


class Sessions:
    """At most `most` at a time; those that nobody asked anything of for `idle_seconds` are dropped."""

    def __init__(self, desk: Desk, most: int, idle_seconds: float) -> None:
        self._desk, self._most, self._idle_seconds = desk, most, idle_seconds
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._free = list(range(most))[::-1]  # the slot given back last is taken first: few tasks stay open
        self._world_lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def start(self, name: Any, split: Any, index: Any) -> Table:
        if not isinstance(name, str) or not _SESSION.fullmatch(name):
            raise Refusal("session: expected 32 hexadecimal digits")
        instance = self.instance(split, index)
        with self._lock:
            if name not in self._sessions:
                if not self._free:
                    raise Refusal(f"all {self._most} sessions are taken; close some, or serve more (--sessions)", 503)
                self._sessions[name] = _Session(self._free.pop())
            session = self._sessions[name]
        play = lambda: self._desk.play("start", session.slot, instance)  # noqa: E731
        return self._once(session, 0, (split, index), play)

    def step(self, name: Any, number: Any, action: Any) -> Table:
        session = self._sessions.get(name) if isinstance(name, str) else None
        if session is None:
            raise Refusal("there is no such session here: it was never started, was closed, or stood idle", 404)
        if type(number) is not int or number < 1 or not isinstance(action, str):
            raise Refusal("a step needs a number from 1 on and an action, which is text")
        return self._once(session, number, action, lambda: self._desk.play("step", session.slot, action))

    def close(self, name: Any) -> Table:
        """Closing what is not there is fine: it may have been closed before."""
        with self._lock:
            session = self._sessions.pop(name, None) if isinstance(name, str) else None
        if session is not None:
            with session.lock:  # a step that is still being played ends first
                self._give_back(session)
        return {"closed": session is not None}

    def sweep(self) -> None:
        """Drop sessions that stood idle."""
        end = time.monotonic() - self._idle_seconds
        with self._lock:
            idle = [name for name, one in self._sessions.items() if one.used < end and not one.lock.locked()]
            for name in idle:
                self._give_back_locked(self._sessions.pop(name))

    def instance(self, split: Any, index: Any) -> Any:
        if not isinstance(split, str) or type(index) is not int:
            raise Refusal("expected the split, which is text, and the index, an integer")
        try:
            with self._world_lock:
                return self._desk.world.instance(split, index)
        except TaskError as error:
            raise Refusal(str(error)) from error

    def _once(
        self, session: _Session, number: int, request: object, play: Callable[[], View | Step | Failure]
    ) -> Table:
        with session.lock:
            if number == session.number and request == session.request:
                return session.answer
            if number != session.number + 1:
                raise Refusal(f"step {number} is not what follows {session.number}, or was another one before", 409)
            session.answer = result_to_table(play())
            session.number, session.request, session.used = number, request, time.monotonic()
            return session.answer

    def _give_back(self, session: _Session) -> None:
        with self._lock:
            self._give_back_locked(session)

    def _give_back_locked(self, session: _Session) -> None:
        self._free.append(session.slot)
