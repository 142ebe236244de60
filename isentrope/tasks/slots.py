"""Tasks by slot number, with every misbehaviour turned into a `Failure`.

Both the in-process tasks and the worker processes play through this, so they give the same results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Step, Task, View, World

MAX_TEXT = 100_000  # characters of one observation, and of all its admissible actions together
MAX_ACTION = 10_000
MAX_DETAIL = 500

R = TypeVar("R", View, Step)


@dataclass(frozen=True)
class Failure:
    """Why a slot has no result. Its episode is over; a new start may be tried."""

    kind: Literal["task_error", "time_limit", "worker_died"]
    detail: str


class Slots:
    """One task per slot, opened when first started, and opened anew after it failed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: dict[int, Task] = {}

    def start(self, slot: int, instance: Instance) -> View | Failure:
        def play() -> View:
            if slot not in self._tasks:
                self._tasks[slot] = self._world.open()
            return tidy_view(self._tasks[slot].start(instance))

        return self._guarded(slot, play)

    def step(self, slot: int, action: str) -> Step | Failure:
        def play() -> Step:
            if slot not in self._tasks:
                raise TaskError("step before start")
            return tidy_step(self._tasks[slot].step(action[:MAX_ACTION]))

        return self._guarded(slot, play)

    def close(self) -> None:
        for slot in list(self._tasks):
            self._drop(slot)

    def _guarded(self, slot: int, play: Callable[[], R]) -> R | Failure:
        try:
            return play()
        except (Exception, SystemExit) as error:  # a task is somebody else's code: it may raise anything
            self._drop(slot)
            return Failure("task_error", in_words(error))

    def _drop(self, slot: int) -> None:
        task = self._tasks.pop(slot, None)
        try:
            if task is not None:
                task.close()
        except (Exception, SystemExit):
            pass  # it is being thrown away: that it also closes badly changes nothing


def tidy_view(view: Any) -> View:
    """The view with everything of the right type and within bounds: text from a task is not to be trusted."""
    if not isinstance(view, View):
        raise TaskError(f"the task gave a {type(view).__name__} where a View was expected")
    return View(
        text=_tidy_text(view.text),
        admissible=_tidy_actions(view.admissible),
        goal=_tidy_text(view.goal),
        rules=_tidy_text(view.rules),
    )


def tidy_step(step: Any) -> Step:
    if not isinstance(step, Step):
        raise TaskError(f"the task gave a {type(step).__name__} where a Step was expected")
    reward = float(step.reward)
    if not math.isfinite(reward):
        raise TaskError(f"the task gave the reward {reward}")
    info = {str(key)[:100]: _tidy_info(value) for key, value in list(step.info.items())[:100]}
    flags = {name: bool(getattr(step, name)) for name in ("terminated", "truncated", "success", "valid")}
    return Step(view=tidy_view(step.view), reward=reward, info=info, **flags)


def in_words(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # an error whose own text raises
        text = type(error).__name__
    return _valid_unicode(text[:MAX_DETAIL])


def _tidy_text(text: Any) -> str:
    if not isinstance(text, str):
        raise TaskError(f"the task gave a {type(text).__name__} where text was expected")
    return _valid_unicode(text[:MAX_TEXT])


def _tidy_actions(actions: Any) -> tuple[str, ...] | None:
    if actions is None:
        return None
    kept: list[str] = []
    total = 0
    for action in actions:
        text = _tidy_text(action)
        total += len(text) + 1
        if total > MAX_TEXT:
            break
        kept.append(text)
    return tuple(kept)


def _tidy_info(value: Any) -> str | float | bool:
    if isinstance(value, bool | int | float):
        return value
    return _valid_unicode(str(value)[:MAX_DETAIL])


def _valid_unicode(text: str) -> str:
    """Lone surrogates replaced: they can be neither tokenised nor stored."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
