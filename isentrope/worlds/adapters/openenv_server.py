"""Serves a world by OpenEnv's protocol: any OpenEnv client plays it, naming a task by split and index, or a seed.

OpenEnv knows no keys, so the server stays on this machine and web pages from elsewhere are refused.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from isentrope.config.validate import is_local
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.needs import require
from isentrope.net.app import Door, Guarded
from isentrope.net.server import Limits, Server
from isentrope.worlds.adapters.openenv import ENDLESS
from isentrope.worlds.contract import Task, View, World
from isentrope.worlds.pool.guarded import MAX_ACTION

PREVIEW = 100  # tasks listed at once
LARGEST = 1 << 53  # an index or a seed is less


def open_server(world: World, host: str, port: int | range, sessions: int, to_others: bool = False) -> Server:
    """Nobody opens such a server to others by accident."""
    if not to_others and not is_local(host):
        raise ConfigError(
            f"--host {host} can be reached by others, and OpenEnv has no key: all of them could play. Stay on this "
            "machine with --host 127.0.0.1 (others come through a tunnel: ssh -L 8200:127.0.0.1:8200 HOST), or say "
            "--to-others"
        )
    # every session has a connection of its own
    limits = Limits(connections=Limits.connections + sessions)
    return Server(make_app(world, sessions, to_others), host, port, limits, websockets=True)


def make_app(world: World, sessions: int, to_others: bool = False) -> Guarded:
    """The ASGI application, which web pages from elsewhere cannot talk to."""
    server, types, pydantic = (
        require(module, "openenv", "an OpenEnv server")
        for module in ("openenv.core.env_server", "openenv.core.env_server.types", "pydantic")
    )
    # pydantic models, which describe themselves in the server's schema
    action = pydantic.create_model("TextAction", __base__=types.Action, text=(str, ...))
    texts: dict[str, Any] = dict.fromkeys(("text", "goal", "rules"), (str, ""))
    flags: dict[str, Any] = {"success": (bool, False), "valid": (bool, True), "truncated": (bool, False)}
    observation_type = pydantic.create_model(
        "TextObservation", __base__=types.Observation, **texts, admissible=(list[str] | None, None), **flags
    )

    class WorldEnvironment(Session, server.Environment):
        _world, _observation, _new_state = world, observation_type, types.State
        _turn = threading.Lock()  # sessions have threads of their own; a world need not be made for several

    app = server.create_fastapi_app(
        WorldEnvironment, action, observation_type, max_concurrent_envs=sessions, env_name=world.name, mode="simulation"
    )
    invalid = require("fastapi.exceptions", "openenv", "an OpenEnv server").RequestValidationError
    app.add_exception_handler(TaskError, _refused)
    app.add_exception_handler(invalid, _invalid)
    return Guarded(app, Door(local=not to_others), Limits(), error=lambda refusal: {"detail": refusal.message})


async def _refused(request: Request, error: Exception) -> Response:
    return _as_json({"detail": str(error)}, 400)


async def _invalid(request: Request, error: Any) -> Response:
    """Without what was sent, which need not be JSON again: NaN and infinity are read but not written."""
    found: list[dict[str, Any]] = error.errors()
    return _as_json({"detail": [{"loc": list(map(str, one["loc"])), "msg": one["msg"]} for one in found]}, 422)


def _as_json(value: Any, status: int) -> Response:
    """In ASCII: what was sent may be no Unicode."""
    return Response(json.dumps(value), status, media_type="application/json")


class Session:
    """One session by OpenEnv's interface: lists a world's tasks, and plays one, opened when it is first reset."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    _world: World
    _observation: type[Any]
    _new_state: type[Any]
    _turn: threading.Lock

    def __init__(self) -> None:
        super().__init__()
        self._task: Task | None = None
        self._state = self._new_state()

    def list_splits(self) -> list[str]:
        return list(self._world.splits())

    def num_tasks(self, split: str) -> int:
        if split not in self._world.splits():
            raise IndexError(split)
        size = self._world.size(split)
        return ENDLESS if size is None else size

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        try:
            instance = self._world.instance(split, index)
        except TaskError as error:
            raise IndexError(str(error)) from error
        return {"id": f"{split}-{index}", "index": index, "kind": instance.kind}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split, 0, PREVIEW)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        first = max(0, start or 0)
        last = min(self.num_tasks(split), first + PREVIEW if stop is None else stop, first + 10 * PREVIEW)
        return [self.get_task(split, index) for index in range(first, last)]

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The task named by split and index; without an index the seed takes its place."""
        name = self._world.splits()[0] if split is None else split
        number = (seed or 0) if index is None else index
        if type(name) is not str or type(number) is not int or not 0 <= number < LARGEST:
            raise TaskError(f"expected the split, a text, and index or seed, a whole number from 0 to {LARGEST - 1}")
        with self._turn:
            size = self._world.size(name)
            if index is None and size:
                number %= size
            if self._task is None:
                self._task = self._world.open()
            view = self._task.start(self._world.instance(name, number))
        self._state = self._new_state(episode_id=episode_id, step_count=0)
        return self._seen(view)

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        if self._task is None:
            raise TaskError("step was called before reset")
        with self._turn:
            step = self._task.step(action.text[:MAX_ACTION])
        self._state.step_count += 1
        flags = {"success": step.success, "valid": step.valid, "truncated": step.truncated}
        done = step.terminated or step.truncated
        return self._seen(step.view, reward=step.reward, done=done, metadata=dict(step.info), **flags)

    def _seen(self, view: View, **more: Any) -> Any:
        listed = None if view.admissible is None else list(view.admissible)
        return self._observation(text=view.text, goal=view.goal, rules=view.rules, admissible=listed, **more)

    @property
    def state(self) -> Any:
        return self._state

    def close(self) -> None:
        if self._task is not None:
            with self._turn:
                self._task.close()
        self._task = None
