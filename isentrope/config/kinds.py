"""The types that settings may have, and what is allowed in words."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

_PLURALS = {str: "text", int: "integers", float: "numbers", bool: "true or false"}


def field_kinds(cls: type[Any]) -> dict[str, Any]:
    """Name -> type of every setting of a dataclass, annotations written as text resolved."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls) if item.init}


def inside_optional(kind: Any) -> Any | None:
    """X for `X | None`, else None."""
    if get_origin(kind) in (types.UnionType, Union):
        inner = [member for member in get_args(kind) if member is not type(None)]
        return inner[0] if len(inner) == 1 else None
    return None


def allowed_values(kind: Any, limits: Mapping[str, Any]) -> str:
    """What a setting may be, in words."""
    choices = limits.get("choices")
    bounds = _bounds_in_words(limits)
    if choices and kind is str:
        return "one of " + ", ".join(choices)
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"an integer{bounds}"
    if kind is float:
        return f"a number{bounds}"
    if kind is str:
        return "text"
    if get_origin(kind) is tuple:
        items = "one of " + ", ".join(choices) if choices else f"{_PLURALS.get(get_args(kind)[0], 'values')}{bounds}"
        return f"a list of {items}"
    inner = inside_optional(kind)
    return allowed_values(inner, limits) if inner is not None else "a table"


def _bounds_in_words(limits: Mapping[str, Any]) -> str:
    low, high, above = (limits.get(name) for name in ("low", "high", "above"))
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    words = [
        f" {word} {bound:g}"
        for word, bound in (("above", above), ("of at least", low), ("of at most", high))
        if bound is not None
    ]
    return " and".join(words)
