"""Training's attention on a CPU, run by run, against the dense one under a mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isentrope.core.types import Spans
from isentrope.kernels.attention import Kernels, attention, make_pattern
from isentrope.kernels.forward import CPU

CPU_DEVICE = torch.device("cpu")


def spans_of(lengths: list[int], parents: list[int]) -> Spans:
    start = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return Spans(start.astype(np.int64), np.array(lengths, dtype=np.int64), np.array(parents, dtype=np.int64))


def out_and_gradients(spans: Spans, heads: int, kv_heads: int, kernels: Kernels | None) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    tokens = int(spans.length.sum())
    q, k, v = (
        torch.randn(tokens, count, 16, generator=generator).requires_grad_() for count in (heads, kv_heads, kv_heads)
    )
    out = attention(q, k, v, make_pattern(spans, CPU_DEVICE, dense=kernels is None), kernels)
    out.backward(torch.randn(out.shape, generator=generator))
    grads = [x.grad for x in (q, k, v)]
    return [out.detach(), *(grad for grad in grads if grad is not None)]


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    heads=st.sampled_from([(4, 2), (3, 1), (2, 2)]),
    shares=st.booleans(),
)
def test_agrees_with_the_mask(lengths: list[int], heads: tuple[int, int], shares: bool) -> None:
    parents = [-1] + [0 if shares and i % 2 else -1 for i in range(1, len(lengths))]
    spans = spans_of(lengths, parents)
    ours, dense = (out_and_gradients(spans, *heads, kernels) for kernels in (CPU, None))
    assert len(ours) == len(dense) == 4
    for a, b in zip(ours, dense, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_by_hand() -> None:
    """One head, equal scores: each token sees the mean of the values up to itself, and of its parent's."""
    spans = spans_of([2, 2], [-1, 0])
    q = torch.zeros(4, 1, 8)
    k = torch.ones(4, 1, 8)
    v = torch.tensor([1.0, 3.0, 5.0, 11.0])[:, None, None].expand(4, 1, 8).contiguous()
    out = attention(q, k, v, make_pattern(spans, CPU_DEVICE), CPU)
    assert out[:, 0, 0].tolist() == pytest.approx([1.0, 2.0, 3.0, 5.0])
