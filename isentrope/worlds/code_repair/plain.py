"""Plain values as JSON, with their exact types, and whether two of them are the same.

The file is copied into the box, where it writes what the package's functions returned; it uses nothing but Python. On
the trusted side the JSON is never turned into objects of the package: it is compared as it came.

    None, True, 1, "a"   themselves
    float                ["float", "0.1"]
    list, tuple, set     ["list", ...], ["tuple", ...], ["set", ...] (in the order of their JSON)
    dict                 ["dict", key, value, ...] (in the order of the keys' JSON)
    bytes                ["bytes", "6162"]
    any other object     ["object", class, repr or None, {public attribute: value}]
    nothing to be seen   ["opaque"]: a function, a generator, an object without repr and public attributes
    much of it           ["large", characters, checksum] of its JSON
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, cast

MOST_NODES = 50_000  # of one value
MOST_DEPTH = 50
MOST_TOLD = 8000  # characters of one value's JSON; of a longer one the checksum is told
MOST_TEXT = 4000  # characters or bytes of one text; of a longer one the checksum is told
MOST_BITS = 8192  # of a whole number; likewise
OPAQUE = ["opaque"]
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
_FLOAT = re.compile(r"-?(inf|nan|\d+(\.\d+)?(e[+-]\d+)?)")


class TooLarge(Exception):
    """The value has more parts than are told."""


def to_plain(value: object) -> Any:
    """The value as JSON; opaque if it has too many parts, or fails to tell itself."""
    try:
        tree = _Writer().write(value, 0)
        text = json.dumps(tree)
        return tree if len(text) <= MOST_TOLD else ["large", len(text), _sum(text.encode("ascii"))]
    except Exception:
        return OPAQUE


class _Writer:
    def __init__(self) -> None:
        self._nodes = 0

    def write(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > MOST_DEPTH:
            raise TooLarge
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() <= MOST_BITS else ["int", value.bit_length(), _sum(b"%x" % value)]
        if kind is str:
            long = len(value) > MOST_TEXT
            return ["str", len(value), _sum(value.encode("utf-8", "surrogatepass"))] if long else value
        if kind is float:
            return ["float", repr(value)]
        if kind is bytes:
            return ["bytes", value.hex() if len(value) <= MOST_TEXT else _sum(value)]
        if kind in (list, tuple):
            return [kind.__name__, *(self.write(one, depth + 1) for one in value)]
        if kind in (set, frozenset):
            return ["set", *sorted((self.write(one, depth + 1) for one in value), key=json.dumps)]
        if kind is dict:
            items = [[self.write(key, depth + 1), self.write(one, depth + 1)] for key, one in value.items()]
            ordered = sorted(items, key=lambda item: json.dumps(item[0]))
            return ["dict", *(part for item in ordered for part in item)]
        if isinstance(value, type):
            return ["class", _name(value)]
        return self._object(value, kind, depth)

    def _object(self, value: Any, kind: type, depth: int) -> Any:
        if hasattr(kind, "__next__") or hasattr(kind, "__get__"):  # an iterator or a function
            return OPAQUE
        said = repr(value) if kind.__repr__ is not object.__repr__ else None
        if said is not None and (len(said) > MOST_TEXT or _ADDRESS.search(said)):
            said = None
        fields = dict(getattr(value, "__dict__", {}))
        for one in kind.__mro__:
            names = one.__dict__.get("__slots__", ())
            fields |= {
                name: getattr(value, name)
                for name in ((names,) if isinstance(names, str) else names)
                if hasattr(value, name)
            }
        public = {name: self.write(one, depth + 1) for name, one in fields.items() if not name.startswith("_")}
        return ["object", _name(kind), said, public] if said is not None or public else OPAQUE


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def from_plain(tree: Any) -> Any:
    """Back to a value, for what `is_literal` holds: the values in the text of a test."""
    if not isinstance(tree, list):
        return tree
    kind, *parts = cast("list[Any]", tree)
    if kind == "float":
        return float(parts[0])
    if kind == "bytes":
        return bytes.fromhex(parts[0])
    if kind == "dict":
        values = [from_plain(part) for part in parts]
        return dict(zip(values[::2], values[1::2], strict=True))
    made = [from_plain(part) for part in parts]
    return made if kind == "list" else tuple(made) if kind == "tuple" else set(made)


def same(expected: Any, got: Any) -> bool:
    """Whether what the repaired package returned is what was expected. Types count: True is not 1, and 1 is not 1.0.

    Floating-point numbers may differ in their last digits, and not-a-number is itself. Nothing is asked of what is
    opaque, and an object may have more attributes than the expected one.
    """
    if expected == OPAQUE:
        return True
    if type(expected) is not type(got):
        return False
    if isinstance(expected, dict):
        attributes, found = cast("dict[str, Any]", expected), cast("dict[str, Any]", got)
        return all(name in found and same(value, found[name]) for name, value in attributes.items())
    if not isinstance(expected, list):
        return bool(expected == got)
    parts, others = cast("list[Any]", expected), cast("list[Any]", got)
    if len(parts) != len(others):
        return False
    if parts[:1] == ["float"] and others[:1] == ["float"]:
        return _close(parts[1], others[1])
    if parts[:1] == ["object"] and len(parts) == 4 and parts[2] is None:
        parts, others = [*parts[:2], *parts[3:]], [*others[:2], *others[3:]]
    return all(same(one, other) for one, other in zip(parts, others, strict=True))


def _close(one: Any, other: Any) -> bool:
    if not (isinstance(one, str) and isinstance(other, str) and _FLOAT.fullmatch(one) and _FLOAT.fullmatch(other)):
        return False
    first, second = float(one), float(other)
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
