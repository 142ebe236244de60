"""A world of ours as an OpenEnv server: any OpenEnv client plays it, naming a task by split and index, or a seed."""

from __future__ import annotations

import threading
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.worlds.adapters.openenv_door import with_door
from isentrope.worlds.adapters.openenv_server_facts import ENDLESS
from isentrope.worlds.contract import Step, Task, View, World
from isentrope.worlds.registry import require

PREVIEW = 100  # tasks listed at once
MAX_ACTION = 10_000  # characters


def make_app(world: World, sessions: int, to_others: bool = False) -> Any:
    """The ASGI application, which web pages from elsewhere cannot talk to (openenv_door.py)."""
    server = require("openenv.core.env_server", "openenv", "an OpenEnv server")
    types = require("openenv.core.env_server.types", "openenv", "an OpenEnv server")
    action, observation = _messages(types)
    environment = environment_class(world, server.Environment, observation, types)
    app = server.create_fastapi_app(
        environment, action, observation, max_concurrent_envs=sessions, env_name=world.name, mode="simulation"
    )
    return with_door(app, to_others)


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


def environment_class(world: World, base: type[Any], observation: type[Any], types: Any) -> type[Any]:
    turn = threading.Lock()  # sessions have threads of their own; a world need not be made for several

    class WorldEnvironment(base):
        """One session: a task of the world, opened when it is first reset."""

        SUPPORTS_CONCURRENT_SESSIONS = True

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

        def list_splits(self) -> list[str]:
            return list(world.splits())

        def num_tasks(self, split: str) -> int:
            size = world.size(_known(world, split))
            return ENDLESS if size is None else size

        def get_task(self, split: str, index: int) -> dict[str, Any]:
            try:
                instance = world.instance(split, index)
            except TaskError as error:
                raise IndexError(str(error)) from error
            return {"id": f"{split}-{index}", "index": index, "kind": instance.kind}

        def list_tasks(self, split: str) -> list[dict[str, Any]]:
            return self.get_task_range(split, 0, PREVIEW)

        def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
            first = max(0, start or 0)
            last = min(self.num_tasks(split), first + PREVIEW if stop is None else stop, first + 10 * PREVIEW)
            return [self.get_task(split, index) for index in range(first, last)]

    return WorldEnvironment


def _known(world: World, split: str) -> str:
    if split not in world.splits():
        raise IndexError(split)
    return split
