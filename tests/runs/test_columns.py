"""Numbers of a log by key: the same as a list of them for each key, in a fraction of the memory."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.runs.columns import Columns

KEYS = tuple("abcdef")
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.floats(-10, 10), st.none(), st.integers(-(10**6), 10**6),
    st.just(10**400), st.just(1e50),
)  # fmt: skip
OTHERS = st.one_of(st.booleans(), st.text(max_size=3), st.just(["a"]))
RECORDS = st.lists(st.dictionaries(st.sampled_from(KEYS), st.one_of(NUMBERS, NUMBERS, OTHERS)), max_size=12)


def naive(records: list[dict[str, Any]], key: str, since: int, until: int) -> tuple[list[int], list[float | None]]:
    steps: list[int] = []
    values: list[float | None] = []
    for row, record in enumerate(records):
        value = record.get(key, "")
        if since <= row < until and not isinstance(value, bool | str | list):
            number = math.nan if value is None or value == 10**400 else float(value)
            steps.append(2 * row)
            values.append(float(f"{number:.6g}") if math.isfinite(number) else None)
    return steps, values


@given(RECORDS, st.integers(0, 6), st.integers(0, 14))
def test_they_are_what_lists_by_key_would_be(records: list[dict[str, Any]], since: int, until: int) -> None:
    columns, short = Columns(), Columns(short=True, exact=("a",))
    for row, record in enumerate(records):
        for one in (columns, short):
            one.add({"step": 2 * row, "kind": "train", "nonfinite": ["a"], **record})
    assert columns.rows == short.rows == len(records)
    assert columns.last_step == max([-1, *range(0, 2 * len(records), 2)])
    assert columns.keys == short.keys
    shown, texts = columns.texts([*KEYS, "none"], since, until)
    for key in KEYS:
        wanted = naive(records, key, since, until)
        assert columns.between(key, since, until) == wanted
        assert short.between(key, since, until)[0] == wanted[0]
        for got, value in zip(short.between(key, since, until)[1], wanted[1], strict=True):
            assert (got is None) == (value is None)
            assert value is None or got == pytest.approx(value, rel=1.1e-5 if key != "a" else 0, abs=1e-37)
        finite = [value for value in naive(records, key, 0, 99)[1] if value is not None]
        assert (columns.last(key) is None) == (not finite)
        if wanted[0]:
            place, text = texts[key]
            assert (json.loads(shown[place]), json.loads(text)) == wanted
        else:
            assert key not in texts


def test_keys_of_the_same_records_share_their_steps() -> None:
    columns = Columns()
    for step in range(100):
        columns.add({"step": step, "a": 1.0, "b": 2.0, **({"c": 3.0} if step % 10 == 0 else {})})
    shown, texts = columns.texts(["a", "b", "c"], 0, 1000)
    assert len(shown) == 2
    assert (texts["a"][0], texts["b"][0], texts["c"][0]) == (0, 0, 1)


def test_many_numbers_take_little_more_than_themselves() -> None:
    keys = [f"some/metric/{number}" for number in range(80)]
    tracemalloc.start()
    columns = Columns(short=True)
    for step in range(2000):
        columns.add({"step": step, "kind": "train", **dict.fromkeys(keys, step / 7)})
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / (80 * 2000) < 6.0  # bytes; as three arrays of 8 bytes they were 24


def test_a_log_whose_keys_change_with_every_line() -> None:
    columns = Columns(short=True)
    for step in range(2000):
        columns.add({"step": step, **{f"k{(step * place) % 97}": 1.0 for place in range(1, 40)}})
    assert sum(len(columns.between(key, 0, 2000)[0]) for key in columns.keys) > 2000
