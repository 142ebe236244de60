from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isentrope.losses.clipped import clipped_loss
from isentrope.losses.kl import kl_estimate
from isentrope.masked import MODES, token_weights
from tests.reference import naive

Logp = st.floats(-8, 0)


def as_tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_clip_by_hand() -> None:
    # Ratio 2 with advantage 1 and clip 0.2: min(2, 1.2) = 1.2. With advantage -1: min(-2, -1.2) = -2.
    # Ratio 0.5 with advantage 1: min(0.5, 0.8) = 0.5. With advantage -1: min(-0.5, -0.8) = -0.8.
    logp = as_tensor([math.log(2), math.log(2), math.log(0.5), math.log(0.5)])
    loss = clipped_loss(logp, torch.zeros(4), as_tensor([1, -1, 1, -1]), 0.2, 0.2)
    assert loss.tolist() == pytest.approx([-1.2, 2.0, -0.5, 0.8])


@given(
    st.lists(st.tuples(Logp, Logp, st.floats(-3, 3)), min_size=1, max_size=8),
    st.floats(0.05, 0.4),
    st.floats(0.05, 0.4),
)
def test_clip_equals_the_naive_form(rows: list[tuple[float, float, float]], low: float, high: float) -> None:
    logp, old, advantage = (as_tensor([row[i] for row in rows]) for i in range(3))
    expected = [naive.clipped(*row, low, high) for row in rows]
    np.testing.assert_allclose(clipped_loss(logp, old, advantage, low, high).numpy(), expected, rtol=1e-9, atol=1e-9)


def test_gradient_is_the_ratio_times_the_advantage_inside_and_zero_where_the_clip_binds() -> None:
    # d(-ratio · A)/dlogp = -ratio · A; where the clipped branch is the smaller one it is constant.
    logp = as_tensor([math.log(1.1), math.log(2), math.log(2), math.log(0.5), math.log(0.5)]).requires_grad_()
    advantage = as_tensor([3, 1, -1, 1, -1])
    clipped_loss(logp, torch.zeros(5, dtype=torch.float64), advantage, 0.2, 0.2).sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([-3.3, 0, 2, -0.5, 0])


@given(st.lists(st.tuples(Logp, Logp), min_size=1, max_size=8), st.sampled_from(["k1", "k2", "k3"]))
def test_kl_equals_the_naive_form_and_its_slope(rows: list[tuple[float, float]], estimator: str) -> None:
    logp, ref = as_tensor([a for a, _ in rows]).requires_grad_(), as_tensor([b for _, b in rows])
    values = kl_estimate(logp, ref, estimator)
    np.testing.assert_allclose(values.detach().numpy(), [naive.kl(a, b, estimator) for a, b in rows], atol=1e-9)
    values.sum().backward()
    assert logp.grad is not None
    step = 1e-6
    slopes = [(naive.kl(a + step, b, estimator) - naive.kl(a - step, b, estimator)) / (2 * step) for a, b in rows]
    np.testing.assert_allclose(logp.grad.numpy(), slopes, rtol=1e-4, atol=1e-4)


def test_kl_by_hand_and_unknown_name() -> None:
    # d = ln 2: k1 = 0.6931, k2 = 0.2402, k3 = 1/2 - 1 + 0.6931 = 0.1931.
    d = as_tensor([math.log(2)])
    got = [float(kl_estimate(d, torch.zeros(1), name)) for name in ("k1", "k2", "k3")]
    assert got == pytest.approx([0.693147, 0.240227, 0.193147], abs=1e-5)
    with pytest.raises(ValueError, match="k4"):
        kl_estimate(d, d, "k4")


def test_huge_ratios_stay_finite() -> None:
    logp = torch.tensor([0.0, -500.0], requires_grad=True)
    loss = clipped_loss(logp, torch.tensor([-500.0, 0.0]), torch.tensor([-1.0, -1.0]), 0.2, 0.2).sum()
    (loss + kl_estimate(logp, torch.tensor([-500.0, 0.0]), "k3").sum()).backward()
    assert logp.grad is not None
    assert bool(torch.isfinite(logp.grad).all())


def test_weights_by_hand() -> None:
    # Episode 0 has turn 0 of two tokens and turn 1 of one; episode 1 has turn 2 of one token.
    episodes, turns = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2])
    assert token_weights("token", episodes, turns) == pytest.approx([1 / 4] * 4)
    assert token_weights("sequence", episodes, turns) == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert token_weights("turn", episodes, turns) == pytest.approx([1 / 8, 1 / 8, 1 / 4, 1 / 2])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.floats(-5, 5)), min_size=1, max_size=20))
def test_weights_equal_nested_means(rows: list[tuple[int, int, float]]) -> None:
    episodes, turns = np.array([e for e, _, _ in rows]), np.array([10 * e + t for e, t, _ in rows])
    values = np.array([v for _, _, v in rows])
    for mode in MODES:
        weights = token_weights(mode, episodes, turns)
        assert weights.sum() == pytest.approx(1)
        expected = naive.mean_over(values.tolist(), episodes.tolist(), turns.tolist(), mode)
        assert float(weights @ values) == pytest.approx(expected, abs=1e-9)
