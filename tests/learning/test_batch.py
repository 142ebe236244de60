from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import measured_at
from isentrope.learning.packing import micro_batches, pack
from isentrope.learning.tokens import flatten
from tests.builders.episodes import make_episodes


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 60))
def test_pack_places_everything_once_within_the_capacity(lengths: list[int], capacity: int) -> None:
    rows = pack(lengths, capacity)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    for row in rows:
        assert len(row) == 1 or sum(lengths[i] for i in row) <= capacity


def test_prefix_rule_makes_one_sequence_of_a_conversation() -> None:
    growing, windows = make_episodes(1, full=True), make_episodes(1, full=False)
    assert len(flatten(growing)[0]) == len(growing)
    assert len(flatten(windows)[0]) == sum(len(episode.turns) for episode in windows)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.booleans(), st.sampled_from([0, 24, 60]), st.sampled_from([64, 200, 10**6]))
def test_every_response_token_appears_once_with_its_own_numbers(seed: int, full: bool, row: int, micro: int) -> None:
    episodes = make_episodes(seed, full=full)
    sequences, tokens = flatten(episodes)
    expected = np.concatenate([turn.response_ids for e in episodes for turn in e.turns])
    np.testing.assert_array_equal(tokens.target_N, expected)
    seen = []
    for batch in micro_batches(sequences, tokens, row_tokens=row, micro_tokens=micro):
        chosen = batch.number_N
        seen += chosen.tolist()
        torch.testing.assert_close(batch.ids_BT[batch.row_N, batch.col_N], batch.target_N)
        np.testing.assert_array_equal(batch.target_N.numpy(), tokens.target_N[chosen])
        np.testing.assert_array_equal(batch.old_logp_N.numpy(), tokens.logp_N[chosen])
        assert bool((batch.col_N > 0).all())
        same = batch.segments_BT[batch.row_N, batch.col_N] == batch.segments_BT[batch.row_N, batch.col_N - 1]
        assert bool(same.all())  # the token before belongs to the same sequence
    assert sorted(seen) == list(range(len(expected)))


def test_weights_sum_to_one_over_all_micro_batches() -> None:
    sequences, tokens = flatten(make_episodes(5))
    pieces = list(micro_batches(sequences, tokens, micro_tokens=64))
    assert len(pieces) > 1
    for mode in ("token", "turn", "sequence"):
        assert sum(float(batch.weights[mode].sum()) for batch in pieces) == pytest.approx(1, abs=1e-5)


def test_all_tokens_predicts_everything_but_the_first() -> None:
    episodes = make_episodes(2)
    sequences, tokens = flatten(episodes, all_tokens=True)
    assert len(tokens.target_N) == sum(len(sequence.ids) - 1 for sequence in sequences)
    for batch in micro_batches(sequences, tokens):
        torch.testing.assert_close(batch.ids_BT[batch.row_N, batch.col_N], batch.target_N)


def test_no_episodes_no_batches() -> None:
    sequences, tokens = flatten([])
    assert list(micro_batches(sequences, tokens)) == []


def test_a_greedy_token_is_scored_at_temperature_one() -> None:
    given_N = np.array([0.0, 0.4, 1.0, 1.2], dtype=np.float32)
    assert measured_at(given_N).tolist() == np.array([1.0, 0.4, 1.0, 1.2], dtype=np.float32).tolist()
    assert measured_at(given_N).dtype == np.float32
    episodes = [
        replace(e, turns=tuple(replace(t, temperatures=np.zeros_like(t.temperatures)) for t in e.turns))
        for e in make_episodes(4)
    ]
    sequences, tokens = flatten(episodes)
    assert set(tokens.temperature_N.tolist()) == {1.0}
    assert {t for batch in micro_batches(sequences, tokens) for t in batch.temperature_N.tolist()} == {1.0}
