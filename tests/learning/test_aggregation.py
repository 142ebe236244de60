"""Weights of tokens: every way to average a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.token_weights import MODES, token_weights
from tests.reference import naive

Tokens = list[tuple[int, int, float]]
# episode, turn of the episode, value
Batch = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.floats(-5, 5)), min_size=1, max_size=20)


def numbers(rows: Tokens) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes, turns (numbered over the whole batch) and values."""
    return (
        np.array([e for e, _, _ in rows]),
        np.array([10 * e + t for e, t, _ in rows]),
        np.array([v for *_, v in rows]),
    )


def test_weights_by_hand() -> None:
    # Episode 0 has turn 0 of two tokens and turn 1 of one; episode 1 has turn 2 of one token.
    episodes, turns = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2])
    assert token_weights("token", episodes, turns) == pytest.approx([1 / 4] * 4)
    assert token_weights("sequence", episodes, turns) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert token_weights("turn", episodes, turns) == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 2])
    assert token_weights("episode", episodes, turns) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    # Two episodes, each divided by 5 tokens: 1 / (2 · 5).
    assert token_weights("constant", episodes, turns, 5.0) == pytest.approx([1 / 10] * 4)


@pytest.mark.parametrize("mode", MODES)
@given(Batch, st.floats(0.5, 600))
def test_weights_equal_nested_means(mode: str, rows: Tokens, length: float) -> None:
    episodes, turns, values = numbers(rows)
    weights = token_weights(mode, episodes, turns, length)
    expected = naive.mean_over(values.tolist(), episodes.tolist(), turns.tolist(), mode, length)
    assert float(weights @ values) == pytest.approx(expected, abs=1e-9)
    total = len(rows) / (len(set(episodes.tolist())) * length) if mode == "constant" else 1.0
    assert weights.sum() == pytest.approx(total)


@pytest.mark.parametrize("mode", MODES)
@given(Batch, st.permutations(range(20)), st.permutations([-3, 0, 4, 77]))
def test_order_of_tokens_and_names_do_not_matter(mode: str, rows: Tokens, order: list[int], names: list[int]) -> None:
    episodes, turns, _ = numbers(rows)
    places = [place for place in order if place < len(rows)]
    expected = token_weights(mode, episodes, turns, 8.0)[places]
    found = token_weights(mode, np.array(names)[episodes[places]], 1000 - turns[places], 8.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(Batch)
def test_episodes_weigh_the_same_and_their_tokens_too(rows: Tokens) -> None:
    episodes, turns, _ = numbers(rows)
    weights = token_weights("episode", episodes, turns)
    for episode in set(episodes.tolist()):
        own = weights[episodes == episode]
        assert own.sum() == pytest.approx(1 / len(set(episodes.tolist())))
        assert len(set(own.tolist())) == 1


@given(Batch)
def test_a_constant_length_does_not_look_at_lengths(rows: Tokens) -> None:
    episodes, turns, _ = numbers(rows)
    weights = token_weights("constant", episodes, turns, 50.0)
    assert len(set(weights.tolist())) == 1
    # twice the tokens in the same episodes: every token weighs what it did
    longer = token_weights("constant", np.repeat(episodes, 2), np.repeat(turns, 2), 50.0)
    assert longer[0] == weights[0]


def test_when_all_is_of_one_length_every_mode_is_the_mean() -> None:
    # Three episodes of two turns of four tokens; a constant length of 8 is then the true one.
    episodes, turns = np.repeat([0, 1, 2], 8), np.repeat(np.arange(6), 4)
    for mode in MODES:
        assert token_weights(mode, episodes, turns, 8.0) == pytest.approx([1 / 24] * 24)


def test_no_tokens_and_unknown_names() -> None:
    none = np.zeros(0, dtype=np.int64)
    for mode in MODES:
        assert token_weights(mode, none, none).tolist() == []
    with pytest.raises(ValueError, match="'median': expected one of token, turn, sequence, episode, constant"):
        token_weights("median", none, none)
