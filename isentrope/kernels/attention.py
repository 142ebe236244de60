"""Attention over packed tokens on a GPU: each segment sees itself up to the token, and its parent segment whole.

Both are passes of torch's own variable-length kernels. A segment with a parent is attended twice, over itself and
over the parent, and the two results are joined by their normalisers, as if the keys had stood in one row:

    out = Σ_i e^(n_i - n) out_i        n = log Σ_i e^(n_i)

The backward kernels need only the joined out and n, so each part's gradient comes from one more pass of its own.
Nothing is copied for a parent with many children.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from isentrope.core.types import Spans
from isentrope.kernels.compiled import LEAN, compiled

Index = slice | Tensor
aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Pass:
    """Which run of queries looks at which run of keys: both cut at these places, the longest of each."""

    queries: Tensor  # int32 [runs + 1], from 0
    keys: Tensor
    longest_query: int
    longest_key: int
    causal: bool


@dataclass(frozen=True)
class Pattern:
    """Who sees whom, for all tokens of a batch in one row."""

    own: Pass
    parents: Pass | None = None
    children: Index | None = None  # the tokens whose segment has a parent
    parented: Index | None = None  # the tokens of those parents
    seen: Tensor | None = None  # [tokens, tokens], for the plain path


@dataclass(frozen=True)
class Kernels:
    """forward(q, k, v, pass) -> out, normaliser [heads, tokens], rest; backward(..., out, normaliser, rest)."""

    forward: Callable[[Tensor, Tensor, Tensor, Pass], tuple[Tensor, Tensor, Any]]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Pass, Any], tuple[Tensor, Tensor, Tensor]]
    join: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _flash_forward(q: Tensor, k: Tensor, v: Tensor, p: Pass) -> tuple[Tensor, Tensor, Any]:
    out, norm, state, unused, _ = aten._flash_attention_forward(
        q, k, v, p.queries, p.keys, p.longest_query, p.longest_key, 0.0, p.causal, False
    )
    return out, norm, (state, unused)


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, p: Pass, rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return aten._flash_attention_backward(
        grad, q, k, v, out, norm, p.queries, p.keys, p.longest_query, p.longest_key, 0.0, p.causal, *rest
    )


def join(out: Tensor, other: Tensor, own_norm: Tensor, other_norm: Tensor) -> Tensor:
    """Of the two passes over the same tokens, in the place of the first; their normalisers are [tokens, heads]."""
    whole = torch.logaddexp(own_norm, other_norm)
    share = torch.exp(own_norm - whole).unsqueeze(-1)
    out.copy_(torch.lerp(other.to(whole.dtype), out.to(whole.dtype), share))
    return whole


def _join_at_once(*inputs: Tensor) -> Tensor:
    return compiled(join, LEAN)(*inputs)


FLASH = Kernels(_flash_forward, _flash_backward, _join_at_once)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, kernels: Kernels) -> Tensor:
        out, norm, rest = kernels.forward(q, k, v, pattern.own)
        more: Any = None
        if pattern.parents is not None:
            c, p = pattern.children, pattern.parented
            other, other_norm, more = kernels.forward(q[c], k[p], v[p], pattern.parents)
            joined = out[c]
            norm[:, c] = kernels.join(joined, other, norm[:, c].T.contiguous(), other_norm.T.contiguous()).T
            if not isinstance(c, slice):  # a copy
                out[c] = joined
        ctx.save_for_backward(q, k, v, out, norm)
        ctx.pattern, ctx.kernels, ctx.rest, ctx.more = pattern, kernels, rest, more
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, norm = ctx.saved_tensors
        pattern, kernels, grad = ctx.pattern, ctx.kernels, grads[0].contiguous()
        dq, dk, dv = kernels.backward(grad, q, k, v, out, norm, pattern.own, ctx.rest)
        if pattern.parents is not None:
            c, p = pattern.children, pattern.parented
            shares = kernels.backward(
                grad[c], q[c], k[p], v[p], out[c], norm[:, c].contiguous(), pattern.parents, ctx.more
            )
            dq[c] += shares[0]
            dk[p] += shares[1]
            dv[p] += shares[2]
        return dq, dk, dv, None, None


def attention(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, kernels: Kernels | None = None) -> Tensor:
    """q [tokens, heads, size] over k, v [tokens, kv heads, size]. Without kernels: dense, under a mask."""
    if kernels is not None:
        return cast("Tensor", _Attention.apply(q, k, v, pattern, kernels))
    assert pattern.seen is not None
    share = q.shape[1] // k.shape[1]
    heads = (q.transpose(0, 1), *(x.transpose(0, 1).repeat_interleave(share, 0) for x in (k, v)))
    return F.scaled_dot_product_attention(*heads, attn_mask=pattern.seen).transpose(0, 1)


def flash_runs(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether torch's variable-length kernels take these heads."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16) or torch.version.cuda is None:
        return False
    return head_size % 8 == 0 and head_size <= 256 and torch.cuda.get_device_capability(device)[0] >= 8


def make_pattern(spans: Spans, device: torch.device, dense: bool = False) -> Pattern:
    """`dense` gives the mask that attention without kernels needs."""
    own, longest = _cut(spans.length, device), int(spans.length.max())
    seen = torch.from_numpy(spans.seen()).to(device) if dense else None
    pattern = Pattern(Pass(own, own, longest, longest, causal=True), seen=seen)
    parents = np.unique(spans.parent[spans.parent >= 0])
    if not len(parents):
        return pattern
    families = [np.flatnonzero(spans.parent == parent) for parent in parents]
    queries = [np.concatenate([spans.columns(int(child)) for child in family]) for family in families]
    keys = [spans.columns(int(parent)) for parent in parents]
    lengths = [np.array([len(run) for run in runs]) for runs in (queries, keys)]
    cuts = [_cut(length, device) for length in lengths]
    joined = Pass(cuts[0], cuts[1], int(lengths[0].max()), int(lengths[1].max()), causal=False)
    children, parented = (_index(np.concatenate(runs), device) for runs in (queries, keys))
    return Pattern(pattern.own, joined, children, parented, seen)


def _cut(lengths: NDArray[np.int64], device: torch.device) -> Tensor:
    return on_device(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), device)


def _index(columns: NDArray[np.int64], device: torch.device) -> Index:
    """A slice where the columns stand side by side: then nothing needs to be copied."""
    if (np.diff(columns) == 1).all():
        return slice(int(columns[0]), int(columns[-1]) + 1)
    return on_device(columns, device)


def on_device(values: NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """On the device, without waiting for what it is doing."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
