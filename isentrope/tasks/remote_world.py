"""A world behind HTTP: `task.where = "http://127.0.0.1:8100"`, served by `isentrope serve-task`.

To the pool it is a world like any other whose tasks wait for something, so it is played in threads. The numbers and
kinds of its games come from the server, so what the world needs has to be installed there only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from isentrope.config.address import addresses
from isentrope.config.convert import parse_section
from isentrope.config.text import as_table
from isentrope.errors import ConfigError, TaskError
from isentrope.tasks.contract import Expert, Instance, World
from isentrope.tasks.registry import make_world, world_options
from isentrope.tasks.remote_client import Refused, TooLate, Unreachable
from isentrope.tasks.remote_servers import PATH, Fleet
from isentrope.tasks.remote_task import RemoteTask
from isentrope.tasks.slots import close_world
from isentrope.tasks.tidy import Garbage
from isentrope.tasks.wire import instance_from_table

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
        self._told = 0

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
            if name not in theirs or _plain(theirs[name]) != _plain(value):
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

    def notes(self) -> dict[str, float]:
        """Servers lost since this was asked last."""
        since, self._told = self.fleet.lost_count - self._told, self.fleet.lost_count
        return {"servers_lost": float(since)} if since else {}

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


def _plain(value: Any) -> Any:
    return list(map(_plain, cast("list[Any]", value))) if isinstance(value, list | tuple) else value
