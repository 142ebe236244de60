"""The reward function `math`: whether two formulas mean the same, by the package math-verify.

It parses LaTeX and plain arithmetic and has sympy compare them, which may take long for a formula that is made to: so
the world is played in worker processes, whose steps have a limit (task.step_seconds).
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.worlds.dataset.checkers import Extract, after_hashes, boxed
from isentrope.worlds.dataset.question import Question

LONGEST = 20_000  # characters of a response that are looked at: its end


class Math:
    """1 if the response's last formula, or the one in \\boxed{...}, equals a right one."""

    name = "math"
    hint = "Work it out step by step if you need to, and put the result into \\boxed{}."

    def __init__(self, extract: Extract) -> None:
        self._package: Any = require("math_verify", "math", "the reward function math")
        for part in ("parser", "grader", "utils"):  # they say at every call that the limit is ours to keep
            logging.getLogger(f"math_verify.{part}").setLevel(logging.ERROR)
        self._extract, self._right = extract, lru_cache(maxsize=4096)(self._parsed_right)

    def problem(self, question: Question) -> str:
        return "" if all(one.strip() for one in question.answers) and question.answers else "its answer is empty"

    def score(self, question: Question, response: str) -> float:
        found = self._extract(response[-LONGEST:])
        said: Any = self._parse(found) if found is not None else None
        rights = [self._right(answer) for answer in question.answers]
        return float(any(self._package.verify(right, said, timeout_seconds=None) for right in rights) if said else 0.0)

    def _parsed_right(self, answer: str) -> Any:
        formula = after_hashes(answer) or boxed(answer) or answer
        parsed = self._parse(formula if "$" in formula else f"${formula}$")
        if not parsed:
            raise TaskError(f"the right answer {answer!r:.80} is no formula that math-verify can read")
        return parsed

    def _parse(self, text: str) -> Any:
        return self._package.parse(text, parsing_timeout=None)
