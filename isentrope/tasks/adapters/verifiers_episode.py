"""One rollout of a verifiers environment, turned inside out.

An environment of verifiers calls a model; a task of ours is called by one. So the environment plays in an event loop of
its own thread against a client that asks us for the model's words and waits until a step brings them.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.needs import require

EXTRA = "verifiers"


@dataclass(frozen=True)
class Asked:
    """The environment wants the model's next words; these are the messages that it shows."""

    messages: list[Any]


@dataclass(frozen=True)
class Done:
    """The rollout is over and scored."""

    state: dict[str, Any]


class Stage:
    """A thread with an event loop, on which all episodes of a world are played."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="verifiers", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """End what is still being played, then the loop."""
        asyncio.run_coroutine_threadsafe(self._end_all(), self.loop)

    async def _end_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.call_soon(self.loop.stop)


class Episode:
    def __init__(self, env: Any, row: dict[str, Any], stage: Stage) -> None:
        self._env, self._loop = env, stage.loop
        self._heard: queue.SimpleQueue[Asked | Done | BaseException] = queue.SimpleQueue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._future = asyncio.run_coroutine_threadsafe(self._play(row), stage.loop)

    def next(self) -> Asked | Done:
        """What happens next; the environment's own errors are raised as a TaskError."""
        heard = self._heard.get()
        if isinstance(heard, BaseException):
            raise TaskError(f"the environment failed: {type(heard).__name__}: {heard!s:.300}") from heard
        return heard

    def reply(self, text: str) -> None:
        self._loop.call_soon_threadsafe(self._replies.put_nowait, text)

    def close(self) -> None:
        self._future.cancel()

    async def _play(self, row: dict[str, Any]) -> None:
        try:
            state = await self._env.rollout(row, _relay_class()(self), "isentrope", {})
            if state.get("error") is not None:
                raise state["error"]
            await self._env.rubric.score_rollout(state)
            await self._env.rubric.cleanup(state)
            self._heard.put(Done(state))
        except (Exception, SystemExit) as error:
            self._heard.put(error)

    async def ask(self, messages: list[Any]) -> str:
        self._heard.put(Asked(messages))
        return await self._replies.get()


@cache
def _relay_class() -> type[Any]:
    """The client, made when the package is there to inherit from."""
    clients = require("verifiers.clients", EXTRA, "the verifiers world")
    types = require("verifiers.types", EXTRA, "the verifiers world")

    class Relay(clients.Client):  # type: ignore[name-defined,misc]
        """Hands the model's words from a step to the environment."""

        def setup_client(self, config: Any) -> Any:
            return config

        async def to_native_tool(self, tool: Any) -> Any:
            return tool

        async def to_native_prompt(self, messages: Any) -> Any:
            return messages, {}

        async def get_native_response(self, prompt: Any, *args: Any, **kwargs: Any) -> str:
            return await self.client.ask(prompt)

        async def raise_from_native_response(self, response: str) -> None:
            pass

        async def from_native_response(self, response: str) -> Any:
            message = types.ResponseMessage(content=response, finish_reason="stop", is_truncated=False)
            return types.Response(id="", created=0, model="isentrope", message=message)

        async def close(self) -> None:
            pass

    return Relay
