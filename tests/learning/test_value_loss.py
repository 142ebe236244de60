"""The critic's loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from isentrope.learning.losses.value import value_loss
from tests.reference import naive, naive_torch

Number = st.floats(-3, 3)
Rows = list[tuple[float, float, float]]
# value, value when the batch was sampled, return
Batch = st.lists(st.tuples(Number, Number, Number), min_size=1, max_size=8)
Clip = st.sampled_from([0.0, 0.05, 0.2, 1.0])


def columns(rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    value, old, target = (torch.tensor([row[i] for row in rows], dtype=torch.float64) for i in range(3))
    return value, old, target


def away_from_the_corners(rows: Rows, clip: float) -> None:
    """Where the clip starts to bind, or both squares are equal, there is no slope to compare with."""
    for value, old, target in rows:
        limited = min(max(value, old - clip), old + clip)
        assume(abs(abs(value - old) - clip) > 1e-4)
        assume(limited == value or abs((value - target) ** 2 - (limited - target) ** 2) > 1e-4)


def test_by_hand() -> None:
    # Old value 0, clip 0.2. Value 0.5, return 1: free 0.25, limited to 0.2: 0.64; the larger, halved: 0.32.
    # Value 0.5, return -1: free 2.25, limited 1.44; halved 1.125. Value 0.1, return 1: inside, 0.81 / 2 = 0.405.
    value, old, target = columns([(0.5, 0, 1), (0.5, 0, -1), (0.1, 0, 1)])
    assert value_loss(value, old, target, 0.2).tolist() == pytest.approx([0.32, 1.125, 0.405])
    # Without a clip: 0.25 / 2, 2.25 / 2, 0.81 / 2.
    assert value_loss(value, old, target, 0.0).tolist() == pytest.approx([0.125, 1.125, 0.405])


def test_gradient_by_hand() -> None:
    # As above: gone too far towards the return: 0. Gone away from it: v - R = 1.5. Inside: v - R = -0.9.
    value, old, target = columns([(0.5, 0, 1), (0.5, 0, -1), (0.1, 0, 1)])
    found = naive_torch.gradient(lambda x: value_loss(x, old, target, 0.2), value.tolist())
    assert found.tolist() == pytest.approx([0, 1.5, -0.9])


@given(Batch, Clip)
def test_equals_the_naive_form(rows: Rows, clip: float) -> None:
    expected = [naive.value(*row, clip) for row in rows]
    np.testing.assert_allclose(value_loss(*columns(rows), clip).numpy(), expected, rtol=1e-9, atol=1e-12)


@given(Batch, Clip)
def test_has_the_slope_of_its_equation(rows: Rows, clip: float) -> None:
    away_from_the_corners(rows, clip)
    value, old, target = columns(rows)
    found = naive_torch.gradient(lambda x: value_loss(x, old, target, clip), value.tolist())
    autograd = naive_torch.gradient(lambda x: naive_torch.value(x, old, target, clip), value.tolist())
    np.testing.assert_allclose(found, autograd, rtol=1e-9, atol=1e-12)

    def total(at: list[float]) -> float:
        return sum(naive.value(v, o, r, clip) for v, (_, o, r) in zip(at, rows, strict=True))

    np.testing.assert_allclose(found, naive_torch.slopes(total, value.tolist()), rtol=1e-5, atol=1e-7)


@given(Batch, st.sampled_from([0.05, 0.2, 1.0]))
def test_stops_exactly_where_the_equation_says(rows: Rows, clip: float) -> None:
    away_from_the_corners(rows, clip)
    value, old, target = columns(rows)
    found = naive_torch.gradient(lambda x: value_loss(x, old, target, clip), value.tolist())
    for slope, (new, before, goal) in zip(found, rows, strict=True):
        limited = min(max(new, before - clip), before + clip)
        stopped = limited != new and (limited - goal) ** 2 > (new - goal) ** 2
        assert slope == 0 if stopped else slope == pytest.approx(new - goal, rel=1e-9, abs=1e-12)


@given(Batch)
def test_a_clip_wider_than_any_move_is_no_clip(rows: Rows) -> None:
    wide, free = value_loss(*columns(rows), 100.0), value_loss(*columns(rows), 0.0)
    np.testing.assert_allclose(wide.numpy(), free.numpy(), rtol=1e-9, atol=1e-12)


@given(Batch, Clip)
def test_the_clip_only_adds_and_values_that_have_not_moved_are_free(rows: Rows, clip: float) -> None:
    value, old, target = columns(rows)
    assert bool((value_loss(value, old, target, clip) >= value_loss(value, old, target, 0.0)).all())
    np.testing.assert_array_equal(value_loss(old, old, target, clip), value_loss(old, old, target, 0.0))


@given(Batch, Clip, st.permutations(range(8)))
def test_tokens_do_not_see_each_other(rows: Rows, clip: float, order: list[int]) -> None:
    places = [place for place in order if place < len(rows)]
    found = value_loss(*columns([rows[place] for place in places]), clip)
    assert found.tolist() == value_loss(*columns(rows), clip)[places].tolist()


@pytest.mark.parametrize("column", [0, 1, 2])
def test_not_a_number_stays_not_a_number_and_alone(column: int) -> None:
    rows = list(columns([(0.5, 0, 1), (0.5, 0.1, -1), (0.1, 0, 1)]))
    clean = value_loss(*rows, 0.2)
    rows[column][1] = math.nan
    spoilt = value_loss(*rows, 0.2)
    assert math.isnan(spoilt[1])
    assert spoilt[[0, 2]].tolist() == clean[[0, 2]].tolist()
    # without a clip the old value is not read
    assert math.isnan(value_loss(*rows, 0.0)[1]) == (column != 1)


def test_an_infinite_return_is_an_infinite_loss() -> None:
    value, old, target = columns([(0.5, 0, math.inf), (0.5, 0, -math.inf)])
    for clip in (0.0, 0.2):
        assert value_loss(value, old, target, clip).tolist() == [math.inf, math.inf]


def test_no_tokens_no_losses() -> None:
    none = torch.zeros(0, requires_grad=True)
    for clip in (0.0, 0.2):
        loss = value_loss(none, torch.zeros(0), torch.zeros(0), clip)
        assert loss.shape == (0,)
        loss.sum().backward()
