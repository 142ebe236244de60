"""Plays a world that is served over HTTP by `isentrope serve-task`: `task.where = "http://127.0.0.1:8100"`.

To the pool it is a world like any other whose tasks wait for something, so it is played in threads. The numbers and
kinds of its games come from the server, so what the world needs has to be installed there only.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from isentrope.config.convert import parse_section
from isentrope.config.text import as_table
from isentrope.config.validate import addresses
from isentrope.core.errors import ConfigError, TaskError
from isentrope.net.client import Line, TooLate, Unreachable
from isentrope.worlds.contract import Expert, Instance, Step, View, World
from isentrope.worlds.pool.codec import Table, instance_from_table, result_from_table
from isentrope.worlds.pool.guarded import MAX_ACTION, Failure, TaskFailed, close_world
from isentrope.worlds.pool.remote_servers import PATH, Fleet, Refused, TaskServer, hashable
from isentrope.worlds.pool.sanitize import Garbage
from isentrope.worlds.registry import make_world, world_options

CLOSE_SECONDS = 2.0
MOST_TURNS = 256  # that others may take, each in the time that a step has, before a request is given up
PAUSE = 0.02  # seconds before a server is asked again whether it is a request's turn


class RemoteTask:
    """One episode at a time, each a session on some server."""

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
        sendable = action[:MAX_ACTION].encode("utf-8", "replace").decode()
        body: Table = {"session": self._session, "number": self._number + 1, "action": sendable}
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
            raise TaskFailed(result.kind, f"{server.address}: {result.detail}")
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


GRACE = 2.0  # seconds that a server has to say that a task took too long
BLOCK = 64  # instances that are asked for at once


class RemoteWorld:
    prefers = "local"
    threads = 64

    def __init__(
        self, world: str, options: Mapping[str, Any], where: str, step_seconds: float, key_env: str = ""
    ) -> None:
        self._asked_for = (world, dict(options))
        self._seconds = step_seconds + GRACE
        self.patience = step_seconds + 2 * GRACE  # for whoever watches the threads
        self._near: World | None = None  # the world itself, made here for its expert
        self.fleet = Fleet(addresses(where), _key(key_env))
        try:
            self._check(world, options)
        except BaseException:
            self.close()
            raise
        found = self.fleet.description
        self.name, self.kinds = found.name, found.kinds
        self._sizes = dict(found.splits)
        self._instances: dict[tuple[str, int], Instance] = {}

    def _check(self, world: str, options: Mapping[str, Any]) -> None:
        """The run records its world and options, so those of the server must be the same."""
        found = self.fleet.description
        if found.world != world:
            raise TaskError(f"task.world = {world}, but the task server serves {found.world}; set task.world to that")
        try:
            kind = world_options(world)
            expected = {} if kind is None else as_table(parse_section(kind, options, "task.options"))
        except TaskError:  # the world is not installed here, so its defaults are not known
            expected = dict(options)
        theirs = dict(found.options)
        for name, value in expected.items():
            if name not in theirs or theirs[name] != hashable(value):
                raise TaskError(
                    f"task.options.{name} = {value!r} here, but {theirs.get(name)!r} on the task server; set them alike"
                )

    def splits(self) -> Sequence[str]:
        return tuple(self._sizes)

    def size(self, split: str) -> int | None:
        if split not in self._sizes:
            raise TaskError(f"{self.name} has no split {split!r}; it has {', '.join(self._sizes)}")
        return self._sizes[split]

    def instance(self, split: str, index: int) -> Instance:
        size = self.size(split)
        if index < 0 or (size is not None and index >= size):
            raise TaskError(f"{self.name} has no game {index} in {split!r}")
        if (split, index) not in self._instances:
            first = index - index % BLOCK
            count = BLOCK if size is None else min(BLOCK, size - first)
            self._fetch(split, first, count)
        return self._instances[split, index]

    def _fetch(self, split: str, first: int, count: int) -> None:
        query = urlencode({"split": split, "first": first, "count": count})
        try:
            server = self.fleet.pick(self._seconds)
            try:
                found = server.ask(f"{PATH}/instances?{query}", None, self._seconds).get("instances")
            finally:
                self.fleet.leave(server)
            listed = [instance_from_table(item) for item in cast("list[Any]", found if isinstance(found, list) else [])]
        except (Unreachable, TooLate, Refused, Garbage) as error:
            raise TaskError(f"the task server could not say what game {first} of {split!r} is: {error}") from error
        if [(item.split, item.index) for item in listed] != [(split, first + i) for i in range(count)]:
            raise TaskError(f"{server.address} was asked for games {first} to {first + count - 1} and gave others")
        if len(self._instances) > 100 * BLOCK:
            self._instances.clear()
        self._instances |= {(item.split, item.index): item for item in listed}

    def open(self) -> RemoteTask:
        return RemoteTask(self.fleet, self._seconds)

    def expert(self, seed: int) -> Expert | None:
        """That of the world itself, where it is installed here too."""
        try:
            if self._near is None:
                self._near = make_world(*self._asked_for)
            return self._near.expert(seed)
        except TaskError:
            return None

    def close(self) -> None:
        self.fleet.close()
        if self._near is not None:
            close_world(self._near)
            self._near = None


def _key(name: str) -> str:
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key or not all("!" <= char <= "~" for char in key):
        raise ConfigError("task.key_env: expected the name of an environment variable that holds the server's key")
    return key
