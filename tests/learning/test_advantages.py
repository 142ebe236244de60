from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.advantages.grpo import grpo
from tests.reference import naive

Returns = st.lists(st.tuples(st.floats(-10, 10).map(lambda x: round(x, 3)), st.integers(0, 3)), min_size=1, max_size=20)


def arrays(pairs: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r for r, _ in pairs], dtype=np.float64), np.array([g for _, g in pairs], dtype=np.int64)


def test_by_hand() -> None:
    # Group 0: returns 10, 0, 0, 10; mean 5; unbiased variance (4 · 25) / 3; std 5.7735. So ±5 / 5.7735 = ±0.86603.
    # Group 1: 10 and 10: equal, so 0. Group 2: alone, so 0.
    returns, groups = np.array([10.0, 0, 0, 10, 10, 10, 3]), np.array([0, 0, 0, 0, 1, 1, 2])
    assert grpo(returns, groups) == pytest.approx([0.8660254, -0.8660254, -0.8660254, 0.8660254, 0, 0, 0], abs=1e-6)
    assert grpo(returns, groups, divide_by_std=False) == pytest.approx([5, -5, -5, 5, 0, 0, 0])


@given(Returns, st.booleans())
def test_equals_the_naive_form(pairs: list[tuple[float, int]], divide: bool) -> None:
    returns, groups = arrays(pairs)
    expected = naive.grpo(returns.tolist(), groups.tolist(), divide)
    np.testing.assert_allclose(grpo(returns, groups, divide), expected, rtol=1e-6, atol=1e-9)


@given(Returns, st.permutations(range(20)))
def test_order_does_not_matter(pairs: list[tuple[float, int]], order: list[int]) -> None:
    returns, groups = arrays(pairs)
    places = [i for i in order if i < len(returns)]
    np.testing.assert_allclose(grpo(returns[places], groups[places]), grpo(returns, groups)[places], atol=1e-9)


@given(Returns, st.floats(-5, 5), st.floats(0.5, 4))
def test_shift_and_scale_of_returns(pairs: list[tuple[float, int]], shift: float, scale: float) -> None:
    returns, groups = arrays(pairs)
    centred = grpo(returns, groups, divide_by_std=False)
    np.testing.assert_allclose(grpo(scale * returns + shift, groups, False), scale * centred, atol=1e-7)
    for group in set(groups.tolist()):
        assert centred[groups == group].sum() == pytest.approx(0, abs=1e-9)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="equal length"):
        grpo(np.zeros(3), np.zeros(2, dtype=np.int64))
