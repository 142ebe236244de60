"""Generalised advantage estimation, and whitening."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.learning.advantages.gae import gae, whiten
from isentrope.learning.advantages.gigpo import discounted_returns
from tests.reference import naive_credit

Number = st.floats(-5, 5).map(lambda x: round(x, 3))
Chain = st.lists(st.tuples(Number, Number), min_size=1, max_size=6)
Chains = st.lists(Chain, max_size=5)
Share = st.floats(0, 1)
Pairs = list[tuple[float, float]]
# an episode is a list of turns, a turn is its reward and the values of its tokens
Turn = st.tuples(Number, st.lists(Number, min_size=1, max_size=3))
Episodes = st.lists(st.lists(Turn, min_size=1, max_size=3), min_size=1, max_size=4)


def flat(chains: list[Pairs]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rewards = np.array([r for chain in chains for r, _ in chain], dtype=np.float64)
    values = np.array([v for chain in chains for _, v in chain], dtype=np.float64)
    return rewards, values, np.array([number for number, chain in enumerate(chains) for _ in chain], dtype=np.int64)


def test_by_hand() -> None:
    # γ 0.9, λ 0.5. Token 1: δ = 1 - 0.8 = 0.2. Token 0: δ = 0 + 0.9 · 0.8 - 0.5 = 0.22, A = 0.22 + 0.45 · 0.2 = 0.31.
    # Token 2 is a chain of its own: δ = 2 - 3 = -1, and nothing of it reaches the others.
    advantages, returns = gae(np.array([0.0, 1, 2]), np.array([0.5, 0.8, 3]), np.array([7, 7, 4]), 0.9, 0.5)
    assert advantages == pytest.approx([0.31, 0.2, -1])
    assert returns == pytest.approx([0.81, 1, 2])


@given(Chains, Share, Share)
def test_equals_the_naive_form(chains: list[Pairs], discount: float, lam: float) -> None:
    rewards, values, numbers = flat(chains)
    expected = naive_credit.gae(rewards.tolist(), values.tolist(), numbers.tolist(), discount, lam)
    for found, wanted in zip(gae(rewards, values, numbers, discount, lam), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-9)


@given(Chains, Share)
def test_lambda_one_is_the_discounted_return_minus_the_value(chains: list[Pairs], discount: float) -> None:
    rewards, values, numbers = flat(chains)
    advantages, returns = gae(rewards, values, numbers, discount, 1.0)
    np.testing.assert_allclose(returns, discounted_returns(rewards, numbers, discount), atol=1e-9)
    np.testing.assert_allclose(advantages, discounted_returns(rewards, numbers, discount) - values, atol=1e-9)


@given(Chains, Share)
def test_lambda_zero_is_the_error_of_one_step(chains: list[Pairs], discount: float) -> None:
    rewards, values, numbers = flat(chains)
    following = [value for chain in chains for value in [*(v for _, v in chain[1:]), 0.0]]
    advantages, returns = gae(rewards, values, numbers, discount, 0.0)
    np.testing.assert_allclose(advantages, rewards + discount * np.array(following) - values, atol=1e-9)
    np.testing.assert_allclose(returns, rewards + discount * np.array(following), atol=1e-9)


@given(Chains, Share)
def test_without_a_future_only_the_own_reward_counts(chains: list[Pairs], lam: float) -> None:
    rewards, values, numbers = flat(chains)
    advantages, returns = gae(rewards, values, numbers, 0.0, lam)
    np.testing.assert_allclose(advantages, rewards - values, atol=1e-9)
    np.testing.assert_allclose(returns, rewards, atol=1e-9)


@given(Chains)
def test_undiscounted_it_is_what_is_still_to_come(chains: list[Pairs]) -> None:
    rewards, values, numbers = flat(chains)
    to_come = [sum(r for r, _ in chain[n:]) for chain in chains for n in range(len(chain))]
    np.testing.assert_allclose(gae(rewards, values, numbers, 1.0, 1.0)[1], to_come, atol=1e-9)


@given(Chains, st.permutations(range(5)), Share, Share)
def test_chains_side_by_side_are_as_chains_alone(
    chains: list[Pairs], order: list[int], discount: float, lam: float
) -> None:
    places = [place for place in order if place < len(chains)]
    rewards, values, _ = flat([chains[place] for place in places])
    numbers = np.array([place for place in places for _ in chains[place]], dtype=np.int64)
    together = gae(rewards, values, numbers, discount, lam)
    for part in (0, 1):
        alone = [gae(*flat([chains[place]]), discount, lam)[part].tolist() for place in places]
        assert together[part].tolist() == [value for chain in alone for value in chain]


@given(Chains, Share, Share, st.floats(-3, 3))
def test_rewards_and_values_on_another_scale(chains: list[Pairs], discount: float, lam: float, scale: float) -> None:
    rewards, values, numbers = flat(chains)
    advantages, _ = gae(rewards, values, numbers, discount, lam)
    scaled, _ = gae(scale * rewards, scale * values, numbers, discount, lam)
    np.testing.assert_allclose(scaled, scale * advantages, atol=1e-8)


@given(Chains, Share, Share)
def test_a_critic_that_is_right_leaves_no_advantage(chains: list[Pairs], discount: float, lam: float) -> None:
    rewards, _, numbers = flat(chains)
    right = discounted_returns(rewards, numbers, discount)
    advantages, returns = gae(rewards, right, numbers, discount, lam)
    np.testing.assert_allclose(advantages, 0, atol=1e-8)
    np.testing.assert_allclose(returns, right, atol=1e-8)


def tokens_of(episodes: list[list[tuple[float, list[float]]]]) -> tuple[list[float], list[float], list[int], list[int]]:
    """Rewards of the turns; value, turn and episode of every token."""
    rewards, values, turns, owners = [], [], [], []
    for number, episode in enumerate(episodes):
        for reward, inside in episode:
            values += inside
            turns += [len(rewards)] * len(inside)
            owners += [number] * len(inside)
            rewards.append(reward)
    return rewards, values, turns, owners


@given(Episodes, Share, Share)
def test_turn_credit_and_token_credit_are_two_choices_of_chains(
    episodes: list[list[tuple[float, list[float]]]], discount: float, lam: float
) -> None:
    turn_rewards, values, turns, owners = tokens_of(episodes)
    returns = [sum(reward for reward, _ in episode) for episode in episodes for _ in episode]
    across = naive_credit.turn_credit(turn_rewards, values, turns, owners, discount, lam)
    within = naive_credit.token_credit(turn_rewards, values, turns, owners, discount, lam)
    for at_the_end, chains, expected in ((turn_rewards, owners, across), (returns, turns, within)):
        rewards = np.array(naive_credit.rewards_on_last_tokens(at_the_end, turns))
        found = gae(rewards, np.array(values), np.array(chains), discount, lam)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_reward_of_the_last_turn_reaches_the_first_only_along_its_chain() -> None:
    # Two turns of two tokens, no critic, γ 0.5, λ 1; 8 at the end. In one chain: 1, 2, 4, 8. In two: 0, 0, 4, 8.
    rewards, values = np.array([0.0, 0, 0, 8]), np.zeros(4)
    assert gae(rewards, values, np.array([0, 0, 0, 0]), 0.5, 1.0)[0].tolist() == [1, 2, 4, 8]
    assert gae(rewards, values, np.array([0, 0, 1, 1]), 0.5, 1.0)[0].tolist() == [0, 0, 4, 8]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_reward_or_value_is_seen_up_to_it_in_its_own_chain(bad: float) -> None:
    chains = np.array([0, 1, 1, 1, 2])
    for spoilt in ("reward", "value"):
        row = np.array([1.0, 2, bad, 4, 5])
        rewards, values = (row, np.ones(5)) if spoilt == "reward" else (np.ones(5), row)
        with np.errstate(invalid="ignore"):
            advantages, _ = gae(rewards, values, chains, 0.9, 0.8)
        assert np.isfinite(advantages).tolist() == [True, False, False, True, True]


def test_wrong_shapes_are_refused_and_nothing_gives_nothing() -> None:
    two, three, ids = np.zeros(2), np.zeros(3), np.zeros(2, dtype=np.int64)
    for arguments in ((three, two, ids), (two, three, ids), (three, three, ids)):
        with pytest.raises(ValueError, match="equal length"):
            gae(*arguments, 1.0, 1.0)
    with pytest.raises(ValueError, match="equal length"):
        gae(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2), dtype=np.int64), 1.0, 1.0)
    advantages, returns = gae(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64), 1.0, 1.0)
    assert advantages.tolist() == returns.tolist() == whiten(np.zeros(0)).tolist() == []


def test_whiten_by_hand() -> None:
    # 1, 2, 3: mean 2, unbiased std 1. And 0, 2e-8: mean 1e-8, std √2 · 1e-8, so ±1 / (√2 + 1) = ±0.41421.
    assert whiten(np.array([1.0, 2, 3])) == pytest.approx([-1, 0, 1])
    assert whiten(np.array([0.0, 2e-8])) == pytest.approx([-0.41421356, 0.41421356])


@given(st.lists(Number, max_size=20))
def test_whiten_equals_the_naive_form(values: list[float]) -> None:
    np.testing.assert_allclose(whiten(np.array(values, dtype=np.float64)), naive_credit.whiten(values), atol=1e-9)


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=20), st.sampled_from([0.5, 1.0, 8.0]), st.integers(-9, 9))
def test_whiten_forgets_shift_and_scale(numbers: list[int], scale: float, shift: int) -> None:
    values = np.array(numbers, dtype=np.float64)
    found = whiten(scale * values + shift)
    np.testing.assert_allclose(found, whiten(values), atol=1e-6)
    np.testing.assert_allclose(whiten(values[::-1]), whiten(values)[::-1], atol=1e-12)
    if len(set(numbers)) > 1:
        assert found.mean() == pytest.approx(0, abs=1e-12)
        assert found.std(ddof=1) == pytest.approx(1, abs=1e-6)


@given(st.floats(-1e6, 1e6), st.integers(0, 9))
def test_whiten_of_equal_numbers_is_exactly_zero(value: float, count: int) -> None:
    assert whiten(np.full(count, value)).tolist() == [0.0] * count


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_whiten_shows_bad_numbers(bad: float) -> None:
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(whiten(np.array([1.0, bad, 2.0]))).any()
