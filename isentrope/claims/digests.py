"""A rule in one short word, so that nobody changes it unseen.

The digest of a rule is taken over its texts and numbers, and over the source of every function of ours that its numbers
come from, with the constants they use; comments, docstrings and layout aside. How findings become verdicts is shared by
all rules and has a digest of its own.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any, cast

from isentrope.claims.judge import find
from isentrope.claims.record import Claim

DECISION = "decision"
_FOLLOWED = ("isentrope.claims.", "isentrope.study.", "isentrope.instruments.", "isentrope.results.")
_NOT_FOLLOWED = ("isentrope.claims.record", "isentrope.study.read")  # what holds numbers, and computes none


def digest_of(claim: Claim) -> str:
    return _short(json.dumps(_plain(claim), sort_keys=True, ensure_ascii=False))


def digest_of_decision() -> str:
    return _short(json.dumps(sources_of(find), sort_keys=True, ensure_ascii=False))


def sources_of(root: FunctionType | type) -> dict[str, str]:
    """A function's code and that of all functions, classes and constants of ours behind it, by full name."""
    found: dict[str, str] = {}
    waiting: list[FunctionType | type] = [root]
    while waiting:
        one = waiting.pop()
        name = f"{one.__module__}.{one.__qualname__}"
        if name in found or one.__module__ in _NOT_FOLLOWED or not one.__module__.startswith(_FOLLOWED):
            continue
        found[name] = bare_source(inspect.getsource(one))
        for function in _functions(one):
            for used in sorted(_names(function.__code__) & function.__globals__.keys()):
                value = getattr(function.__globals__[used], "__wrapped__", function.__globals__[used])  # @cache
                if isinstance(value, FunctionType | type):
                    waiting.append(value)
                elif _is_constant(value):
                    found[f"{function.__module__}.{used}"] = repr(value)
    return found


@cache
def bare_source(source: str) -> str:
    """The code as a tree, without comments, docstrings and layout, written alike by every version of Python."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return _written(tree)


def _written(node: object) -> str:
    if isinstance(node, list):
        return "[" + ",".join(_written(one) for one in cast("list[object]", node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = [f"{name}={_written(value)}" for name, value in ast.iter_fields(node) if value is not None and value != []]
    return f"{type(node).__name__}({','.join(parts)})"


def _functions(one: FunctionType | type) -> Iterator[FunctionType]:
    if isinstance(one, FunctionType):
        yield one
        return
    for value in vars(one).values():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(inner, FunctionType):
            yield inner


def _names(code: CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*(_names(one) for one in inner))


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_constant(one) for one in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        return all(_is_constant(one) for one in cast("dict[object, object]", value).values())
    return isinstance(value, int | float | str)


def _plain(value: Any) -> Any:
    """What JSON can hold. A function becomes its sources."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in cast("tuple[Any, ...]", value)]
    return sources_of(value) if isinstance(value, FunctionType) else value


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
