"""Serves a task world over HTTP, until it is interrupted. The client's side is worlds/pool/remote.py.

GET  /v1/world                                      what is served
GET  /v1/instances?split=train&first=0&count=64     which games there are
POST /v1/start  {"session", "split", "index"}       {"view": ...} or {"failure": ...}
POST /v1/step   {"session", "number", "action"}     {"step": ...} or {"failure": ...}
                                                    both: {"queued": true}, to be asked again, if others come first
POST /v1/close  {"session"}

Each session plays episodes in one slot of a pool of tasks. A client names its session and numbers its steps (the start
is number 0). The last answer of a session is kept, so a request that is made again after a broken connection gets the
same answer, and nothing is played twice.

Tasks are played in worker processes or in threads, each with a queue in front of it. They stay where they were started,
so requests may have to wait for their turn though somebody else is free. What has to wait is known: a client is told
so, and does not take the server for lost.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from starlette.requests import Request

from isentrope import __version__
from isentrope.config.convert import parse_section
from isentrope.config.schema import TaskSettings
from isentrope.config.text import as_table
from isentrope.config.validate import is_remote
from isentrope.core.errors import ConfigError, TaskError
from isentrope.net.app import WITHOUT_KEY, Door, Guarded, Refusal, json_app, json_bytes, path_of
from isentrope.net.server import Limits, Server
from isentrope.worlds.pool.codec import Table, instance_to_table, pack, result_to_table, unpack
from isentrope.worlds.pool.guarded import close_world
from isentrope.worlds.pool.open import choose_placement
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.remote_servers import PATH, PROTOCOL
from isentrope.worlds.pool.sanitize import Garbage
from isentrope.worlds.pool.threads import ThreadTasks
from isentrope.worlds.registry import make_world, world_options

MAX_COUNT = 1000  # instances of one request
_ELSEWHERE = "there is only /v1/world, /v1/instances, /v1/start, /v1/step and /v1/close here"
HOLD_SECONDS = 1.0  # that a request is held while it waits for its turn; then the client asks again
QUEUED = {"queued": True}
_SESSION = re.compile(r"[0-9a-f]{32}")


class Turn:
    """Something to be played, from when it joins the queue."""

    def __init__(self, command: str, slot: int, argument: Any) -> None:
        self.command, self.slot, self.argument = command, slot, argument
        self.begun = False
        self.answer: Future[Table] = Future()


class Desk:
    """Plays slots for many clients at once. A slot belongs to one lane, where its task is: a pool of tasks with a
    queue, from which so many threads take one turn after another, in the order in which they came."""

    def __init__(self, task: TaskSettings, count: int) -> None:
        self.world = make_world(task.world, task.options)
        placement = choose_placement(task.where, task.workers, self.world)
        pools: Sequence[ThreadTasks | WorkerTasks]
        if placement.workers:
            with ThreadPoolExecutor(placement.workers) as threads:  # all come up at the same time
                arguments = (task.world, task.options, count, 1, task.step_seconds, self.world)
                begun = [threads.submit(WorkerTasks, *arguments) for _ in range(placement.workers)]
            pools, self._at_once = [worker.result() for worker in begun], 1  # a worker does one thing after another
        else:
            most = max(1, placement.threads)
            pools, self._at_once = [ThreadTasks(self.world, count, most, task.step_seconds)], min(most, count)
        self._lanes = [(pool, SimpleQueue[Turn | None]()) for pool in pools]
        for lane in self._lanes * self._at_once:
            threading.Thread(target=_work, args=lane, daemon=True, name="isentrope-lane").start()

    def play(self, command: str, slot: int, argument: Any) -> Turn:
        turn = Turn(command, slot, argument)
        self._lanes[slot % len(self._lanes)][1].put(turn)
        return turn

    def close(self) -> None:
        for pool, turns in self._lanes:
            for _ in range(self._at_once):
                turns.put(None)
            pool.close()
        close_world(self.world)


def _work(pool: ThreadTasks | WorkerTasks, turns: SimpleQueue[Turn | None]) -> None:
    while (turn := turns.get()) is not None:
        if not turn.answer.set_running_or_notify_cancel():
            continue
        turn.begun = True
        try:
            play: Any = pool.start if turn.command == "start" else pool.step
            turn.answer.set_result(result_to_table(play({turn.slot: turn.argument})[turn.slot]))
        except BaseException as error:
            turn.answer.set_exception(error)


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

    async def start(self, name: Any, split: Any, index: Any) -> Table:
        if not isinstance(name, str) or not _SESSION.fullmatch(name):
            raise Refusal("session: expected 32 hexadecimal digits")
        instance = await asyncio.to_thread(self.instance, split, index)  # some worlds take their time
        with self._lock:
            if name not in self._sessions:
                if not self._free:
                    raise Refusal(f"all {self._most} sessions are taken; close some, or serve more (--sessions)", 503)
                self._sessions[name] = _Session(self._free.pop())
            session = self._sessions[name]
        return await self._answer(session, self._once(session, 0, (split, index), instance))

    async def step(self, name: Any, number: Any, action: Any) -> Table:
        session = self._sessions.get(name) if isinstance(name, str) else None
        if session is None:
            raise _gone()
        if type(number) is not int or number < 1 or not isinstance(action, str):
            raise Refusal("a step needs a number from 1 on and an action, which is text")
        return await self._answer(session, self._once(session, number, action, action))

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
            names = [name for name, session in self._sessions.items() if session.used < end and not session.busy]
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

    def _once(self, session: _Session, number: int, request: object, argument: Any) -> Turn:
        """The turn in which it is played, or was."""
        with session.lock:
            if session.closed:
                raise _gone()
            if session.turn is None or number != session.number or request != session.request:
                if number != session.number + 1 or session.busy:
                    raise Refusal(f"step {number} is not what follows {session.number}, or was another one before", 409)
                session.turn = self._desk.play("step" if number else "start", session.slot, argument)
                session.number, session.request = number, request
            return session.turn

    async def _answer(self, session: _Session, turn: Turn) -> Table:
        """QUEUED if its turn does not come soon. What is being played cannot be cancelled, what waits is not."""
        answer = asyncio.wrap_future(turn.answer)
        await asyncio.wait((answer,), timeout=HOLD_SECONDS)
        table = await answer if turn.begun else QUEUED
        session.used = time.monotonic()
        return table

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


@contextmanager
def running(
    task: TaskSettings, host: str = "127.0.0.1", port: int | range = 8100, most: int = 256, idle_seconds: float = 600.0,
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
