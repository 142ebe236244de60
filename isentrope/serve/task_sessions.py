"""The episodes that a task server plays: sessions, each with a slot of a pool of tasks.

A client names its session and numbers its steps (the start is number 0). The last answer of a session is kept, so a
request that is made again after a broken connection gets the same answer, and nothing is played twice.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.serve.task_desk import Desk, Turn
from isentrope.worlds.pool.codec import Table

HOLD_SECONDS = 1.0  # that a request is held while it waits for its turn; then the client asks again
QUEUED = {"queued": True}
_SESSION = re.compile(r"[0-9a-f]{32}")


class Refusal(Exception):
    """A request that is not carried out."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.words, self.status = words, status


class _Session:
    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.lock = threading.Lock()
        self.closed = False
        self.number = -1
        self.request: object = None
        self.turn: Turn | None = None  # the last one
        self.used = time.monotonic()

    @property
    def busy(self) -> bool:
        return self.turn is not None and not self.turn.answer.done()


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
        return self._once(session, 0, (split, index), instance)

    def step(self, name: Any, number: Any, action: Any) -> Table:
        session = self._sessions.get(name) if isinstance(name, str) else None
        if session is None:
            raise _gone()
        if type(number) is not int or number < 1 or not isinstance(action, str):
            raise Refusal("a step needs a number from 1 on and an action, which is text")
        return self._once(session, number, action, action)

    def close(self, name: Any) -> Table:
        """Closing what is not there is fine: it may have been closed before."""
        with self._lock:
            session = self._sessions.pop(name, None) if isinstance(name, str) else None
        if session is not None:
            self._end(session)
        return {"closed": session is not None}

    def sweep(self) -> None:
        """Drop sessions that stood idle."""
        end = time.monotonic() - self._idle_seconds
        with self._lock:
            names = [name for name, one in self._sessions.items() if one.used < end and not one.busy]
            idle = [self._sessions.pop(name) for name in names]
        for session in idle:
            self._end(session)

    def instance(self, split: Any, index: Any) -> Any:
        if not isinstance(split, str) or type(index) is not int:
            raise Refusal("expected the split, which is text, and the index, an integer")
        try:
            with self._world_lock:
                return self._desk.world.instance(split, index)
        except TaskError as error:
            raise Refusal(str(error)) from error

    def _once(self, session: _Session, number: int, request: object, argument: Any) -> Table:
        """Play it, or give the answer that it had; QUEUED if its turn does not come soon."""
        with session.lock:
            if session.closed:
                raise _gone()
            if session.turn is None or number != session.number or request != session.request:
                if number != session.number + 1 or session.busy:
                    raise Refusal(f"step {number} is not what follows {session.number}, or was another one before", 409)
                session.turn = self._desk.play("step" if number else "start", session.slot, argument)
                session.number, session.request = number, request
            turn = session.turn
        answer = turn.answer.result() if turn.begun.wait(HOLD_SECONDS) else QUEUED
        session.used = time.monotonic()
        return answer

    def _end(self, session: _Session) -> None:
        """What waits for its turn is not played any more; what is being played ends before others get the slot."""
        with session.lock:
            session.closed = True
        if session.turn is None:
            self._give_back(session)
        else:
            session.turn.answer.cancel()
            session.turn.answer.add_done_callback(lambda _: self._give_back(session))

    def _give_back(self, session: _Session) -> None:
        with self._lock:
            self._free.append(session.slot)


def _gone() -> Refusal:
    return Refusal("there is no such session here: it was never started, was closed, or stood idle", 404)
