"""Plays environments of the verifiers package: their rows are the instances, their rubric gives the reward.

isentrope play verifiers --set task.options.env=my_environment

`env` is an installed environment, or a module with a function `load_environment`. Reward functions may be async.
"""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.worlds.adapters.seeded import play_order
from isentrope.worlds.contract import Expert, Instance, Step, View

EXTRA = "verifiers"


Asked = list[Any]  # the environment wants the model's next words; these are the messages that it shows
State = dict[str, Any]  # what is known about a rollout that is over and scored


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
    """One rollout, turned inside out. An environment of verifiers calls a model; a task of ours is called by one. So
    the environment plays in an event loop of its own thread, against a client that waits until a step brings the
    model's words."""

    def __init__(self, env: Any, row: dict[str, Any], stage: Stage) -> None:
        self._env, self._loop = env, stage.loop
        self._heard: queue.SimpleQueue[Asked | State | BaseException] = queue.SimpleQueue()
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._future = asyncio.run_coroutine_threadsafe(self._play(row), stage.loop)

    def next(self) -> Asked | State:
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
            self._heard.put(state)
        except (Exception, SystemExit) as error:
            self._heard.put(error)

    async def ask(self, messages: list[Any]) -> str:
        self._heard.put(list(messages))
        return await self._replies.get()


@cache
def _relay_class() -> type[Any]:
    """The client, made when the package is there to inherit from."""
    clients, types = (require(f"verifiers.{name}", EXTRA, "the verifiers world") for name in ("clients", "types"))

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


EVERY = 10  # where an environment has no rows for evaluation, one in so many of its rows is kept for that
RULES = "You are given a task and answer it. If there is more to do, you are told so and answer again."
YOUR_TURN = "Your answer?"


@dataclass(frozen=True)
class VerifiersOptions:
    env: str = setting("", "an installed environment, or a module with a function load_environment")
    args: dict[str, Any] = setting({}, "arguments of load_environment")
    form: str = setting("{action}", "the message that an action makes, e.g. <answer>{action}</answer> for a parser")
    full_score: float = setting(1.0, "the score of a solved task: rewards are divided by it", above=0)


class VerifiersWorld:
    name = "verifiers"

    def __init__(self, options: VerifiersOptions | None = None, environment: Any = None) -> None:
        """`environment`: one that is already there, for use from Python."""
        self.options = options or VerifiersOptions()
        package = require("verifiers", EXTRA, "the verifiers world")
        self.env = self._load(package) if environment is None else environment
        self._refuse_what_cannot_be_played(package)
        self._train, self._test = self._rows()
        kinds = {self._kind(rows, i) for rows in (self._train, self._test) for i in range(len(rows))}
        self.kinds = tuple(sorted(kinds))

    @cached_property
    def stage(self) -> Stage:
        return Stage()

    def splits(self) -> Sequence[str]:
        return ("train", "test") if len(self._test) else ("train",)

    def size(self, split: str) -> int | None:
        return len(self._split(split))

    def instance(self, split: str, index: int) -> Instance:
        rows = self._split(split)
        if not 0 <= index < len(rows):
            raise TaskError(f"the split {split} has the rows 0 to {len(rows) - 1}, not {index}")
        return Instance(self.name, split, index, self._kind(rows, index))

    def row(self, instance: Instance) -> dict[str, Any]:
        return dict(self._split(instance.split)[instance.index])

    def fingerprint(self, instance: Instance) -> str:
        row = self.row(instance)
        return repr((row.get("prompt"), row.get("answer"), row.get("info")))

    def open(self) -> VerifiersTask:
        return VerifiersTask(self)

    def expert(self, seed: int) -> Expert | None:
        return None

    def close(self) -> None:
        if "stage" in self.__dict__:
            self.stage.close()
            del self.__dict__["stage"]

    def _load(self, package: Any) -> Any:
        name = self.options.env
        if not name:
            raise TaskError(
                "task.options.env is empty: name an installed environment, or a module with a function load_environment"
            )
        with _signals_kept():  # an environment takes over Ctrl-C and the end of the process, which are not its own
            try:
                if "." in name:
                    return require(name, EXTRA, f"the environment {name}").load_environment(**self.options.args)
                return package.load_environment(name, **self.options.args)
            except TaskError:
                raise
            except Exception as error:
                raise TaskError(f"task.options.env = {name!r} could not be loaded: {error}") from error

    def _refuse_what_cannot_be_played(self, package: Any) -> None:
        name = self.options.env or type(self.env).__name__
        if not isinstance(self.env, package.Environment):
            raise TaskError(f"{name} is a {type(self.env).__name__}, not one of the classic environments of verifiers")
        if getattr(self.env, "tool_defs", None):
            raise TaskError(f"{name} gives the model tools, which are called by messages that are not text")
        if self.env.rubric.has_group_rewards:
            raise TaskError(f"{name} scores several answers against each other, which one episode cannot be")

    def _rows(self) -> tuple[Any, Any]:
        self.env.build_eval_dataset()
        rows = self.env.get_dataset()
        if self.env.eval_dataset is not None:
            return rows, self.env.get_eval_dataset()
        kept = range(EVERY - 1, len(rows), EVERY)
        return rows.select([i for i in range(len(rows)) if i not in kept]), rows.select(kept)

    def _split(self, split: str) -> Any:
        if split not in self.splits():
            raise TaskError(f"there is no split {split!r}; there are {', '.join(self.splits())}")
        return self._train if split == "train" else self._test

    def _kind(self, rows: Any, index: int) -> str:
        task = rows[index].get("task") if "task" in rows.column_names else None
        return task if isinstance(task, str) and task else str(self.options.env or self.env.env_id or "task")


class VerifiersTask:
    def __init__(self, world: VerifiersWorld) -> None:
        self._world = world
        self._episode: Episode | None = None

    def start(self, instance: Instance) -> View:
        self.close()
        self._episode = Episode(self._world.env, self._world.row(instance), self._world.stage)
        heard = self._episode.next()
        if not isinstance(heard, list):
            raise TaskError("the environment ended before it asked for anything")
        self._rules = _text(message for message in heard if message.role == "system") or RULES
        self._goal = _text(message for message in heard if message.role not in ("system", "assistant"))
        return View(YOUR_TURN, None, self._goal, self._rules)

    def step(self, action: str) -> Step:
        play_order(self._episode is not None)
        episode = cast(Episode, self._episode)
        said = action.encode("utf-8", "replace").decode("utf-8")
        episode.reply(self._world.options.form.replace("{action}", said))
        heard = episode.next()
        if isinstance(heard, list):
            return Step(self._view(_text(_since_last_answer(heard)) or YOUR_TURN))
        self._episode = None
        return self._scored(heard)

    def close(self) -> None:
        if self._episode is not None:
            self._episode.close()
        self._episode = None

    def _scored(self, state: State) -> Step:
        score = float(state["reward"] or 0.0)
        share = score / self._world.options.full_score
        cut_off = bool(state.get("timed_out"))
        metrics = cast("Mapping[str, Any]", state.get("metrics") or {})
        info: dict[str, str | float | bool] = {"score": score}
        info |= {str(name): float(value) for name, value in metrics.items()}
        last = _text(_since_last_answer(state["completion"] or [])) or "That was it."
        success = share >= 1.0 - 1e-9 and not cut_off
        reward = min(1.0, max(0.0, share))
        return Step(self._view(last), reward, not cut_off, cut_off, success, info=info)

    def _view(self, text: str) -> View:
        return View(text, None, self._goal, self._rules)


def _text(messages: Iterable[Any]) -> str:
    """What the messages say: each is text, or a list of parts with text."""
    contents = [one.content or "" for one in messages]
    parts = [cast("list[Any]", one) if isinstance(one, list) else [{"text": one}] for one in contents]
    return "\n".join(str(part.get("text", "")) for content in parts for part in content).strip()


def _since_last_answer(messages: Sequence[Any]) -> list[Any]:
    answers = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return list(messages[answers[-1] + 1 :] if answers else messages)


@contextmanager
def _signals_kept() -> Generator[None]:
    """Whatever is done about signals within this is undone."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            with suppress(ValueError, TypeError):  # not the main thread: nothing was changed either
                signal.signal(number, handler)
