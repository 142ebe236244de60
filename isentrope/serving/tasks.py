"""Serves a task world over HTTP, until it is interrupted. The client's side is worlds/pool/remote.py.

GET  /v1/world                                      what is served
GET  /v1/instances?split=train&first=0&count=64     which games there are
POST /v1/start  {"session", "split", "index"}       {"view": ...} or {"failure": ...}
POST /v1/step   {"session", "number", "action"}     {"step": ...} or {"failure": ...}
                                                    both: {"queued": true}, to be asked again, if others come first
POST /v1/close  {"session"}
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from starlette.requests import Request

from isentrope import __version__
from isentrope.config.convert import parse_section
from isentrope.config.schema import TaskSettings
from isentrope.config.text import as_table
from isentrope.config.validate import is_remote
from isentrope.core.errors import ConfigError
from isentrope.net.app import WITHOUT_KEY, Door, Guarded, Refusal, json_app, json_bytes, path_of
from isentrope.net.server import Limits, Server
from isentrope.serving.task_sessions import Desk, Sessions
from isentrope.worlds.pool.codec import Table, instance_to_table, pack, unpack
from isentrope.worlds.pool.remote_servers import PATH, PROTOCOL
from isentrope.worlds.pool.sanitize import Garbage
from isentrope.worlds.registry import world_options

MAX_COUNT = 1000  # instances of one request
_ELSEWHERE = "there is only /v1/world, /v1/instances, /v1/start, /v1/step and /v1/close here"


@contextmanager
def running(
    task: TaskSettings, host: str = "127.0.0.1", port: int = 8100, most: int = 256, idle_seconds: float = 600.0,
    key: str = "",
) -> Generator[Server]:  # fmt: skip
    """A server that listens but does not answer yet, for so many sessions at most. Port 0: any that is free."""
    if is_remote(task.where):
        raise ConfigError(f"task.where = {task.where}: a task server plays its tasks itself; use local or processes")
    limits = Limits(body=2**20, read_seconds=120.0, answer_seconds=1800.0 + 2 * task.step_seconds)
    desk = Desk(task, most)
    try:
        sessions = Sessions(desk, most, idle_seconds)
        api = json_app(TaskApi(sessions, describe(task, desk)), pack)
        app = Guarded(api, Door(key, words=WITHOUT_KEY), limits)
        with Server(app, host, port, limits, each_second=sessions.sweep) as server:
            yield server
    finally:
        desk.close()


def describe(task: TaskSettings, desk: Desk) -> Table:
    world, kind = desk.world, world_options(task.world)
    return {
        "protocol": PROTOCOL, "version": __version__, "world": task.world, "name": world.name,
        "kinds": list(world.kinds), "splits": {split: world.size(split) for split in world.splits()},
        "options": {} if kind is None else as_table(parse_section(kind, task.options, "task.options")),
    }  # fmt: skip


class TaskApi:
    """Answers requests by their paths."""

    def __init__(self, sessions: Sessions, description: Table) -> None:
        self._sessions, self._description = sessions, description

    async def __call__(self, request: Request) -> Table:
        path = path_of(request)
        if request.method == "GET" and path == f"{PATH}/world":
            return self._description
        if request.method == "GET" and path == f"{PATH}/instances":
            return await asyncio.to_thread(self._instances, request)
        if request.method != "POST" or path not in (f"{PATH}/start", f"{PATH}/step", f"{PATH}/close"):
            raise Refusal(_ELSEWHERE, 404)
        try:
            body = unpack(await json_bytes(request))
        except Garbage as error:
            raise Refusal(str(error).replace("the answer", "the request")) from error
        if path == f"{PATH}/start":
            return await self._sessions.start(body.get("session"), body.get("split"), body.get("index"))
        if path == f"{PATH}/step":
            return await self._sessions.step(body.get("session"), body.get("number"), body.get("action"))
        return self._sessions.close(body.get("session"))

    def _instances(self, request: Request) -> Table:
        query = request.query_params
        numbers = [query.get(name, "") for name in ("first", "count")]
        if not all(text.isdecimal() and len(text) <= 18 for text in numbers):
            raise Refusal("first and count: expected integers from 0 on")
        first, count = map(int, numbers)
        if count > MAX_COUNT:
            raise Refusal(f"count = {count}: at most {MAX_COUNT} at once")
        listed = [self._sessions.instance(query.get("split", ""), first + i) for i in range(count)]
        return {"instances": [instance_to_table(instance) for instance in listed]}
