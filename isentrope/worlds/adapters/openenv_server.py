"""Serves a world by OpenEnv's protocol: any OpenEnv client plays it, naming a task by split and index, or a seed.

OpenEnv knows no keys, so the server stays on this machine and web pages from elsewhere are refused.
"""

from __future__ import annotations

import threading
from typing import Any

from isentrope.config.validate import is_local
from isentrope.core.errors import ConfigError, TaskError
from isentrope.net.app import Door, Guarded
from isentrope.net.server import Limits, Server
from isentrope.worlds.adapters.openenv import ENDLESS
from isentrope.worlds.contract import Step, Task, View, World
from isentrope.worlds.registry import require

PREVIEW = 100  # tasks listed at once
MAX_ACTION = 10_000  # characters


def open_server(world: World, host: str, port: int, sessions: int, to_others: bool = False) -> Server:
    """Nobody opens such a server to others by accident."""
    if not to_others and not is_local(host):
        raise ConfigError(
            f"--host {host} can be reached by others, and OpenEnv has no key: all of them could play. Stay on this "
            "machine with --host 127.0.0.1 (others come through a tunnel: ssh -L 8000:127.0.0.1:8000 HOST), or say "
            "--to-others"
        )
    # every session has a connection of its own
    return Server(make_app(world, sessions, to_others), host, port, Limits(connections=Limits.connections + sessions))


def make_app(world: World, sessions: int, to_others: bool = False) -> Guarded:
    """The ASGI application, which web pages from elsewhere cannot talk to."""
    server = require("openenv.core.env_server", "openenv", "an OpenEnv server")
    types = require("openenv.core.env_server.types", "openenv", "an OpenEnv server")
    action, observation = _messages(types)
    environment = environment_class(world, server.Environment, observation, types)
    app = server.create_fastapi_app(
        environment, action, observation, max_concurrent_envs=sessions, env_name=world.name, mode="simulation"
    )
    return Guarded(app, Door(local=not to_others), Limits(), error=lambda refusal: {"detail": refusal.message})


def _messages(types: Any) -> tuple[type[Any], type[Any]]:
    """The action and the observation, as pydantic models that describe themselves in the server's schema."""
    pydantic = require("pydantic", "openenv", "an OpenEnv server")
    action = pydantic.create_model("TextAction", __base__=types.Action, text=(str, ...))
    observation = pydantic.create_model(
        "TextObservation",
        __base__=types.Observation,
        text=(str, ""),
        goal=(str, ""),
        rules=(str, ""),
        admissible=(list[str] | None, None),
        success=(bool, False),
        valid=(bool, True),
        truncated=(bool, False),
    )
    return action, observation


class TaskLists:
    """The part of OpenEnv's interface that lists a world's tasks."""

    _world: World

    def list_splits(self) -> list[str]:
        return list(self._world.splits())

    def num_tasks(self, split: str) -> int:
        size = self._world.size(self._known(split))
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

    def _known(self, split: str) -> str:
        if split not in self._world.splits():
            raise IndexError(split)
        return split


def environment_class(world: World, base: type[Any], observation: type[Any], types: Any) -> type[Any]:
    turn = threading.Lock()  # sessions have threads of their own; a world need not be made for several

    class WorldEnvironment(TaskLists, base):
        """One session: a task of the world, opened when it is first reset."""

        SUPPORTS_CONCURRENT_SESSIONS = True
        _world = world

        def __init__(self) -> None:
            super().__init__()
            self._task: Task | None = None
            self._state = types.State()

        def reset(
            self,
            seed: int | None = None,
            episode_id: str | None = None,
            split: str | None = None,
            index: int | None = None,
            **kwargs: Any,
        ) -> Any:
            """The task named by split and index; without an index the seed takes its place."""
            name = world.splits()[0] if split is None else split
            number = (seed or 0) if index is None else index
            with turn:
                size = world.size(name)
                if index is None and size:
                    number %= size
                if self._task is None:
                    self._task = world.open()
                view = self._task.start(world.instance(name, number))
            self._state = types.State(episode_id=episode_id, step_count=0)
            return self._seen(view)

        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            if self._task is None:
                raise TaskError("step was called before reset")
            with turn:
                step: Step = self._task.step(action.text[:MAX_ACTION])
            self._state.step_count += 1
            return self._seen(
                step.view,
                reward=step.reward,
                done=step.terminated or step.truncated,
                success=step.success,
                valid=step.valid,
                truncated=step.truncated,
                metadata=dict(step.info),
            )

        def _seen(self, view: View, **more: Any) -> Any:
            listed = None if view.admissible is None else list(view.admissible)
            return observation(text=view.text, goal=view.goal, rules=view.rules, admissible=listed, **more)

        @property
        def state(self) -> Any:
            return self._state

        def close(self) -> None:
            if self._task is not None:
                with turn:
                    self._task.close()
            self._task = None

    return WorldEnvironment
