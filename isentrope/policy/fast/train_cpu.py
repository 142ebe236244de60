"""Attention over packed tokens on a CPU: torch's own flash kernels, run by run, with nothing padded or masked.

Heads that share keys read the same memory: keys and values are never copied for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from isentrope.policy.fast.train_attention import Kernels, Pass

aten: Any = torch.ops.aten


def _runs(p: Pass) -> Iterator[tuple[slice, slice]]:
    """The queries and the keys of each run."""
    queries, keys = cast("list[list[int]]", [p.queries.tolist(), p.keys.tolist()])
    cuts = zip(pairwise(queries), pairwise(keys), strict=True)
    return ((slice(*q), slice(*k)) for q, k in cuts if q[1] > q[0])


def _queries(x: Tensor, kv_heads: int) -> Tensor:
    """[tokens, heads, size] as [kv heads, heads that share them, tokens, size]."""
    tokens, heads, size = x.shape
    return x.view(tokens, kv_heads, heads // kv_heads, size).permute(1, 2, 0, 3)


def _keys(x: Tensor, share: int) -> Tensor:
    """[tokens, kv heads, size] likewise, each as often as it is shared."""
    return x.transpose(0, 1)[:, None].expand(-1, share, -1, -1)


def _forward(q: Tensor, k: Tensor, v: Tensor, p: Pass) -> tuple[Tensor, Tensor, None]:
    kv_heads, share = k.shape[1], q.shape[1] // k.shape[1]
    out, norm = torch.empty_like(q), q.new_empty(q.shape[1], q.shape[0])
    for at, seen in _runs(p):
        part, normaliser = aten._scaled_dot_product_flash_attention_for_cpu(
            _queries(q[at], kv_heads), _keys(k[seen], share), _keys(v[seen], share), 0.0, p.causal
        )
        _queries(out[at], kv_heads).copy_(part)
        norm[:, at] = normaliser.flatten(0, 1)
    return out, norm, None


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, p: Pass, rest: None
) -> tuple[Tensor, Tensor, Tensor]:
    kv_heads, share = k.shape[1], q.shape[1] // k.shape[1]
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for at, seen in _runs(p):
        # the kernel wants the normalisers as it made them: tokens outside of heads
        normaliser = norm[:, at].view(kv_heads, share, -1).transpose(1, 2).contiguous().transpose(1, 2)
        parts = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            _queries(grad[at], kv_heads),
            _queries(q[at], kv_heads),
            _keys(k[seen], share),
            _keys(v[seen], share),
            _queries(out[at], kv_heads),
            normaliser,
            0.0,
            p.causal,
        )
        _queries(dq[at], kv_heads).copy_(parts[0])
        dk[seen] = parts[1].sum(1).transpose(0, 1)
        dv[seen] = parts[2].sum(1).transpose(0, 1)
    return dq, dk, dv


CPU = Kernels(_forward, _backward)
