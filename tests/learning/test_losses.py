"""Losses of single tokens: the plain policy gradient and the clip of PPO; what all of them share, the KL too."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from isentrope.learning.losses.clipped import clipped_loss
from isentrope.learning.losses.kl import ESTIMATORS, kl_estimate
from isentrope.learning.losses.policy_gradient import policy_gradient_loss
from tests.reference import naive, naive_torch

Logp = st.floats(-8, 0)
Rows = list[tuple[float, float, float]]
# log-prob, old log-prob, advantage; ratios from 0.37 to 2.7, so that all regions of the clip are met
Tokens = st.lists(st.tuples(Logp, st.floats(-1, 1), st.floats(-3, 3)), min_size=1, max_size=8).map(
    lambda rows: [(logp, logp + apart, advantage) for logp, apart, advantage in rows]
)
Clip = st.floats(0.05, 0.4)


def as_tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def columns(rows: Rows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return as_tensor([row[0] for row in rows]), as_tensor([row[1] for row in rows]), as_tensor([row[2] for row in rows])


def away_from_the_corners(rows: Rows, low: float, high: float) -> None:
    """At a corner there is no slope to compare with."""
    for logp, old, _ in rows:
        ratio = math.exp(logp - old)
        assume(abs(ratio - (1 - low)) > 1e-4)
        assume(abs(ratio - (1 + high)) > 1e-4)


def test_policy_gradient_by_hand() -> None:
    # -A · logp: -2 · -0.5 = 1; -(-3) · -2 = -6; no advantage, no loss.
    assert policy_gradient_loss(as_tensor([-0.5, -2, -1]), as_tensor([2, -3, 0])).tolist() == [1, -6, 0]


@given(Tokens)
def test_policy_gradient_equals_the_naive_form_and_its_slope(rows: Rows) -> None:
    logp, _, advantage = columns(rows)
    loss = policy_gradient_loss(logp, advantage)
    np.testing.assert_allclose(loss.numpy(), [naive.policy_gradient(a, c) for a, _, c in rows], atol=1e-12)
    found = naive_torch.gradient(lambda x: policy_gradient_loss(x, advantage), logp.tolist())
    np.testing.assert_array_equal(found, -advantage.numpy())
    expected = naive_torch.gradient(lambda x: naive_torch.policy_gradient(x, advantage), logp.tolist())
    np.testing.assert_array_equal(found, expected)


def test_clip_by_hand() -> None:
    # Ratio 2 with advantage 1 and clip 0.2: min(2, 1.2) = 1.2. With advantage -1: min(-2, -1.2) = -2.
    # Ratio 0.5 with advantage 1: min(0.5, 0.8) = 0.5. With advantage -1: min(-0.5, -0.8) = -0.8.
    logp = as_tensor([math.log(2), math.log(2), math.log(0.5), math.log(0.5)])
    loss = clipped_loss(logp, torch.zeros(4), as_tensor([1, -1, 1, -1]), 0.2, 0.2)
    assert loss.tolist() == pytest.approx([-1.2, 2.0, -0.5, 0.8])


def test_each_side_has_its_own_clip() -> None:
    # Clip 0.3 below and 0.1 above. Ratio 2, A 1: 1.1. Ratio 0.5, A -1: -min(-0.5, -0.7) = 0.7.
    loss = clipped_loss(as_tensor([math.log(2), math.log(0.5)]), torch.zeros(2), as_tensor([1, -1]), 0.3, 0.1)
    assert loss.tolist() == pytest.approx([-1.1, 0.7])


@given(Tokens, Clip, Clip)
def test_clip_equals_the_naive_form(rows: Rows, low: float, high: float) -> None:
    logp, old, advantage = columns(rows)
    expected = [naive.clipped(*row, low, high) for row in rows]
    np.testing.assert_allclose(clipped_loss(logp, old, advantage, low, high).numpy(), expected, rtol=1e-9, atol=1e-9)


@given(Tokens, Clip, Clip)
def test_clip_has_the_slope_of_its_equation(rows: Rows, low: float, high: float) -> None:
    away_from_the_corners(rows, low, high)
    logp, old, advantage = columns(rows)
    found = naive_torch.gradient(lambda x: clipped_loss(x, old, advantage, low, high), logp.tolist())
    autograd = naive_torch.gradient(lambda x: naive_torch.clipped(x, old, advantage, low, high), logp.tolist())
    np.testing.assert_allclose(found, autograd, rtol=1e-9, atol=1e-12)
    others = list(zip(old.tolist(), advantage.tolist(), strict=True))
    total = lambda at: sum(naive.clipped(x, o, a, low, high) for x, (o, a) in zip(at, others, strict=True))  # noqa: E731
    np.testing.assert_allclose(found, naive_torch.slopes(total, logp.tolist()), rtol=1e-5, atol=1e-6)


@given(Tokens, Clip, Clip)
def test_clip_stops_exactly_where_the_equation_says(rows: Rows, low: float, high: float) -> None:
    away_from_the_corners(rows, low, high)
    logp, old, advantage = columns(rows)
    found = naive_torch.gradient(lambda x: clipped_loss(x, old, advantage, low, high), logp.tolist())
    for slope, (new, before, worth) in zip(found, rows, strict=True):
        ratio = math.exp(new - before)
        stopped = (worth > 0 and ratio > 1 + high) or (worth < 0 and ratio < 1 - low)
        assert slope == 0 if stopped else slope == pytest.approx(-ratio * worth, rel=1e-9, abs=1e-300)


def test_gradient_is_the_ratio_times_the_advantage_inside_and_zero_where_the_clip_binds() -> None:
    # d(-ratio · A)/dlogp = -ratio · A; where the clipped branch is the smaller one it is constant.
    logp = [math.log(1.1), math.log(2), math.log(2), math.log(0.5), math.log(0.5)]
    advantage = as_tensor([3, 1, -1, 1, -1])
    zeros = torch.zeros(5, dtype=torch.float64)
    found = naive_torch.gradient(lambda x: clipped_loss(x, zeros, advantage, 0.2, 0.2), logp)
    assert found.tolist() == pytest.approx([-3.3, 0, 2, -0.5, 0])


@given(Tokens)
def test_before_the_first_update_the_clip_is_the_policy_gradient(rows: Rows) -> None:
    logp, _, advantage = columns(rows)
    found = naive_torch.gradient(lambda x: clipped_loss(x, logp, advantage, 0.2, 0.2), logp.tolist())
    np.testing.assert_allclose(found, -advantage.numpy(), rtol=1e-12, atol=1e-300)


def test_huge_ratios_stay_finite() -> None:
    logp = torch.tensor([0.0, -500.0], requires_grad=True)
    loss = clipped_loss(logp, torch.tensor([-500.0, 0.0]), torch.tensor([-1.0, -1.0]), 0.2, 0.2).sum()
    (loss + kl_estimate(logp, torch.tensor([-500.0, 0.0]), "k3").sum()).backward()
    assert logp.grad is not None
    assert bool(torch.isfinite(logp.grad).all())


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "policy gradient": lambda logp, old, advantage: policy_gradient_loss(logp, advantage),
    "clip": lambda logp, old, advantage: clipped_loss(logp, old, advantage, 0.2, 0.2),
    **{name: lambda logp, old, advantage, name=name: kl_estimate(logp, old, name) for name in ESTIMATORS},
}
every = pytest.mark.parametrize("name", LOSSES)


@every
@given(Tokens, st.permutations(range(8)))
def test_tokens_do_not_see_each_other(name: str, rows: Rows, order: list[int]) -> None:
    places = [place for place in order if place < len(rows)]
    logp, old, advantage = columns(rows)
    whole = LOSSES[name](logp, old, advantage)
    assert LOSSES[name](logp[places], old[places], advantage[places]).tolist() == whole[places].tolist()


READ = {"policy gradient": (0, 2), "clip": (0, 1, 2), "k1": (0, 1), "k2": (0, 1), "k3": (0, 1)}


@pytest.mark.parametrize(("name", "column"), [(name, column) for name, columns in READ.items() for column in columns])
def test_not_a_number_stays_not_a_number_and_alone(name: str, column: int) -> None:
    rows = [as_tensor([-1.0, -2.0, -3.0]), as_tensor([-1.5, -1.5, -1.5]), as_tensor([1.0, -1.0, 2.0])]
    clean = LOSSES[name](*rows)
    rows[column][1] = math.nan
    spoilt = LOSSES[name](*rows)
    assert math.isnan(spoilt[1])
    assert spoilt[[0, 2]].tolist() == clean[[0, 2]].tolist()


@pytest.mark.parametrize("name", ["policy gradient", "clip"])
@pytest.mark.parametrize("bad", [math.inf, -math.inf])
def test_an_infinite_advantage_is_an_infinite_loss(name: str, bad: float) -> None:
    loss = LOSSES[name](as_tensor([-1.0]), as_tensor([-1.1]), as_tensor([bad]))
    assert math.isinf(loss[0])


@every
def test_no_tokens_no_losses(name: str) -> None:
    none = torch.zeros(0, requires_grad=True)
    loss = LOSSES[name](none, torch.zeros(0), torch.zeros(0))
    assert loss.shape == (0,)
    loss.sum().backward()
    assert none.grad is not None
