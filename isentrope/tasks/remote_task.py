"""A task behind HTTP: one episode at a time, each a session on some server."""

from __future__ import annotations

import time
import uuid

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Step, View
from isentrope.tasks.remote_client import Line, Refused, TaskServer, TooLate, Unreachable
from isentrope.tasks.remote_servers import PATH, Fleet
from isentrope.tasks.slots import MAX_ACTION, Failure, FailureKind, TaskFailed
from isentrope.tasks.tidy import Garbage
from isentrope.tasks.wire import Table, result_from_table

CLOSE_SECONDS = 2.0
MOST_TURNS = 256  # that others may take, each in the time that a step has, before a request is given up
PAUSE = 0.02  # seconds before a server is asked again whether it is a request's turn


class RemoteTask:
    def __init__(self, fleet: Fleet, seconds: float) -> None:
        self._fleet, self._seconds = fleet, seconds
        self._server: TaskServer | None = None
        self._session = ""
        self._number = 0
        self._line = Line()
        self.waited = 0.0  # seconds of the current request in which others had their turn on the server

    def start(self, instance: Instance) -> View:
        deadline = time.monotonic() + self._seconds
        self._line, self.waited = Line(), 0.0
        full: list[str] = []
        while True:
            server = self._move(deadline + self.waited)
            body: Table = {"session": self._session, "split": instance.split, "index": instance.index}
            try:
                view = self._result(server, "start", body, max(0.01, deadline + self.waited - time.monotonic()))
            except Refused as error:
                self.close()
                full.append(str(error))
                if error.status != 503 or len(full) > 2 * len(self._fleet.servers):
                    raise TaskFailed("task_error", str(error)) from error
            except Unreachable as error:
                self._lose(server, error)  # nothing was played yet: another server may do it
            else:
                if not isinstance(view, View):
                    raise Garbage("the server answered a start with a step")
                return view

    def step(self, action: str) -> Step:
        if self._server is None:
            raise TaskError("step before start: start an instance first")
        server, self._line, self.waited = self._server, Line(), 0.0
        body: Table = {"session": self._session, "number": self._number + 1, "action": _sendable(action)}
        try:
            step = self._result(server, "step", body, self._seconds)
        except Refused as error:
            raise TaskFailed("worker_died" if error.status == 404 else "task_error", str(error)) from error
        except Unreachable as error:
            self._lose(server, error)
            raise TaskFailed("worker_died", f"the task server is gone: {error}") from error
        if not isinstance(step, Step):
            raise Garbage("the server answered a step with a view")
        self._number += 1
        return step

    def close(self) -> None:
        server, session = self._server, self._session
        self._forget()
        if server is not None and not server.down:
            try:
                server.ask(f"{PATH}/close", {"session": session}, CLOSE_SECONDS)
            except (Unreachable, TooLate, Refused, Garbage):
                pass  # the server drops sessions that nobody uses

    def cut(self) -> None:
        """From another thread: nobody waits for the answer any more."""
        self._line.cut()

    def _move(self, deadline: float) -> TaskServer:
        """To the server that the next episode is played on, with a new session."""
        try:
            server = self._fleet.pick(max(0.0, deadline - time.monotonic()), self._server)
        except Unreachable as error:
            raise TaskFailed("worker_died", str(error)) from error
        self.close()
        self._server, self._session, self._number = server, uuid.uuid4().hex, 0
        return server

    def _forget(self) -> None:
        if self._server is not None:
            self._fleet.leave(self._server)
        self._server, self._session = None, ""

    def _lose(self, server: TaskServer, error: Exception) -> None:
        self._fleet.lost(server, str(error))
        self._forget()

    def _result(self, server: TaskServer, what: str, body: Table, seconds: float) -> View | Step:
        try:
            result = result_from_table(self._answer(server, what, body, seconds))
        except TooLate as error:
            self._lose(server, error)  # it may only be this task; then the server says at once that it is there
            raise TaskFailed("time_limit", str(error)) from error
        except Garbage as error:
            self._lose(server, error)
            raise TaskFailed("garbage", f"{server.address}: {error}") from error
        if isinstance(result, Failure):
            kind: FailureKind = result.kind
            raise TaskFailed(kind, f"{server.address}: {result.detail}")
        return result

    def _answer(self, server: TaskServer, what: str, body: Table, seconds: float) -> Table:
        """Asks again as long as the server says that others come first; that time does not count."""
        before, began = self.waited, time.monotonic()
        while (answer := server.ask(f"{PATH}/{what}", body, seconds, self._line)) == {"queued": True}:
            self.waited = before + time.monotonic() - began
            if self.waited > MOST_TURNS * self._seconds:
                raise TaskFailed("time_limit", f"{server.address}: its turn did not come in {self.waited:.0f} s")
            time.sleep(PAUSE)
        return answer


def _sendable(action: str) -> str:
    return action[:MAX_ACTION].encode("utf-8", "replace").decode()
