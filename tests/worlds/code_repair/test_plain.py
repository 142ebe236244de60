"""Values as JSON, and when two are the same."""

from __future__ import annotations

import collections
import enum
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.worlds.code_repair.plain import OPAQUE, from_plain, same, to_plain

KEYS = st.integers() | st.text(max_size=3)
EXACT = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary()


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=3)
            | st.sets(KEYS)
        ),
        max_leaves=8,
    )  # fmt: skip


VALUES = nested(EXACT | st.floats(allow_nan=False))


def sent(value: object) -> Any:
    """As it comes out of the box."""
    return json.loads(json.dumps(to_plain(value)))


@given(VALUES)
def test_there_and_back(value: Any) -> None:
    tree = sent(value)
    assert same(tree, tree)
    back = from_plain(tree)
    assert (back, type(back)) == (value, type(value))


@given(nested(EXACT), nested(EXACT))
def test_what_differs_is_not_the_same(one: Any, other: Any) -> None:
    if one != other or type(one) is not type(other):
        assert not same(sent(one), sent(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (0, False), (1, 1.0), ("1", 1), ([1], (1,)), (None, False), (set[int](), list[int]()), (b"a", "a"),
        ([], None), ({1: 2}, [1, 2]), ({1: 2}, {2: 1}), ([1, 2], [2, 1]), (float("nan"), 0.0), (float("inf"), 1e308),
        (["opaque"], object()), (["list"], []), (["float", "1.0"], 1.0), (10**4000, 10**4000 + 1),
        ("a" * 5000, "a" * 4999 + "b"), (Fraction(1, 3), Fraction(1, 4)), (Fraction(1), 1), (int, float), (KeyError, 1),
        (collections.Counter("ab"), {"a": 1, "b": 1}), ("\ud800", "\ud801"), (b"1", b"2"),
    ],
)  # fmt: skip
def test_types_count(one: object, other: object) -> None:
    assert not same(sent(one), sent(other))
    assert not same(sent(other), sent(one)) or sent(other) == OPAQUE
    assert not same(sent([one]), sent([other]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), float("nan")), (0.1 + 0.2, 0.3), (-0.0, 0.0), ({1: 2, 3: 4}, {3: 4, 1: 2}),
        ({"a", "b"}, {"b", "a"}), (frozenset({1}), {1}), (Fraction(2, 6), Fraction(1, 3)), ("\ud800", "\ud800"),
        (10**4000, 10**4000),
    ],
)  # fmt: skip
def test_what_is_the_same(one: object, other: object) -> None:
    assert same(sent(one), sent(other))


@dataclass
class Point:
    x: int
    y: int
    _hidden: int = 0


class Plain:
    def __init__(self, **fields: object) -> None:
        vars(self).update(fields)


class Slots:
    __slots__ = ("a", "b")


class Colour(enum.Enum):
    RED = 1


def test_objects_by_what_is_public() -> None:
    assert sent(Point(1, 2))[2].endswith("Point(x=1, y=2, _hidden=0)")
    assert sent(Point(1, 2))[3] == {"x": 1, "y": 2}
    assert not same(sent(Point(1, 2)), sent(Point(1, 3)))
    assert not same(sent(Point(1, 2)), sent(Plain(x=1, y=2)))
    assert same(sent(Plain(x=1)), sent(Plain(x=1, more=2)))
    assert not same(sent(Plain(x=1, more=2)), sent(Plain(x=1)))
    assert sent(Plain(_x=1)) == OPAQUE
    slots = Slots()
    slots.a = 3
    assert sent(slots)[3] == {"a": 3}
    assert sent(Colour.RED)[2] == "<Colour.RED: 1>"
    assert sent(Plain(x=object()))[3] == {"x": OPAQUE}


@pytest.mark.parametrize("value", [object(), lambda: 1, iter([1]), (n for n in range(3)), [[0] * 60_000], Plain()])
def test_what_is_opaque(value: object) -> None:
    assert sent(value) == OPAQUE
    assert same(OPAQUE, sent(3))
    assert not same(sent(3), OPAQUE)


def test_of_much_the_checksum_is_told() -> None:
    much = list(range(9000))
    assert sent(much)[0] == "large"
    assert same(sent(much), sent(list(range(9000))))
    assert not same(sent(much), sent([*much[:-1], 0]))


def test_what_holds_itself() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert sent(ring) == OPAQUE


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(
    ["opaque", "float", "object", "list", "nan"]), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
    st.text(max_size=3), inner, max_size=2), max_leaves=10), VALUES)  # fmt: skip
def test_nothing_that_is_sent_breaks_the_comparison(tree: Any, value: Any) -> None:
    same(sent(value), tree)
    same(["float", "1.0"], tree)
    same(["object", "a.B", None, {"x": 1}], tree)
