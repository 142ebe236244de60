"""Plays reasoning-gym's data sets: one question, one answer, scored by the data set itself.

isentrope play reasoning_gym --set 'task.options.datasets=["countdown"]'
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from isentrope.config.schema import setting
from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.worlds.adapters.seeded import SeededWorld, play_order
from isentrope.worlds.contract import Expert, Instance, Move, Step, View

LITERALS = frozenset({"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"})
SUMS = frozenset({"countdown", "puzzle24"})
FORMULAS = frozenset({"simple_integration", "intermediate_integration", "polynomial_multiplication"})

_MAX_LITERAL = 5_000
_MAX_FORMULA = 500
_MAX_DEPTH = 20
_MAX_POWER = 200  # of powers of powers, multiplied
_HUGE = re.compile(r"[\d._][eE][+-]?[\d_]{4,}")  # 1e300000000 as a fraction has as many digits
_WORDS = frozenset(
    ("C", "E", "pi", "exp", "log", "ln", "sqrt", "sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan",
     "sinh", "cosh", "tanh", "Abs", "erf")
)  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(?P<number>\d{1,12}(?:\.\d{1,12})?)|(?P<word>[A-Za-z]+)|(?P<sign>\*\*|[-+*/()]))")
_EXPONENT = re.compile(
    r"\*\*\s*(?:-?\d{1,2}|\(\s*-?\d{1,2}(?:\s*/\s*\d{1,2})?\s*\)|\(?\s*-?[a-zA-Z]\s*\)?)(?!\s*[\d.]|\s*\*\*)"
)

_GLUED = re.compile(r"[\d.][A-Za-z]|.?[A-Za-z]+[\d.]")  # a letter may make another number of it: 1e9, 0x9, 1j


def harmless(data_set: str, answer: str) -> bool:
    """Whether the scorer of that data set may see the answer.

    Some scorers call Python's eval, or sympy's parse_expr which uses it, on the answer. An answer comes from a model,
    so it is only handed on if there is nothing in it but what such an answer is made of, and no number that takes
    forever to write out. What sympy makes of a harmless formula may still take long: that is for a time limit.
    """
    if _HUGE.search(answer):
        return False
    if data_set in LITERALS:
        return _is_literal(answer)
    if data_set in SUMS:
        return _is_formula(answer) and not re.search(r"[A-Za-z]|\*\s*\*", answer)
    if data_set in FORMULAS:
        return _is_formula(answer)
    return data_set != "complex_arithmetic" or not re.search("nan|inf", answer, re.IGNORECASE)  # nan scores 1 there


def _is_literal(answer: str) -> bool:
    """Text that eval can only read: plain values and lists of them, a single word, or no Python at all."""
    if len(answer) > _MAX_LITERAL:
        return False
    try:
        tree = ast.parse(answer.strip(), mode="eval")
    except (ValueError, SyntaxError):
        return True
    except (MemoryError, RecursionError):
        return False
    try:
        if not isinstance(tree.body, ast.Name):
            ast.literal_eval(tree)
        return True
    except (ValueError, MemoryError, RecursionError):
        return False


def _is_formula(answer: str) -> bool:
    """Numbers, the four operations, brackets, small powers, single letters and the names of usual functions."""
    if len(answer) > _MAX_FORMULA:
        return False
    position, depth = 0, 0
    text = answer.strip()
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or ((word := token["word"]) and len(word) > 1 and word not in _WORDS):
            return False
        if token["word"] and _GLUED.match(text, max(0, token.start("word") - 1)):
            return False
        if token["sign"] == "**" and not _EXPONENT.match(text, token.start("sign")):
            return False
        depth += {"(": 1, ")": -1}.get(token["sign"] or "", 0)
        if depth > _MAX_DEPTH:
            return False
        position = token.end()
    try:
        return _power(ast.parse(text, mode="eval").body) <= _MAX_POWER
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return True  # sympy reads no more than Python does


def _power(node: ast.AST) -> float:
    """The largest power of anything in the formula, powers of powers multiplied: 18 for ((x**2 + 1)**3)**3."""
    below = max((_power(child) for child in ast.iter_child_nodes(node)), default=1.0)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Pow):
        return below
    numbers = [one.value for one in ast.walk(node.right) if isinstance(one, ast.Constant)]
    return below * max((float(number) for number in numbers if isinstance(number, int | float)), default=1.0)


BLOCK = 50  # questions made at once: some data sets prepare all of their questions when they are made
DEFAULT = (
    "chain_sum", "leg_counting", "spell_backward", "letter_counting",
    "gcd", "simple_equations", "word_sorting", "countdown",
)  # fmt: skip
UNREPEATABLE = ("polynomial_multiplication", "isomorphic_strings", "ransom_note", "list_functions")
"""Their questions depend on the order of Python's sets, so each process makes others."""
ON_REQUEST = (
    "composite",  # needs a configuration
    "codeio",  # runs programs that a language model wrote
    "game_of_life_halting",  # its scorer takes any answer for right
    *UNREPEATABLE,
)
NO_ANSWERS = ("graph_color", "rubiks_cube", "boxnet", "rush_hour", "propositional_logic")
"""These know a right answer only when they see it."""
GOAL = "Answer the question."
RULES = (
    "You are asked one question and answer it once. Your action is the answer and nothing else: no sentence around it, "
    "no working, in the form that the question asks for."
)


@dataclass(frozen=True)
class ReasoningGymOptions:
    datasets: tuple[str, ...] = setting(
        DEFAULT,
        'names of data sets, played in turn; ["all"]: all but seven, which have to be named (see the docs page)',
    )
    config: dict[str, Any] = setting({}, "settings of a data set by its name, e.g. {chain_sum = {min_terms = 5}}")


class ReasoningGymWorld(SeededWorld):
    name = "reasoning_gym"

    def __init__(self, options: ReasoningGymOptions | None = None) -> None:
        self.options = options or ReasoningGymOptions()
        self._package: Any = require("reasoning_gym", "reasoning-gym", "the reasoning_gym world")
        known: Mapping[str, Any] = require("reasoning_gym.factory", "reasoning-gym", "reasoning_gym").DATASETS
        names = self.options.datasets
        self.kinds = tuple(name for name in known if name not in ON_REQUEST) if names == ("all",) else names
        for name in [*self.kinds, *self.options.config]:
            if name not in known:
                raise TaskError(f"reasoning-gym has no data set {name!r}{did_you_mean(name, known)}")
        if not self.kinds:
            raise TaskError("task.options.datasets is empty: name one data set at least")
        self.not_deterministic = dict.fromkeys(UNREPEATABLE, "its questions differ between processes")
        # a scorer may need hours for one answer, which ends a worker's step at the time limit and would end a run here;
        # but of a set whose questions differ between processes everybody has to get the same ones
        self.prefers = "local" if set(UNREPEATABLE) & set(self.kinds) else "processes"
        self._block = lru_cache(maxsize=64)(self._make_block)

    def open(self) -> ReasoningGymTask:
        return ReasoningGymTask(self)

    def expert(self, seed: int) -> Expert | None:
        return None if set(self.kinds) & set(NO_ANSWERS) else AnswerSheet(self)

    def question(self, instance: Instance) -> tuple[dict[str, Any], Callable[[str, dict[str, Any]], float]]:
        """The question with its answer, and the function that scores an answer to it."""
        number = self.seed(instance)
        data_set = self._block(instance.kind, number // BLOCK)
        return data_set[number % BLOCK], data_set.score_answer

    def _make_block(self, kind: str, block: int) -> Any:
        """Question i of a data set with seed s has the seed s + i, so blocks do not overlap."""
        given = cast("dict[str, Any]", self.options.config.get(kind, {}))
        try:
            return self._package.create_dataset(kind, **{"seed": block * BLOCK, "size": BLOCK, **given})
        except (AssertionError, TypeError, ValueError) as error:
            raise TaskError(f"reasoning-gym could not make {kind} with {given}: {error}") from error


class ReasoningGymTask:
    def __init__(self, world: ReasoningGymWorld) -> None:
        self._world = world
        self._entry: dict[str, Any] | None = None

    def start(self, instance: Instance) -> View:
        self._kind = instance.kind
        self._entry, self._score = self._world.question(instance)
        return View(str(self._entry["question"]), None, GOAL, RULES)

    def step(self, action: str) -> Step:
        play_order(self._entry is not None)
        score = self._rate(action.strip())
        self._entry = None
        solved = score >= 1.0
        view = View("That is right." if solved else "That is not right.", None, GOAL, RULES)
        return Step(view, reward=score, terminated=True, success=solved, info={"score": score})

    def _rate(self, answer: str) -> float:
        """Between 0 and 1. A scorer that stumbles over an answer has not been given a right one."""
        if self._entry is None or not (answer == self._entry["answer"] or harmless(self._kind, answer)):
            return 0.0
        try:
            return min(1.0, max(0.0, float(self._score(answer, self._entry))))
        except Exception:
            return 0.0

    def close(self) -> None:
        self._entry = None


class AnswerSheet:
    """The expert: it has the answers."""

    def __init__(self, world: ReasoningGymWorld) -> None:
        self._world = world

    def start(self, view: View, instance: Instance) -> None:
        self._answer = str(self._world.question(instance)[0]["answer"])

    def act(self, view: View) -> Move:
        return Move("I have worked the answer out.", self._answer)
