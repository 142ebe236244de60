"""Keeps track of a run's task servers: which of them answer, and what they serve.

A server that is lost is asked again and again, in the background, until it is back; meanwhile new episodes go to the
others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from isentrope.config.validate import is_local
from isentrope.core.command import command
from isentrope.core.errors import ConfigError, TaskError
from isentrope.net.client import MAX_WORDS, Client, Line, TooLarge, TooLate, Unreachable
from isentrope.worlds.pool.codec import LARGEST_COUNT, LIKE_PATHS, MAX_MESSAGE, Table, pack, unpack
from isentrope.worlds.pool.sanitize import Garbage, checked_name

PROTOCOL = 1
PROBE_SECONDS = 2.0  # for a lost server to say that it is back
PROBE_PAUSE = 0.5
DESCRIBE_SECONDS = 30.0
PATH = f"/v{PROTOCOL}"
ATTEMPTS = 3


class Refused(Exception):
    """The server answered that it will not."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class TaskServer:
    """One address. Any thread may ask.

    A request is made again only if the connection broke. That is always safe: a start is named by its session and a
    step by its number, so the server answers a repeated request as it did the first time and plays nothing twice.
    """

    def __init__(self, address: str, key: str = "") -> None:
        self.address = address
        self.live = 0  # episodes being played there; the fleet's to count
        self.down = ""  # why it is not used at present
        parts = urlsplit(address)
        if key and parts.scheme != "https" and not is_local(parts.hostname or ""):
            raise ConfigError(
                f"task.where = {address}: the key would go over the network for all to read; use https (a proxy in "
                "front of the server) or a tunnel to this machine, or leave task.key_env out"
            )
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._client = Client(address, MAX_MESSAGE, headers, keep=True)

    def ask(self, path: str, body: Table | None, seconds: float, line: Line | None = None) -> Table:
        """The server's answer, a JSON object. POST with a body, else GET."""
        data = None if body is None else pack(body)
        try:
            answer = self._client.ask(path, data, seconds, line, ATTEMPTS)
        except TooLarge as error:
            raise Garbage(f"the server's answer has {error}") from None
        if answer.status == 200:
            return unpack(answer.body)
        try:
            words = str(unpack(answer.body).get("error", ""))
        except Garbage:
            words = ""
        said = "".join(char if char.isprintable() else " " for char in f"status {answer.status}: {words}")
        raise Refused(answer.status, f"{self.address}: {said[:MAX_WORDS]}")

    def close(self) -> None:
        self._client.close()


@dataclass(frozen=True)
class Description:
    """What a server serves."""

    world: str  # as it was asked for: a name of the registry, or module:Class
    name: str
    kinds: tuple[str, ...]
    splits: tuple[tuple[str, int | None], ...]
    options: tuple[tuple[str, Any], ...]


class Fleet:
    def __init__(self, addresses: Sequence[str], key: str = "") -> None:
        self.servers = [TaskServer(address, key) for address in addresses]
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self.lost_count = 0
        self.description = self._describe_all()

    def _describe_all(self) -> Description:
        """All servers are asked at the same time; at least one must answer, and those that do must agree."""
        with ThreadPoolExecutor(len(self.servers)) as threads:
            found = list(threads.map(self._try_describe, self.servers))
        known = [(server, what) for server, what in zip(self.servers, found, strict=True) if what is not None]
        if not known:
            reasons = "; ".join(server.down for server in self.servers)
            raise TaskError(
                f"no task server answers: {reasons}. Start one with {command('serve-task')} WORLD --port PORT"
            )
        first, description = known[0]
        for server, other in known[1:]:
            if other != description:
                raise TaskError(f"{first.address} and {server.address} do not serve the same world with equal options")
        for server in self.servers:
            if server.down:
                self._watch(server)
        return description

    def _try_describe(self, server: TaskServer) -> Description | None:
        try:
            return read_description(server.ask(f"{PATH}/world", None, DESCRIBE_SECONDS))
        except (Unreachable, TooLate, Refused) as error:
            server.down = str(error)
        except Garbage as error:
            server.down = f"{server.address} is no task server of this version: {error}"
        return None

    def pick(self, seconds: float, current: TaskServer | None = None) -> TaskServer:
        """The living server with the fewest episodes, `current` if it is as good; waits for one if none is there."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (living := [server for server in self.servers if not server.down]):
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    reasons = "; ".join(server.down for server in self.servers)
                    raise Unreachable(f"no task server is there: {reasons}")
            picked = min(living, key=lambda server: (server.live - (server is current), server is not current))
            picked.live += 1
            return picked

    def leave(self, server: TaskServer) -> None:
        with self._changed:
            server.live -= 1

    def lost(self, server: TaskServer, why: str) -> None:
        """Do not use the server until it answers again."""
        with self._changed:
            if server.down or self._stopped.is_set():
                return
            server.down = why
            self.lost_count += 1
        server.close()
        self._watch(server)

    def close(self) -> None:
        self._stopped.set()
        for server in self.servers:
            server.close()

    def _watch(self, server: TaskServer) -> None:
        threading.Thread(target=self._wait_for, args=(server,), daemon=True, name="isentrope-probe").start()

    def _wait_for(self, server: TaskServer) -> None:
        while not self._stopped.is_set():
            try:
                found = read_description(server.ask(f"{PATH}/world", None, PROBE_SECONDS))
                if found == self.description:
                    break
                why = f"{server.address} is back, but serves something else"
            except (Unreachable, TooLate, Refused, Garbage) as error:
                why = str(error)
            with self._changed:
                server.down = why
            self._stopped.wait(PROBE_PAUSE)
        with self._changed:
            server.down = ""
            self._changed.notify_all()


def read_description(table: Table) -> Description:
    """Refuses what is not of this protocol."""
    if table.get("protocol") != PROTOCOL:
        raise Garbage(f"it does not speak version {PROTOCOL} of the protocol")
    kinds, splits, options = (table.get(name) for name in ("kinds", "splits", "options"))
    if not (isinstance(kinds, list) and isinstance(splits, dict) and isinstance(options, dict)):
        raise Garbage("its description of the world is not complete")
    sizes = [(checked_name(key, "split"), size) for key, size in cast("dict[str, Any]", splits).items()]
    if not all(size is None or (type(size) is int and 0 <= size < LARGEST_COUNT) for _, size in sizes):
        raise Garbage(f"the size of a split is no number from 0 on: {sizes!r:.80}")
    world, name = (checked_name(table.get(key), "world", LIKE_PATHS) for key in ("world", "name"))
    named = tuple(checked_name(kind, "kind of game", LIKE_PATHS) for kind in cast("list[Any]", kinds))
    known = sorted((key, hashable(value)) for key, value in cast("dict[str, Any]", options).items())
    return Description(world, name, named, tuple(sizes), tuple(known))


def hashable(value: Any) -> Any:
    return tuple(map(hashable, cast("list[Any]", value))) if isinstance(value, list | tuple) else value
