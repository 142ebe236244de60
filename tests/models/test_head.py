"""The token head against the plain form: all logits at once, autograd."""

from __future__ import annotations

import math
import resource
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isentrope.models.token_head import token_head


def plain(hidden: Tensor, weight: Tensor, target: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    words = torch.log_softmax(hidden @ weight.T / temperature[:, None], dim=-1)
    return words.gather(1, target[:, None]).squeeze(1), -(words.exp() * words).sum(-1)


def test_by_hand() -> None:
    # Two words with logits (ln 3, 0) at temperature 1: p = (3/4, 1/4).
    # At temperature 0.5 the logits double to (ln 9, 0): p = (9/10, 1/10).
    hidden = torch.tensor([[math.log(3.0)], [math.log(3.0)]])
    weight = torch.tensor([[1.0], [0.0]])
    logp, entropy = token_head(hidden, weight, torch.tensor([0, 1]), torch.tensor([1.0, 0.5]))
    assert logp.tolist() == pytest.approx([math.log(0.75), math.log(0.1)], abs=1e-6)
    assert entropy.tolist() == pytest.approx(
        [-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))], abs=1e-6
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 17), st.integers(2, 30), st.integers(1, 9), st.integers(1, 20), st.integers(0, 10**6))
def test_values_and_gradients_equal_the_plain_form(n: int, v: int, d: int, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    hidden, weight = torch.randn(n, d), torch.randn(v, d)
    target, temperature = torch.randint(v, (n,)), 0.3 + 2 * torch.rand(n)
    a, b = torch.randn(n), torch.randn(n)
    grads: list[tuple[Tensor, ...]] = []
    for form in (
        lambda h, w: token_head(h, w, target, temperature, rows),
        lambda h, w: plain(h, w, target, temperature),
    ):
        h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        logp, entropy = form(h, w)
        (a * logp + b * entropy).sum().backward()
        assert h.grad is not None
        assert w.grad is not None
        grads.append((logp.detach(), entropy.detach(), h.grad, w.grad))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


def test_gradient_by_finite_differences() -> None:
    torch.manual_seed(3)
    hidden, weight = torch.randn(3, 4), torch.randn(5, 4)
    target, temperature = torch.tensor([0, 4, 2]), torch.tensor([1.0, 1.2, 0.6])

    def value(h: Tensor) -> float:
        logp, entropy = token_head(h, weight, target, temperature)
        return float((2 * logp - 3 * entropy).double().sum())

    h = hidden.clone().requires_grad_()
    logp, entropy = token_head(h, weight, target, temperature)
    (2 * logp - 3 * entropy).sum().backward()
    assert h.grad is not None
    for i in range(3):
        for j in range(4):
            step = torch.zeros_like(hidden)
            step[i, j] = 1e-2
            slope = (value(hidden + step) - value(hidden - step)) / 2e-2
            assert float(h.grad[i, j]) == pytest.approx(slope, abs=5e-3)


_PEAK = """
import resource, torch
from isentrope.models.token_head import token_head
torch.set_num_threads(1)
n, v, d = 4096, 16384, 4
hidden, weight = torch.randn(n, d, requires_grad=True), torch.randn(v, d, requires_grad=True)
target, temperature = torch.randint(v, (n,)), torch.ones(n)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
logp, entropy = token_head(hidden, weight, target, temperature)
(logp + entropy).sum().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_peak_memory_stays_far_below_all_logits() -> None:
    # All logits of 4,096 tokens and 16,384 words are 256 MiB in float32, and the plain form holds several such.
    assert resource.RUSAGE_SELF == 0
    done = subprocess.run([sys.executable, "-c", _PEAK], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 450
