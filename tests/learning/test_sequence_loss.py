"""GSPO: one ratio per response."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from isentrope.core.token_weights import token_weights
from isentrope.learning.losses.clipped import clipped_loss
from isentrope.learning.losses.sequence import mean_log_ratio, sequence_loss
from tests.reference import naive, naive_torch

# log-prob, old log-prob, advantage, response: responses may be interleaved and some numbers may be missing
Row = st.tuples(st.floats(-5, 0), st.floats(-0.8, 0.8), st.floats(-3, 3), st.integers(0, 3))
Batch = st.lists(Row, min_size=1, max_size=10).map(lambda rows: [(a, a + d, c, t) for a, d, c, t in rows])
Rows = list[tuple[float, float, float, int]]
Clip = st.floats(0.02, 0.4)


def as_tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def columns(rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logp, old, advantage = (as_tensor([row[i] for row in rows]) for i in range(3))
    return logp, old, advantage, torch.tensor([row[3] for row in rows], dtype=torch.int64)


def ratios(rows: Rows) -> list[float]:
    found: list[float] = []
    for *_, turn in rows:
        inside = [logp - old for logp, old, _, other in rows if other == turn]
        found.append(math.exp(sum(inside) / len(inside)))
    return found


def away_from_the_corners(rows: Rows, low: float, high: float) -> None:
    """At a corner there is no slope to compare with."""
    for ratio in ratios(rows):
        assume(abs(ratio - (1 - low)) > 1e-4)
        assume(abs(ratio - (1 + high)) > 1e-4)


def one_advantage_per_response(rows: Rows) -> Rows:
    first = {turn: worth for *_, worth, turn in reversed(rows)}
    return [(logp, old, first[turn], turn) for logp, old, _, turn in rows]


def test_by_hand() -> None:
    # Response 0: log-ratios ln 4 and 0, mean ln 2, so s = 2 for both tokens. Response 1: ln 0.5.
    # Clip 0.2. A 1 at s 2: 1.2. A -1 at s 2: -2. A -3 at s 0.5: min(-1.5, -2.4) = -2.4.
    logp, turns = as_tensor([math.log(4), 0, math.log(0.5)]), torch.tensor([0, 0, 1])
    loss = sequence_loss(logp, as_tensor([0, 0, 0]), as_tensor([1, -1, -3]), turns, 0.2, 0.2)
    assert loss.tolist() == pytest.approx([-1.2, 2, 2.4])


def test_gradient_by_hand() -> None:
    # s = 2 in response 0 and no clip to speak of: -s · A_j. Response 1, s 0.5 and A 4: -2.
    logp, turns = [math.log(4), 0, math.log(0.5)], torch.tensor([0, 0, 1])
    zeros, advantage = as_tensor([0, 0, 0]), as_tensor([1, -3, 4])
    found = naive_torch.gradient(lambda x: sequence_loss(x, zeros, advantage, turns, 0.9, 9.0), logp)
    assert found.tolist() == pytest.approx([-2, 6, -2])


def test_each_side_has_its_own_clip() -> None:
    # Clip 3e-4 below and 4e-4 above, as in the paper. s = 1.01, A 1: 1.0004. s = 0.99, A -1: min(-0.99, -0.9997).
    logp, zeros = as_tensor([math.log(1.01), math.log(0.99)]), as_tensor([0, 0])
    loss = sequence_loss(logp, zeros, as_tensor([1, -1]), torch.tensor([0, 1]), 3e-4, 4e-4)
    assert loss.tolist() == pytest.approx([-1.0004, 0.9997], abs=1e-12)


@given(Batch, Clip, Clip)
def test_equals_the_naive_form(rows: Rows, low: float, high: float) -> None:
    expected = naive.sequence(*(list(column) for column in zip(*rows, strict=True)), low, high)
    np.testing.assert_allclose(sequence_loss(*columns(rows), low, high).numpy(), expected, rtol=1e-9, atol=1e-9)


@given(Batch, Clip, Clip)
def test_gradient_is_that_of_the_token_form(rows: Rows, low: float, high: float) -> None:
    away_from_the_corners(rows, low, high)
    logp, old, advantage, turns = columns(rows)
    found = naive_torch.gradient(lambda x: sequence_loss(x, old, advantage, turns, low, high), logp.tolist())
    numbers = turns.tolist()
    expected = naive_torch.gradient(
        lambda x: naive_torch.sequence_token(x, old, advantage, numbers, low, high), logp.tolist()
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    for slope, ratio, (*_, worth, _) in zip(found, ratios(rows), rows, strict=True):
        stopped = (worth > 0 and ratio > 1 + high) or (worth < 0 and ratio < 1 - low)
        assert slope == 0 if stopped else slope == pytest.approx(-ratio * worth, rel=1e-9, abs=1e-300)


@given(Batch, Clip, Clip)
def test_with_one_advantage_per_response_it_is_gspo(rows: Rows, low: float, high: float) -> None:
    """Averaged over tokens and then over responses, value and gradient are those of the sequence-level equation."""
    rows = one_advantage_per_response(rows)
    away_from_the_corners(rows, low, high)
    logp, old, advantage, turns = columns(rows)
    weights = torch.from_numpy(token_weights("sequence", turns.numpy(), turns.numpy()))
    numbers = turns.tolist()

    def ours(x: torch.Tensor) -> torch.Tensor:
        return (weights * sequence_loss(x, old, advantage, turns, low, high)).sum()

    def paper(x: torch.Tensor) -> torch.Tensor:
        return torch.stack(naive_torch.sequence(x, old, advantage, numbers, low, high)).mean()

    def loops(at: list[float]) -> float:
        losses = naive.sequence(at, old.tolist(), advantage.tolist(), numbers, low, high)
        return naive.mean_over(losses, numbers, numbers, "sequence")

    assert float(ours(logp)) == pytest.approx(float(paper(logp)), rel=1e-9, abs=1e-12)
    found = naive_torch.gradient(ours, logp.tolist())
    np.testing.assert_allclose(found, naive_torch.gradient(paper, logp.tolist()), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, naive_torch.slopes(loops, logp.tolist()), rtol=1e-5, atol=1e-7)


@given(Batch, Clip, Clip)
def test_responses_of_one_token_have_the_plain_clip(rows: Rows, low: float, high: float) -> None:
    logp, old, advantage, _ = columns(rows)
    turns = torch.arange(len(rows))
    away_from_the_corners([(a, b, c, i) for i, (a, b, c, _) in enumerate(rows)], low, high)
    losses = sequence_loss(logp, old, advantage, turns, low, high), clipped_loss(logp, old, advantage, low, high)
    np.testing.assert_allclose(losses[0].numpy(), losses[1].numpy(), rtol=1e-12, atol=1e-300)
    of_sequence = naive_torch.gradient(lambda x: sequence_loss(x, old, advantage, turns, low, high), logp.tolist())
    of_tokens = naive_torch.gradient(lambda x: clipped_loss(x, old, advantage, low, high), logp.tolist())
    np.testing.assert_allclose(of_sequence, of_tokens, rtol=1e-12, atol=1e-300)


@given(Batch, st.permutations(range(10)))
def test_order_of_tokens_does_not_matter(rows: Rows, order: list[int]) -> None:
    places = [place for place in order if place < len(rows)]
    expected = sequence_loss(*columns(rows), 0.1, 0.2)[places]
    found = sequence_loss(*columns([rows[place] for place in places]), 0.1, 0.2)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


@given(Batch, st.permutations(range(10)))
def test_which_token_of_a_response_moved_does_not_matter(rows: Rows, order: list[int]) -> None:
    """The log-ratios change places inside each response; the values are those of before."""
    moved = list(rows)
    for turn in {turn for *_, turn in rows}:
        inside = [place for place, row in enumerate(rows) if row[3] == turn]
        shuffled = [place for place in order if place in inside]
        for here, there in zip(inside, shuffled, strict=True):
            moved[here] = (rows[there][0], rows[there][1], rows[here][2], turn)
    expected, found = sequence_loss(*columns(rows), 0.1, 0.2), sequence_loss(*columns(moved), 0.1, 0.2)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


@given(Batch)
def test_responses_do_not_see_each_other(rows: Rows) -> None:
    together = sequence_loss(*columns(rows), 0.1, 0.2)
    for turn in {turn for *_, turn in rows}:
        inside = [place for place, row in enumerate(rows) if row[3] == turn]
        alone = sequence_loss(*columns([rows[place] for place in inside]), 0.1, 0.2)
        assert alone.tolist() == together[inside].tolist()


def test_not_a_number_spoils_its_response_only() -> None:
    turns = torch.tensor([0, 0, 1, 1])
    for column in range(3):
        rows = [as_tensor([-1.0, -2, -3, -1]), as_tensor([-1.1, -2, -2.8, -1]), as_tensor([1.0, -1, 2, 3])]
        clean = sequence_loss(*rows, turns, 0.2, 0.2)
        rows[column][1] = math.nan
        spoilt = sequence_loss(*rows, turns, 0.2, 0.2)
        assert spoilt[2:].tolist() == clean[2:].tolist()
        # a bad advantage is the token's own; a bad log-prob is in the ratio of the whole response
        assert torch.isnan(spoilt[:2]).tolist() == [column < 2, True]


def test_huge_ratios_stay_finite() -> None:
    logp = torch.tensor([0.0, 0.0, -500.0], requires_grad=True)
    turns = torch.tensor([0, 0, 1])
    loss = sequence_loss(logp, torch.tensor([-500.0, -400.0, 0.0]), torch.tensor([-1.0, -1.0, 1.0]), turns, 0.2, 0.2)
    loss.sum().backward()
    assert logp.grad is not None
    assert bool(torch.isfinite(loss).all() & torch.isfinite(logp.grad).all())


def test_no_tokens_no_losses() -> None:
    none, turns = torch.zeros(0, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    loss = sequence_loss(none, torch.zeros(0), torch.zeros(0), turns, 0.2, 0.2)
    assert loss.shape == (0,)
    loss.sum().backward()
    assert mean_log_ratio(torch.zeros(0), turns).shape == (0,)
