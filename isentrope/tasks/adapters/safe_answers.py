"""Which answers may be handed to a scorer that evaluates them.

Some of reasoning-gym's scorers call Python's eval, or sympy's parse_expr which uses it, on the answer. An answer comes
from a model, so it is only handed on if there is nothing in it but what such an answer is made of, and no number that
takes forever to write out. What sympy makes of a harmless formula may still take long: that is for a time limit.
"""

from __future__ import annotations

import ast
import re

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
    """Whether the scorer of that data set may see the answer."""
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
        ast.literal_eval(answer.strip())
        return True
    except (ValueError, SyntaxError):
        pass
    except (MemoryError, RecursionError):
        return False
    try:
        tree = compile(answer.strip(), "answer", "eval", ast.PyCF_ONLY_AST)
    except (ValueError, SyntaxError):
        return True
    except (MemoryError, RecursionError):
        return False
    return isinstance(getattr(tree, "body", None), ast.Name)


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
