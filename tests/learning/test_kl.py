"""Estimators of the divergence from the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isentrope.learning.losses.kl import ESTIMATORS, kl_estimate
from tests.reference import naive, naive_torch

Logp = st.floats(-8, 0)


def as_tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(st.lists(st.tuples(Logp, Logp), min_size=1, max_size=8), st.sampled_from(ESTIMATORS))
def test_kl_equals_the_naive_form_and_its_slope(rows: list[tuple[float, float]], estimator: str) -> None:
    at, ref = [a for a, _ in rows], as_tensor([b for _, b in rows])
    values = kl_estimate(as_tensor(at), ref, estimator)
    np.testing.assert_allclose(values.numpy(), [naive.kl(a, b, estimator) for a, b in rows], atol=1e-9)
    found = naive_torch.gradient(lambda x: kl_estimate(x, ref, estimator), at)
    autograd = naive_torch.gradient(lambda x: naive_torch.kl(x, ref, estimator), at)
    np.testing.assert_allclose(found, autograd, rtol=1e-9, atol=1e-9)
    pairs = ref.tolist()
    total = lambda x: sum(naive.kl(a, b, estimator) for a, b in zip(x, pairs, strict=True))  # noqa: E731
    np.testing.assert_allclose(found, naive_torch.slopes(total, at), rtol=1e-4, atol=1e-4)


def test_kl_by_hand_and_unknown_name() -> None:
    # d = ln 2: k1 = 0.6931, k2 = 0.2402, k3 = 1/2 - 1 + 0.6931 = 0.1931.
    d = as_tensor([math.log(2)])
    got = [float(kl_estimate(d, torch.zeros(1), name)) for name in ("k1", "k2", "k3")]
    assert got == pytest.approx([0.693147, 0.240227, 0.193147], abs=1e-5)
    with pytest.raises(ValueError, match="k4"):
        kl_estimate(d, d, "k4")


@given(st.lists(st.tuples(Logp, Logp), min_size=1, max_size=8))
def test_k2_and_k3_are_never_negative_and_zero_only_at_the_reference(rows: list[tuple[float, float]]) -> None:
    logp, ref = as_tensor([a for a, _ in rows]), as_tensor([b for _, b in rows])
    for name in ("k2", "k3"):
        assert bool((kl_estimate(logp, ref, name) >= -1e-15).all())  # but for rounding
        assert kl_estimate(logp, logp, name).tolist() == [0.0] * len(rows)


def test_in_the_mean_k1_and_k3_are_the_divergence() -> None:
    # p = (0.5, 0.3, 0.2), q = (0.2, 0.5, 0.3): Σ p ln(p/q) = 0.4581 - 0.1532 - 0.0811 = 0.2238.
    p, q = as_tensor([0.5, 0.3, 0.2]), as_tensor([0.2, 0.5, 0.3])
    for name in ("k1", "k3"):
        assert float((p * kl_estimate(p.log(), q.log(), name)).sum()) == pytest.approx(0.22380, abs=1e-4)


def test_far_below_the_reference_k3_never_pushes_further_down() -> None:
    # d/dlogp (exp(-d) - 1 + d) = 1 - exp(-d): negative for every d < 0, so that descent raises the log-prob.
    found = naive_torch.gradient(lambda x: kl_estimate(x, torch.zeros(3), "k3"), [-10.0, -19.0, -25.0])
    assert np.all(found <= 0)


def test_k3_near_the_reference_in_single_precision() -> None:
    # d = 1e-4: k3 = d²/2 - d³/6 + … = 5e-9.
    d = torch.tensor([1e-4, -1e-4], dtype=torch.float32)
    assert kl_estimate(d, torch.zeros(2), "k3").tolist() == pytest.approx([5e-9, 5e-9], rel=0.1)
