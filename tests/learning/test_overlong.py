"""Overlong shaping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.learning.advantages.overlong import overlong_penalty
from tests.reference import naive_credit


def test_by_hand() -> None:
    # Limit 100, buffer 20: nothing up to 80; 81 is 1/20 in; 90 is half; -1 at 100 and beyond.
    lengths = np.array([0, 1, 80, 81, 90, 99, 100, 101, 5000])
    assert overlong_penalty(lengths, 100, 20) == pytest.approx([0, 0, 0, -0.05, -0.5, -0.95, -1, -1, -1])


@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 40), st.data())
def test_equals_the_naive_form(lengths: list[int], limit: int, data: st.DataObject) -> None:
    buffer = data.draw(st.integers(1, limit))
    expected = [naive_credit.overlong_penalty(length, limit, buffer) for length in lengths]
    found = overlong_penalty(np.array(lengths, dtype=np.int64), limit, buffer)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.dtype == np.float64


@given(st.integers(1, 40), st.data())
def test_both_ends_are_exact_and_it_only_falls_between(limit: int, data: st.DataObject) -> None:
    buffer = data.draw(st.integers(1, limit))
    penalties = overlong_penalty(np.arange(2 * limit + 1), limit, buffer)
    assert penalties[: limit - buffer + 1].tolist() == [0.0] * (limit - buffer + 1)
    assert penalties[limit:].tolist() == [-1.0] * (limit + 1)
    assert np.all(np.diff(penalties[limit - buffer : limit + 1]) < 0)


def test_a_buffer_as_long_as_the_limit_counts_every_token() -> None:
    assert overlong_penalty(np.array([0, 1, 2, 4]), 4, 4).tolist() == [0, -0.25, -0.5, -1]


@pytest.mark.parametrize("buffer", [0, -1, 101])
def test_a_buffer_outside_the_limit_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match=f"buffer {buffer}: expected 1 to 100"):
        overlong_penalty(np.array([3]), 100, buffer)


def test_narrow_numbers_and_none_at_all() -> None:
    assert overlong_penalty(np.array([90, 100], dtype=np.int32), 100, 20).tolist() == [-0.5, -1]
    assert overlong_penalty(np.zeros(0, dtype=np.int64), 100, 20).tolist() == []
