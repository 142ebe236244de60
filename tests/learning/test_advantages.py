"""Advantages of whole episodes: reinforce, rloo, grpo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.advantages.reinforce import reinforce
from isentrope.learning.advantages.rloo import rloo
from tests.reference import naive

Pairs = list[tuple[float, int]]
Estimator = Callable[[np.ndarray, np.ndarray], np.ndarray]

Returns = st.lists(st.tuples(st.floats(-10, 10).map(lambda x: round(x, 3)), st.integers(0, 3)), min_size=1, max_size=20)
Whole = st.lists(st.tuples(st.integers(-5, 5).map(float), st.integers(0, 3)), min_size=1, max_size=20)

centred = partial(grpo, divide_by_std=False)


def of_the_batch(returns: np.ndarray, groups: np.ndarray) -> np.ndarray:
    del groups  # its one group is the batch
    return reinforce(returns)


ALL: dict[str, Estimator] = {"reinforce": of_the_batch, "rloo": rloo, "grpo": grpo, "centred": centred}
GROUPED = {name: estimate for name, estimate in ALL.items() if name != "reinforce"}
LINEAR = {name: estimate for name, estimate in ALL.items() if name != "grpo"}
every = pytest.mark.parametrize("name", ALL)
grouped = pytest.mark.parametrize("name", GROUPED)


def arrays(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r for r, _ in pairs], dtype=np.float64), np.array([g for _, g in pairs], dtype=np.int64)


def test_grpo_by_hand() -> None:
    # Group 0: returns 10, 0, 0, 10; mean 5; unbiased variance (4 · 25) / 3; std 5.7735. So ±5 / 5.7735 = ±0.86603.
    # Group 1: 10 and 10: equal, so 0. Group 2: alone, so 0.
    returns, groups = np.array([10.0, 0, 0, 10, 10, 10, 3]), np.array([0, 0, 0, 0, 1, 1, 2])
    assert grpo(returns, groups) == pytest.approx([0.8660254, -0.8660254, -0.8660254, 0.8660254, 0, 0, 0], abs=1e-6)
    assert grpo(returns, groups, divide_by_std=False) == pytest.approx([5, -5, -5, 5, 0, 0, 0])


def test_grpo_divides_by_the_std_plus_a_millionth() -> None:
    # Returns 0 and 2e-6: mean 1e-6, unbiased std √2 · 1e-6. So ±1e-6 / (2.41421e-6) = ±0.41421.
    assert grpo(np.array([0.0, 2e-6]), np.zeros(2, np.int64)) == pytest.approx([-0.41421356, 0.41421356])


def test_rloo_by_hand() -> None:
    # Group 0: 10 against the mean of 0 and 2 is 9; 0 against 6 is -6; 2 against 5 is -3. Group 1: alone, so 0.
    returns, groups = np.array([10.0, 0, 7, 2]), np.array([0, 0, 1, 0])
    assert rloo(returns, groups) == pytest.approx([9, -6, 0, -3])


def test_reinforce_by_hand() -> None:
    # Returns 10, 0, 0, 2: mean 3.
    assert reinforce(np.array([10.0, 0, 0, 2])) == pytest.approx([7, -3, -3, -1])


@every
@given(Returns)
def test_equals_the_naive_form(name: str, pairs: Pairs) -> None:
    returns, groups = arrays(pairs)
    r, g = returns.tolist(), groups.tolist()
    expected = {"reinforce": naive.reinforce(r), "rloo": naive.rloo(r, g), "grpo": naive.grpo(r, g)}
    expected["centred"] = naive.grpo(r, g, divide_by_std=False)
    np.testing.assert_allclose(ALL[name](returns, groups), expected[name], rtol=1e-6, atol=1e-9)


@every
@given(Returns, st.permutations(range(20)))
def test_order_does_not_matter(name: str, pairs: Pairs, order: list[int]) -> None:
    returns, groups = arrays(pairs)
    places = [i for i in order if i < len(returns)]
    expected = ALL[name](returns, groups)[places]
    np.testing.assert_allclose(ALL[name](returns[places], groups[places]), expected, atol=1e-9)


@every
@given(Returns, st.permutations([-7, 0, 3, 1000]))
def test_names_of_groups_do_not_matter(name: str, pairs: Pairs, names: list[int]) -> None:
    returns, groups = arrays(pairs)
    assert ALL[name](returns, np.array(names)[groups]).tolist() == ALL[name](returns, groups).tolist()


@grouped
@given(Returns)
def test_groups_do_not_touch_each_other(name: str, pairs: Pairs) -> None:
    returns, groups = arrays(pairs)
    together = GROUPED[name](returns, groups)
    for group in set(groups.tolist()):
        inside = groups == group
        assert GROUPED[name](returns[inside], groups[inside]).tolist() == together[inside].tolist()


@grouped
@given(Returns, st.lists(st.floats(-5, 5), min_size=4, max_size=4))
def test_a_shift_of_a_group_changes_nothing(name: str, pairs: Pairs, shifts: list[float]) -> None:
    returns, groups = arrays(pairs)
    moved = GROUPED[name](returns + np.array(shifts)[groups], groups)
    np.testing.assert_allclose(moved, GROUPED[name](returns, groups), atol=1e-9)


@given(Returns, st.floats(-5, 5))
def test_reinforce_ignores_a_shift_of_the_whole_batch_only(pairs: Pairs, shift: float) -> None:
    returns, _ = arrays(pairs)
    np.testing.assert_allclose(reinforce(returns + shift), reinforce(returns), atol=1e-9)
    # 0 and 0 are alike; with 2 added to one of them they are not: the mean is 1.
    assert reinforce(np.array([0.0, 2.0])).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("name", LINEAR)
@given(Returns, st.floats(0.5, 4))
def test_without_a_std_advantages_scale_with_the_returns(name: str, pairs: Pairs, scale: float) -> None:
    returns, groups = arrays(pairs)
    np.testing.assert_allclose(LINEAR[name](scale * returns, groups), scale * LINEAR[name](returns, groups), atol=1e-8)


@given(Whole, st.sampled_from([0.5, 2.0, 16.0]))
def test_with_a_std_the_scale_of_the_returns_is_gone(pairs: Pairs, scale: float) -> None:
    returns, groups = arrays(pairs)
    # whole numbers have a std of at least 1 / √20, next to which 1e-6 is less than 1e-5
    np.testing.assert_allclose(grpo(scale * returns, groups), grpo(returns, groups), rtol=1e-5, atol=1e-12)
    for group in set(groups.tolist()):
        inside = grpo(returns, groups)[groups == group]
        if np.any(inside):
            assert inside.std(ddof=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", LINEAR)
@given(Returns)
def test_advantages_sum_to_zero(name: str, pairs: Pairs) -> None:
    returns, groups = arrays(pairs)
    advantages = LINEAR[name](returns, groups)
    for group in {"reinforce": [None]}.get(name, sorted(set(groups.tolist()))):
        inside = np.ones(len(groups), dtype=bool) if group is None else groups == group
        assert advantages[inside].sum() == pytest.approx(0, abs=1e-9)


@every
@given(st.floats(-1e6, 1e6), st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_equal_returns_give_exactly_zero(name: str, value: float, groups: list[int]) -> None:
    assert ALL[name](np.full(len(groups), value), np.array(groups)).tolist() == [0.0] * len(groups)


def test_rounding_of_a_mean_is_not_blown_up() -> None:
    # The float mean of three 0.1 is not 0.1; divided by 1e-6 the rest would look like a signal.
    returns = np.full(3, 0.1)
    assert returns.mean() != 0.1
    for estimate in ALL.values():
        assert estimate(returns, np.zeros(3, np.int64)).tolist() == [0.0, 0.0, 0.0]


@grouped
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8))
def test_groups_of_one_give_exactly_zero(name: str, returns: list[float]) -> None:
    assert GROUPED[name](np.array(returns), np.arange(len(returns))).tolist() == [0.0] * len(returns)


def test_one_episode_is_its_own_mean() -> None:
    assert reinforce(np.array([7.3])).tolist() == [0.0]


@grouped
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_return_is_seen_in_its_group_and_nowhere_else(name: str, bad: float) -> None:
    with np.errstate(invalid="ignore"):
        advantages = GROUPED[name](np.array([1.0, bad, 3.0, 4.0]), np.array([0, 0, 1, 1]))
    clean = GROUPED[name](np.array([3.0, 4.0]), np.array([1, 1]))
    assert not np.isfinite(advantages[:2]).any()
    assert advantages[2:].tolist() == clean.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_return_is_seen_in_the_whole_batch_by_reinforce(bad: float) -> None:
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(reinforce(np.array([1.0, bad, 3.0]))).any()


@every
def test_no_episodes_no_advantages(name: str) -> None:
    nothing = ALL[name](np.zeros(0), np.zeros(0, dtype=np.int64))
    assert nothing.shape == (0,)
    assert nothing.dtype == np.float64


@every
def test_inputs_stay_as_they_were(name: str) -> None:
    returns, groups = np.array([10.0, 0, 1, 5]), np.array([0, 0, 0, 1])
    kept = returns.copy(), groups.copy()
    assert ALL[name](returns, groups).dtype == np.float64
    assert (returns.tolist(), groups.tolist()) == (kept[0].tolist(), kept[1].tolist())
