"""Group statistics over turn samples instead of episodes: a long episode counts more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.learning.advantages.grpo import grpo
from tests.reference import naive

Pairs = list[tuple[float, int]]
Returns = st.lists(st.tuples(st.floats(-10, 10).map(lambda x: round(x, 3)), st.integers(0, 3)), min_size=1, max_size=20)


def over_steps(pairs: Pairs, turns: list[int], divide: bool) -> np.ndarray:
    """Statistics over turn samples: every episode's return once per turn; back to one number per episode."""
    returns, groups = np.array([r for r, _ in pairs]), np.array([g for _, g in pairs])
    samples = grpo(np.repeat(returns, turns), np.repeat(groups, turns), divide)
    return samples[np.cumsum([0, *turns[:-1]])]


def test_statistics_over_steps_by_hand() -> None:
    # Episodes with returns 10 (one turn) and 0 (three turns). Over episodes: mean 5. Over steps: 10, 0, 0, 0 have
    # mean 2.5 and unbiased variance (56.25 + 3 · 6.25) / 3 = 25, std 5. So 7.5 and -2.5, or 1.5 and -0.5.
    assert over_steps([(10.0, 0), (0.0, 0)], [1, 3], divide=False) == pytest.approx([7.5, -2.5])
    assert over_steps([(10.0, 0), (0.0, 0)], [1, 3], divide=True) == pytest.approx([1.5, -0.5])


@given(Returns, st.lists(st.integers(1, 4), min_size=20, max_size=20), st.booleans())
def test_statistics_over_steps_equal_the_naive_form(pairs: Pairs, turns: list[int], divide: bool) -> None:
    returns, groups = [r for r, _ in pairs], [g for _, g in pairs]
    expected = naive.grpo_over_steps(returns, groups, turns[: len(pairs)], divide)
    np.testing.assert_allclose(over_steps(pairs, turns[: len(pairs)], divide), expected, rtol=1e-6, atol=1e-9)


@given(Returns, st.integers(1, 4))
def test_statistics_over_steps_differ_only_where_lengths_do(pairs: Pairs, turns: int) -> None:
    over_episodes = naive.grpo([r for r, _ in pairs], [g for _, g in pairs], divide_by_std=False)
    np.testing.assert_allclose(over_steps(pairs, [turns] * len(pairs), False), over_episodes, atol=1e-9)
