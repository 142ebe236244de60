"""The parts of GiGPO: discounted returns, step groups from equal or similar states, advantages within them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.learning.advantages.gigpo import discounted_returns, exact_anchors, similar_anchors, step_advantages
from tests.reference import naive_credit

Reward = st.sampled_from([-0.1, 0.0, 0.0, 1.0, 10.0])
Episodes = st.lists(st.lists(Reward, min_size=1, max_size=5), max_size=6)
Steps = st.lists(st.tuples(st.integers(0, 2), st.text("ab 1", max_size=7)), max_size=14)


def flat(episodes: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    rewards = np.array([r for episode in episodes for r in episode], dtype=np.float64)
    return rewards, np.array([number for number, episode in enumerate(episodes) for _ in episode], dtype=np.int64)


def split(steps: list[tuple[int, str]]) -> tuple[np.ndarray, list[str]]:
    return np.array([group for group, _ in steps], dtype=np.int64), [text for _, text in steps]


def firsts(numbers: np.ndarray) -> list[int]:
    """A grouping without its names: for every step the place of the first step with the same number."""
    return [numbers.tolist().index(number) for number in numbers]


def test_returns_by_hand() -> None:
    # Rewards 0, -0.1, 10 with γ 0.95: 10; -0.1 + 9.5 = 9.4; 0.95 · 9.4 = 8.93. The next episode starts anew.
    rewards, episodes = np.array([0, -0.1, 10, 1]), np.array([0, 0, 0, 1])
    assert discounted_returns(rewards, episodes, 0.95) == pytest.approx([8.93, 9.4, 10, 1])


@given(Episodes, st.floats(0, 1))
def test_returns_equal_the_naive_form(episodes: list[list[float]], discount: float) -> None:
    rewards, numbers = flat(episodes)
    expected = naive_credit.discounted_returns(rewards.tolist(), numbers.tolist(), discount)
    np.testing.assert_allclose(discounted_returns(rewards, numbers, discount), expected, atol=1e-9)


@given(Episodes)
def test_returns_at_both_ends_of_the_discount(episodes: list[list[float]]) -> None:
    rewards, numbers = flat(episodes)
    assert discounted_returns(rewards, numbers, 0.0).tolist() == rewards.tolist()
    rest = [sum(episode[t:]) for episode in episodes for t in range(len(episode))]
    np.testing.assert_allclose(discounted_returns(rewards, numbers, 1.0), rest, atol=1e-9)


@given(Episodes, st.permutations(range(6)))
def test_an_episode_alone_has_the_same_returns(episodes: list[list[float]], order: list[int]) -> None:
    shuffled = [number for number in order if number < len(episodes)]
    rewards, _ = flat([episodes[number] for number in shuffled])
    numbers = np.array([number for number in shuffled for _ in episodes[number]], dtype=np.int64)
    alone = [discounted_returns(*flat([episodes[number]]), 0.9).tolist() for number in shuffled]
    assert discounted_returns(rewards, numbers, 0.9).tolist() == [value for returns in alone for value in returns]


def test_a_bad_reward_is_seen_before_it_in_its_own_episode_only() -> None:
    returns = discounted_returns(np.array([1.0, 2, np.nan, 4, 5]), np.array([0, 1, 1, 1, 2]), 0.5)
    assert np.isnan(returns).tolist() == [False, True, True, False, False]
    assert returns[[0, 3, 4]].tolist() == [1.0, 4.0, 5.0]


def test_anchors_by_hand() -> None:
    # "door" in group 0 (twice) and in group 1: two states. "lamp": a third.
    numbers = exact_anchors(np.array([0, 0, 0, 1]), ["door", "lamp", "door", "door"])
    assert firsts(numbers) == [0, 1, 0, 3]
    assert numbers.dtype == np.int64


@given(Steps)
def test_exact_anchors_equal_the_naive_form(steps: list[tuple[int, str]]) -> None:
    groups, texts = split(steps)
    assert firsts(exact_anchors(groups, texts)) == naive_credit.exact_anchors(groups.tolist(), texts)


def test_similarity_by_hand() -> None:
    # "a b c d" and "a b c e" share 3 of 4 words: 2 · 3 / 8 = 0.75. "a b f e" shares 2 with "a b c d": 0.5.
    groups, texts = np.zeros(3, np.int64), ["a b c d", "a b c e", "a b f e"]
    assert firsts(similar_anchors(groups, texts, 0.75)) == [
        0,
        0,
        2,
    ]  # 0.75 to the second: it opened nothing
    assert firsts(similar_anchors(groups, texts, 0.76)) == [0, 1, 2]
    assert firsts(similar_anchors(groups, texts, 0.5)) == [0, 0, 0]


def test_the_first_cluster_that_is_near_enough_is_taken() -> None:
    # "w b d e" is 0.5 to "a b c d" and opens a state of its own. "a b d e" is 0.75 to both: it joins the first.
    texts = ["a b c d", "w b d e", "a b d e"]
    assert naive_credit.similarity(texts[0], texts[2]) == 0.75 == naive_credit.similarity(texts[1], texts[2])
    assert firsts(similar_anchors(np.zeros(3, np.int64), texts, 0.7)) == [0, 1, 0]


@given(Steps, st.sampled_from([0.3, 0.5, 0.7, 0.8, 0.9, 1.0]))
def test_similar_anchors_equal_the_naive_form(steps: list[tuple[int, str]], threshold: float) -> None:
    groups, texts = split(steps)
    assert firsts(similar_anchors(groups, texts, threshold)) == naive_credit.similar_anchors(
        groups.tolist(), texts, threshold
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=5)), max_size=14))
def test_similarity_one_means_equal_texts(steps: list[tuple[int, str]]) -> None:
    groups, texts = split(steps)
    assert firsts(similar_anchors(groups, texts, 1.0)) == firsts(exact_anchors(groups, texts))


@given(Steps)
def test_similarity_zero_leaves_one_state_per_group(steps: list[tuple[int, str]]) -> None:
    groups, texts = split(steps)
    assert firsts(similar_anchors(groups, texts, 0.0)) == firsts(groups)


def test_long_observations_are_compared_word_by_word() -> None:
    # Over 200 words difflib would ignore frequent ones, unless told not to.
    room = "You see a drawer 1, a drawer 2 and a shelf 1. " * 25
    numbers = similar_anchors(np.zeros(3, np.int64), [room, room.replace("shelf", "table"), "x" * 300], 0.8)
    assert firsts(numbers) == [0, 0, 2]


@given(Steps, st.sampled_from([0.0, 0.5, 0.9]))
def test_anchors_never_mix_task_groups(steps: list[tuple[int, str]], threshold: float) -> None:
    groups, texts = split(steps)
    for numbers in (exact_anchors(groups, texts), similar_anchors(groups, texts, threshold)):
        assert len(numbers) == len(steps)
        for number in set(numbers.tolist()):
            assert len(set(groups[numbers == number].tolist())) == 1


@given(Steps, st.permutations(range(14)), st.permutations([-4, 5, 90]))
def test_order_and_names_do_not_matter_for_equal_states(
    steps: list[tuple[int, str]], order: list[int], names: list[int]
) -> None:
    places = [place for place in order if place < len(steps)]
    groups, texts = split(steps)
    numbers = exact_anchors(groups, texts)[places] if steps else np.zeros(0, np.int64)
    shuffled = exact_anchors(np.array(names)[groups[places]], [texts[place] for place in places])
    assert firsts(shuffled) == firsts(numbers)


def test_step_advantages_by_hand() -> None:
    # State 4: returns 10 and 4, mean 7. State 5: alone. State 6: equal. With the unbiased std √18 = 4.2426: ±0.70711.
    returns, states = np.array([10.0, 3, 4, 8, 8]), np.array([4, 5, 4, 6, 6])
    assert step_advantages(returns, states, divide_by_std=False) == pytest.approx([3, 0, -3, 0, 0])
    assert step_advantages(returns, states) == pytest.approx([0.70711, 0, -0.70711, 0, 0], abs=1e-5)


@given(st.lists(st.tuples(Reward, st.integers(0, 4)), max_size=16), st.booleans())
def test_step_advantages_equal_the_naive_form(steps: list[tuple[float, int]], divide: bool) -> None:
    returns = np.array([value for value, _ in steps], dtype=np.float64)
    states = np.array([state for _, state in steps], dtype=np.int64)
    expected = naive_credit.step_advantages(returns.tolist(), states.tolist(), divide)
    found = step_advantages(returns, states, divide)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert np.all(found[[states.tolist().count(state) == 1 for state in states]] == 0)


@given(Steps, st.integers(0, 99))
def test_returns_of_one_task_do_not_reach_another(steps: list[tuple[int, str]], seed: int) -> None:
    groups, texts = split(steps)
    rng = np.random.default_rng(seed)
    returns = rng.normal(size=len(steps))
    numbers = exact_anchors(groups, texts)
    changed = np.where(groups == 0, returns + rng.normal(size=len(steps)), returns)
    before, after = step_advantages(returns, numbers, True), step_advantages(changed, numbers, True)
    assert after[groups != 0].tolist() == before[groups != 0].tolist()


def test_nothing_in_nothing_out() -> None:
    none, numbers = np.zeros(0), np.zeros(0, dtype=np.int64)
    assert discounted_returns(none, numbers, 0.9).tolist() == []
    assert step_advantages(none, numbers).tolist() == []
    for states in (exact_anchors(numbers, []), similar_anchors(numbers, [], 0.9)):
        assert states.tolist() == []
        assert states.dtype == np.int64


def test_as_many_texts_as_steps_are_wanted() -> None:
    with pytest.raises(ValueError, match="zip"):
        exact_anchors(np.array([0, 0]), ["one"])
    with pytest.raises(ValueError, match="zip"):
        similar_anchors(np.array([0, 0]), ["one"], 0.9)
    with pytest.raises(ValueError, match="equal length"):
        step_advantages(np.zeros(2), np.zeros(3, np.int64))
