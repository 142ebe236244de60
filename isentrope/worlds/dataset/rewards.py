"""The reward functions of a data set, by name, and what they make of a response together.

The reward is their weighted mean, so that it lies where they do: 1 if all give 1. The first one says whether the
question is solved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError
from isentrope.worlds.dataset import checkers
from isentrope.worlds.dataset.functions import FUNCTIONS, Function
from isentrope.worlds.dataset.options import DatasetOptions
from isentrope.worlds.dataset.question import Question


class Reward(Protocol):
    name: str
    hint: str  # what an agent is told of the answer, if the user says nothing

    def problem(self, question: Question) -> str:
        """What keeps a question from being scored; empty: nothing."""
        ...

    def score(self, question: Question, response: str) -> float | None:
        """TaskError for a response that could not be scored. None: there is nothing to say of it."""
        ...


def _exact(options: DatasetOptions) -> Reward:
    return checkers.Exact(extract_of(options))


def _numeric(options: DatasetOptions) -> Reward:
    return checkers.Numeric(extract_of(options), options.tolerance)


def _choice(options: DatasetOptions) -> Reward:
    return checkers.Choice(extract_of(options), options.answer)


def _regex(options: DatasetOptions) -> Reward:
    return checkers.Regex(extract_of(options), options.pattern)


def _math(options: DatasetOptions) -> Reward:
    from isentrope.worlds.dataset.mathematics import Math

    return Math(extract_of(options))


def _code(options: DatasetOptions) -> Reward:
    from isentrope.worlds.dataset.code import Code

    return Code(options.code)


def _judge(options: DatasetOptions) -> Reward:
    from isentrope.worlds.dataset.judge import Judge

    return Judge(options.judge)


BUILT_IN: Mapping[str, Callable[[DatasetOptions], Reward]] = {
    "exact": _exact,
    "numeric": _numeric,
    "choice": _choice,
    "regex": _regex,
    "math": _math,
    "code": _code,
    "judge": _judge,
}
COMPARE = frozenset({"exact", "numeric", "choice", "math"})
"""Those that a right answer of the data satisfies: an expert can give it."""
UNBOUNDED = frozenset({"regex", "math"})
"""Those that may never come to an end, as functions of somebody's own may: they are played in worker processes."""
THREADS: Mapping[str, int] = {"judge": 16, "code": 4}
"""Those that wait for something else, so that several tasks may be played at once."""


def extract_of(options: DatasetOptions) -> checkers.Extract:
    if options.extract_pattern:
        checkers.compiled(options.extract_pattern, "task.options.extract_pattern")
    return checkers.Extract(options.extract, options.extract_pattern)


def fitting(questions: Sequence[Question], options: DatasetOptions) -> str:
    """The checker for data of which the user says nothing: by the answers."""
    if options.choices:
        return "choice"
    numeric = _numeric(options)
    return "numeric" if all(one.answers and not numeric.problem(one) for one in questions) else "exact"


@dataclass(frozen=True)
class Scored:
    """What the functions gave, by name, and their weighted mean."""

    parts: Mapping[str, float]
    reward: float
    solved: bool


class Rewards:
    def __init__(self, names: Sequence[str], options: DatasetOptions, columns: frozenset[str]) -> None:
        self.names = tuple(names)
        self._functions = [_made(name, options, columns) for name in names]
        self._solved = options.solved
        called = [one.name for one in self._functions]
        if double := {name for name in called if called.count(name) > 1}:
            raise TaskError(f"task.options.rewards: two functions are called {', '.join(sorted(double))}; rename one")
        self._weights = options.weights or (1.0,) * len(names)
        if len(self._weights) != len(names):
            raise TaskError(
                f"task.options.weights has {len(options.weights)} numbers for {len(names)} reward functions "
                f"({', '.join(names)}); expected one each"
            )
        if not any(self._weights):
            raise TaskError("task.options.weights are all 0; expected at least one other number")

    @property
    def hint(self) -> str:
        return self._functions[0].hint

    def problem(self, question: Question) -> str:
        for one in self._functions:
            if problem := one.problem(question):
                return f"reward function {one.name}: {problem}"
        return ""

    def score(self, question: Question, response: str) -> Scored:
        parts: dict[str, float] = {}
        total = weight = 0.0
        for one, share in zip(self._functions, self._weights, strict=True):
            value = one.score(question, response)
            if value is None:
                continue
            parts[one.name] = value
            total, weight = total + share * value, weight + abs(share)
        solved = parts.get(self._functions[0].name, float("-inf")) >= self._solved - 1e-9
        return Scored(parts, total / weight if weight else 0.0, solved)


def _made(name: str, options: DatasetOptions, columns: frozenset[str]) -> Reward:
    if name in BUILT_IN:
        return BUILT_IN[name](options)
    if ":" not in name and name not in FUNCTIONS:
        raise TaskError(
            f"task.options.rewards: no reward function named {name!r} (one of your own is named by module:function)"
            f"{did_you_mean(name, [*BUILT_IN, *FUNCTIONS])}"
        )
    return Function(name, columns)
