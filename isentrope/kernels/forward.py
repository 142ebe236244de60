"""The training forward pass of a Llama-shaped model: final hidden states of packed rows.

A layer is two pure functions of its weights, with attention between them. torch.compile turns each into a few kernels:
norms, rotation, biases, SwiGLU and residuals are joined with each other, and projections that read the same input are
one matrix product. All layers share the two compiled pieces. Weights are cast to the precision of the computation; the
stream between layers keeps that of the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from isentrope.core.types import Spans
from isentrope.kernels.attention import FLASH, Kernels, Pass, attention, flash_runs, join, make_pattern
from isentrope.kernels.compiled import LEAN, ROOMY, compiled
from isentrope.models.llama import rotate
from isentrope.models.memory import keeps_products, memory_of
from isentrope.models.model_adapter import Layer, LowRank, ModelAdapter, adapt_model

Weights = tuple[Tensor | None, ...]
Low = tuple[tuple[Tensor, Tensor, float] | None, ...]
"""What adapters add to weights: down, up and scale of each, in the weights' order; None: nothing."""
Sizes = tuple[int, int, int, float]
"""Heads, heads of keys, size of a head, and the norm's ε."""


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm, inside in float32 at least."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * weight).to(x.dtype)


def product(x: Tensor, parts: Sequence[Tensor], bias: Tensor | None, low: Low, dtype: torch.dtype) -> Tensor:
    """x times weights that read the same input, side by side, with what adapters add."""
    made = F.linear(x, torch.cat(tuple(parts)).to(dtype) if len(parts) > 1 else parts[0].to(dtype), bias)
    there = [one for one in low if one is not None]
    if not there:
        return made
    narrow = F.linear(x, torch.cat([down for down, _, _ in there]).to(dtype))
    added, at = list[Tensor](), 0
    for part, one in zip(parts, low, strict=True):
        if one is None:
            added.append(made.new_zeros(len(x), len(part)))
        else:
            down, up, scale = one
            added.append(F.linear(narrow[:, at : at + len(down)], (up * scale).to(dtype)))
            at += len(down)
    return made + (torch.cat(added, -1) if len(added) > 1 else added[0])


def look(
    x: Tensor, cos: Tensor, sin: Tensor, weights: Weights, low: Low, sizes: Sizes, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """The first piece: queries, keys and values of x [tokens, width]."""
    norm, wq, wk, wv, bq, bk, bv, q_norm, k_norm = weights
    assert norm is not None and wq is not None and wk is not None and wv is not None  # noqa: PT018
    heads, kv_heads, size, eps = sizes
    bias = torch.cat((bq, bk, bv)).to(dtype) if bq is not None and bk is not None and bv is not None else None
    made = product(normed(x, norm, eps).to(dtype), (wq, wk, wv), bias, low, dtype)
    q, k, v = torch.split(made.view(-1, heads + 2 * kv_heads, size), [heads, kv_heads, kv_heads], dim=1)
    if q_norm is not None and k_norm is not None:
        q, k = normed(q, q_norm, eps), normed(k, k_norm, eps)
    return rotate(q, cos, sin), rotate(k, cos, sin), v.contiguous()


def answer(x: Tensor, seen: Tensor, weights: Weights, low: Low, sizes: Sizes, dtype: torch.dtype) -> Tensor:
    """The second piece: what attention saw joins the stream, then the feed-forward part."""
    wo, norm, gate, up, down = weights
    assert wo is not None and norm is not None and gate is not None  # noqa: PT018
    assert up is not None and down is not None  # noqa: PT018
    x = x + product(seen.flatten(1), (wo,), None, low[:1], dtype)
    h = normed(x, norm, sizes[3]).to(dtype)
    a, b = product(h, (gate, up), None, low[1:3], dtype).chunk(2, dim=-1)
    return x + product(F.silu(a) * b, (down,), None, low[3:], dtype)


def has_room(parts: ModelAdapter, tokens: int, dtype: torch.dtype, memory: int) -> bool:
    """Whether all products of this many tokens are kept: per layer about six numbers for each unit of width, two for
    each of the feed-forward part, and the joined weights."""
    numbers, weights = 0, parts.embed.numel()
    for own in parts.layers:
        (inner, width), joined = own.gate.shape, (own.q, own.k, own.v, own.gate, own.up)
        joint = sum(weight.numel() for weight in joined)
        numbers += tokens * (6 * width + 2 * inner) + joint
        weights += joint + own.o.numel() + own.down.numel()
    return keeps_products(numbers * dtype.itemsize, weights, memory)


def at_rest(layer: Layer) -> Layer:
    """The layer without gradients. What is compiled for weights at rest then does for those that learn as well, where
    nobody asks for gradients: a policy is scored by the same pieces as its reference."""

    def still(value: Any) -> Any:
        if isinstance(value, Tensor):
            return Parameter(value.detach(), requires_grad=False) if value.requires_grad else value
        return replace(value, down=still(value.down), up=still(value.up)) if isinstance(value, LowRank) else value

    low = {name: still(added) for name, added in layer.low.items()}
    return replace(layer, **{f.name: still(getattr(layer, f.name)) for f in fields(layer) if f.name != "low"}, low=low)


# Attention on a CPU: torch's flash kernels, run by run, nothing padded or masked. Heads that share keys read the same
# memory: keys and values are never copied for them.
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
            _queries(grad[at], kv_heads), _queries(q[at], kv_heads), _keys(k[seen], share), _keys(v[seen], share),
            _queries(out[at], kv_heads), normaliser, 0.0, p.causal,
        )  # fmt: skip
        _queries(dq[at], kv_heads).copy_(parts[0])
        dk[seen] = parts[1].sum(1).transpose(0, 1)
        dv[seen] = parts[2].sum(1).transpose(0, 1)
    return dq, dk, dv


CPU = Kernels(_forward, _backward, join)


def _low(layer: Layer, *names: str) -> Low:
    return tuple((one.down, one.up, one.scale) if (one := layer.low.get(name)) else None for name in names)


def trains_fast(model: object, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `fast_states` takes this model there."""
    places = (("cuda", torch.bfloat16), ("cpu", torch.float32))
    parts = adapt_model(model) if (device.type, dtype) in places else None
    return parts is not None and (device.type == "cpu" or flash_runs(device, dtype, parts.head_size))


def fast_states(model: Any, ids_BT: Tensor, positions_BT: Tensor, spans: Spans, dtype: torch.dtype) -> Tensor:
    """As the model's own `hidden`, computed in `dtype`; the rows are laid end to end."""
    parts = adapt_model(model)
    assert parts is not None
    with torch.autocast(ids_BT.device.type, enabled=False):
        kernels, compile_pieces = (FLASH, True) if ids_BT.is_cuda else (CPU, False)
        x = states_of(
            parts, ids_BT.flatten(), positions_BT.flatten(), spans, dtype, kernels, compile_pieces, model.computes_twice
        )
    return x.view(*ids_BT.shape, -1)


def states_of(
    parts: ModelAdapter,
    ids: Tensor,
    positions: Tensor,
    spans: Spans,
    dtype: torch.dtype,
    kernels: Kernels | None = None,
    compile_pieces: bool = False,
    twice: bool = False,
) -> Tensor:
    """Final hidden states of tokens in one row. Without kernels attention is dense, which suits tests alone."""
    pattern = make_pattern(spans, ids.device, dense=kernels is None)
    angles = positions[:, None, None].float() * parts.frequencies.float()
    cos, sin = angles.cos() * parts.rope_scale, angles.sin() * parts.rope_scale
    layers, pieces = parts.layers, (look, answer)
    if compile_pieces:
        kept = ROOMY if not twice and has_room(parts, len(ids), dtype, memory_of(ids.device)) else LEAN
        pieces = (compiled(look, LEAN), compiled(answer, kept if torch.is_grad_enabled() else LEAN))
        layers = layers if torch.is_grad_enabled() else tuple(map(at_rest, layers))
    sizes = (parts.heads, parts.kv_heads, parts.head_size, parts.eps)

    def run(x: Tensor, own: Layer) -> Tensor:
        before = (own.norm_in, own.q, own.k, own.v, own.q_bias, own.k_bias, own.v_bias, own.q_norm, own.k_norm)
        q, k, v = pieces[0](x, cos, sin, before, _low(own, "q", "k", "v"), sizes, dtype)
        seen = attention(q, k, v, pattern, kernels)
        after = (own.o, own.norm_out, own.gate, own.up, own.down)
        return pieces[1](x, seen, after, _low(own, "o", "gate", "up", "down"), sizes, dtype)

    x = F.embedding(ids, parts.embed, parts.padding)
    for layer in layers:
        if twice and torch.is_grad_enabled():
            x = cast("Tensor", checkpoint(run, x, layer, use_reentrant=False))
        else:
            x = run(x, layer)
    return normed(x, parts.norm, parts.eps)
