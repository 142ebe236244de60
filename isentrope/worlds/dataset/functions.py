"""Reward functions of your own, by `module:function`, called by the names of their arguments.

    def short(response, answer):                       # a column of the data, and what the policy said
        return 1.0 if len(response) <= len(answer) + 10 else 0.0

    def right(prompts, completions, answer, **kwargs): # as TRL calls them: lists, here of one
        return [float(said.strip() == one) for said, one in zip(completions, answer)]

`response` is the answer (what stands in the action's tags, or a plain response without its thought), `prompt` the
question as it was asked, `row` all columns; any other name is a column. A function with `prompts` or `completions` is
called as TRL does: every argument a list of one, `**kwargs` the other columns, the result a list of one number or None.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, cast

from isentrope.config.parts import Parts
from isentrope.core.errors import TaskError
from isentrope.worlds.dataset.question import Question
from isentrope.worlds.pool.sanitize import LARGEST_REWARD, in_words

FUNCTIONS = Parts("reward function", "isentrope.dataset_rewards", error=TaskError)
_OURS = ("response", "prompt", "row")
_TRLS = ("prompts", "completions")


class Function:
    """One reward function, with its arguments looked up once."""

    hint = ""

    def __init__(self, target: str, columns: frozenset[str]) -> None:
        self.target = target
        function = FUNCTIONS.load(target)
        if not callable(function):
            raise TaskError(f"task.options.rewards: {target} is {function!r:.60}, expected a function")
        if inspect.iscoroutinefunction(function):
            raise TaskError(f"task.options.rewards: {target} is asynchronous; expected an ordinary function (def)")
        self.name = str(getattr(function, "__name__", target.rpartition(":")[2]))
        self._function: Callable[..., object] = function
        self._names, self._all = self._arguments(columns)
        self._batched = any(name in _TRLS for name in self._names)

    def _arguments(self, columns: frozenset[str]) -> tuple[tuple[str, ...], bool]:
        """The names that it asks for, and whether it takes all columns besides."""
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except (TypeError, ValueError):
            raise TaskError(f"task.options.rewards: {self.target} does not tell its arguments") from None
        names: list[str] = []
        for one in parameters:
            if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY):
                raise TaskError(f"task.options.rewards: {self.target} takes {one}; its arguments are given by name")
            if one.kind is one.VAR_KEYWORD:
                continue
            if one.name in (*_OURS, *_TRLS) or one.name in columns:
                names.append(one.name)
            elif one.default is one.empty:
                raise TaskError(
                    f"task.options.rewards: {self.target} has the argument {one.name!r}, which is none of "
                    f"{', '.join((*_OURS, *_TRLS))} and no column of the data ({', '.join(sorted(columns))[:200]})"
                )
        return tuple(names), any(one.kind is one.VAR_KEYWORD for one in parameters)

    def problem(self, question: Question) -> str:
        return ""

    def score(self, question: Question, response: str) -> float | None:
        """What it gives for one response; TaskError for what is no number. None: it says that it has none."""
        try:
            given = self._function(**self._given(question, response))
            return self._one(given) if self._batched else _number(given)
        except Exception as error:  # somebody's code, which may raise anything
            said = str(error) if type(error) is TaskError else f"raised {in_words(error)}"
            raise TaskError(f"the reward function {self.target} {said}") from None

    def _given(self, question: Question, response: str) -> dict[str, Any]:
        values = dict(question.row)
        if self._batched:
            told: Any = question.prompt
            said: Any = response
            if question.messages:
                told, said = [dict(one) for one in question.messages], [{"role": "assistant", "content": response}]
            values |= {"prompts": told, "completions": said}
            values = {name: [value] for name, value in values.items()}
        else:
            values |= {"response": response, "prompt": question.prompt, "row": dict(question.row)}
        return {name: one for name, one in values.items() if name in self._names or (self._all and name.isidentifier())}

    @staticmethod
    def _one(given: object) -> float | None:
        values: Any = given.tolist() if hasattr(given, "tolist") else given  # type: ignore[attr-defined]
        if not isinstance(values, list | tuple) or len(cast("list[object]", values)) != 1:
            raise TaskError(f"gave {given!r:.60} for one response; expected a list of one number")
        value = cast("list[object]", values)[0]
        return None if value is None else _number(value)


def _number(given: object) -> float:
    if given is None:
        raise TaskError("gave None; expected a number (perhaps a return is missing)")
    if isinstance(given, str | bytes) or not hasattr(given, "__float__"):
        raise TaskError(f"gave {given!r:.60}; expected a number")
    value = float(cast(float, given))
    if not math.isfinite(value) or abs(value) > LARGEST_REWARD:
        raise TaskError(f"gave {value}; expected a number of at most {LARGEST_REWARD:,.0f} in size")
    return value
