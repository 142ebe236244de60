"""The forward pass of a small model: one kernel for everything between two attentions.

With a width of 128 a matrix product takes less time than starting the kernel that computes it. Here a program carries a
few tokens from one attention to the next: output projection, norm, SwiGLU, norm and the next layer's queries, keys and
values, or at the end the words' logits. Every program reads all of a layer's weights, so this pays for small ones only.
"""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from isentrope.engines.native.available import ROOMY, fast_memory
from isentrope.engines.native.small_kernels import IN_PARTS, jit
from isentrope.engines.native.weights import Joined, Weights

TOKENS = 16  # that one program carries: as few as a matrix product takes
TILE = 4096  # numbers of a weight that are read at once: more would not fit next to those asked for ahead
LARGEST_WIDTH, LARGEST_INNER, MOST_WORDS = 256, 1024, 4096
WARPS = 4
PRECISION = tl.constexpr(IN_PARTS)

Product = tuple[Tensor, Tensor, Tensor | None]  # a norm, and the weight and bias behind it

sized = partial(jit, do_not_specialize=["count"])  # one kernel for all numbers of tokens


def is_small(weights: Weights) -> bool:
    a = weights.model
    words, width = a.head.shape
    attended, inner = weights.layers[0].o.weight.shape[1], weights.layers[0].down.weight.shape[1]
    if weights.adapted:
        return False
    return max(width, attended) <= LARGEST_WIDTH and inner <= LARGEST_INNER and words <= MOST_WORDS


@jit
def _normed(h, weight, w, eps, WIDTH: tl.constexpr):
    scale = tl.rsqrt(tl.sum(h * h, 1) / WIDTH + eps)
    return h * scale[:, None] * tl.load(weight + w, mask=w < WIDTH, other=0.0).to(tl.float32)[None, :]


@jit
def _product(n, weight, bias, out, row, there, w, columns,
             WIDTH: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr, BIASED: tl.constexpr):  # fmt: skip
    """out = n · weightᵀ (+ bias), a few columns at a time."""
    for first in tl.range(0, columns, TILE, num_stages=STAGES):
        c = first + tl.arange(0, TILE)
        inside = c < columns
        part = tl.load(weight + c[None, :] * WIDTH + w[:, None], mask=inside[None, :] & (w < WIDTH)[:, None], other=0.0)
        result = tl.dot(n.to(part.dtype), part, input_precision=PRECISION)
        if BIASED:
            result += tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)[None, :]
        place = out + row[:, None] * columns + c[None, :]
        tl.store(place, result.to(out.dtype.element_ty), mask=there[:, None] & inside[None, :])


@sized
def _begin(
    ids, table, weight_norm, weight, bias, x, out, count, eps, columns,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, TOKENS: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
    BIASED: tl.constexpr, KEEPS: tl.constexpr,
):  # fmt: skip
    row, w = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS), tl.arange(0, PADDED)
    there = row < count
    mask = there[:, None] & (w < WIDTH)[None, :]
    source = tl.load(ids + row, mask=there, other=0).to(tl.int64)
    h = tl.load(table + source[:, None] * WIDTH + w[None, :], mask=mask, other=0.0)
    if KEEPS:
        tl.store(x + row[:, None] * WIDTH + w[None, :], h.to(x.dtype.element_ty), mask=mask)
    n = _normed(h.to(tl.float32), weight_norm, w, eps, WIDTH)
    _product(n, weight, bias, out, row, there, w, columns, WIDTH, TILE, STAGES, BIASED)


@sized
def _between(
    x, attended, o, norm_out, gate_up, down, norm_next, weight, bias, out, count, eps, columns,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ATTENDED: tl.constexpr, INNER: tl.constexpr, TOKENS: tl.constexpr,
    TILE: tl.constexpr, STAGES: tl.constexpr, BIASED: tl.constexpr, GOES_ON: tl.constexpr,
):  # fmt: skip
    row, w, t = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS), tl.arange(0, PADDED), tl.arange(0, TILE)
    there, wide = row < count, w < WIDTH
    mask = there[:, None] & wide[None, :]
    h = tl.load(x + row[:, None] * WIDTH + w[None, :], mask=mask, other=0.0).to(tl.float32)
    for first in tl.range(0, ATTENDED, TILE, num_stages=STAGES):
        k = first + t
        part = tl.load(o + w[None, :] * ATTENDED + k[:, None], mask=(k < ATTENDED)[:, None] & wide[None, :], other=0.0)
        seen = there[:, None] & (k < ATTENDED)[None, :]
        a = tl.load(attended + row[:, None] * ATTENDED + k[None, :], mask=seen, other=0.0)
        h = tl.dot(a.to(part.dtype), part, h, input_precision=PRECISION)
    n = _normed(h, norm_out, w, eps, WIDTH)
    for first in tl.range(0, INNER, TILE, num_stages=STAGES):
        k = first + t
        at, inside = k[None, :] * WIDTH + w[:, None], (k < INNER)[None, :] & wide[:, None]
        gate = tl.load(gate_up + at, mask=inside, other=0.0)
        up = tl.load(gate_up + INNER * WIDTH + at, mask=inside, other=0.0)
        part = tl.load(down + w[None, :] * INNER + k[:, None], mask=(k < INNER)[:, None] & wide[None, :], other=0.0)
        g = tl.dot(n.to(gate.dtype), gate, input_precision=PRECISION)
        u = tl.dot(n.to(up.dtype), up, input_precision=PRECISION)
        h = tl.dot((g * tl.sigmoid(g) * u).to(part.dtype), part, h, input_precision=PRECISION)
    tl.store(x + row[:, None] * WIDTH + w[None, :], h.to(x.dtype.element_ty), mask=mask)
    if GOES_ON:
        n = _normed(h, norm_next, w, eps, WIDTH)
        _product(n, weight, bias, out, row, there, w, columns, WIDTH, TILE, STAGES, BIASED)


def small_pass(
    weights: Weights, ids: Tensor, attend: Callable[[int, Tensor], Tensor], last: Tensor | None = None
) -> Tensor:
    """Logits after every token, or after those at `last`."""
    a, dtype, count = weights.model, weights.dtype, len(ids)
    x = torch.empty(count, a.embed.shape[1], dtype=a.embed.dtype, device=ids.device)
    qkv = _start(weights, ids, a.embed.detach(), weights.layers[0], x)
    for i, layer in enumerate(weights.layers):
        attended = attend(i, qkv)
        following = weights.layers[i + 1] if i + 1 < len(weights.layers) else None
        if following is not None:
            qkv = torch.empty(count, len(following.qkv.weight), dtype=dtype, device=ids.device)
            _continue(weights, x, attended, layer, _queries(following), qkv)
        elif last is None:
            logits = torch.empty(count, len(a.head), dtype=torch.float32, device=ids.device)
            _continue(weights, x, attended, layer, (a.norm, a.head.detach(), None), logits)
            return logits
        else:
            _continue(weights, x, attended, layer, None, x)
    assert last is not None
    return _start(weights, last, x, None, None)


def _queries(layer: Joined) -> Product:
    return layer.own.norm_in, layer.qkv.weight, layer.qkv.bias


def _start(weights: Weights, ids: Tensor, table: Tensor, layer: Joined | None, x: Tensor | None) -> Tensor:
    """Norm and product of the table's rows: a layer's queries, keys and values, or without a layer the logits."""
    a, width = weights.model, table.shape[1]
    following = (a.norm, a.head.detach(), None) if layer is None else _queries(layer)
    norm, weight, bias = following
    dtype = torch.float32 if layer is None else weights.dtype
    out = torch.empty(len(ids), len(weight), dtype=dtype, device=ids.device)
    padded = triton.next_power_of_2(width)
    _begin[(triton.cdiv(len(ids), TOKENS),)](
        ids, table, norm, weight, weight if bias is None else bias, table if x is None else x, out, len(ids), a.eps,
        len(weight), WIDTH=width, PADDED=padded, TOKENS=TOKENS, TILE=_tile(padded), STAGES=stages(table.device),
        BIASED=bias is not None, KEEPS=x is not None, num_warps=WARPS,
    )  # fmt: skip
    return out


def _continue(
    weights: Weights, x: Tensor, attended: Tensor, layer: Joined, following: Product | None, out: Tensor
) -> None:
    """From an attention to what follows: x moves on, and `out` is the next norm's product."""
    width = x.shape[1]
    padded = triton.next_power_of_2(width)
    norm, weight, bias = following if following is not None else (layer.own.norm_out, layer.o.weight, None)
    _between[(triton.cdiv(len(x), TOKENS),)](
        x, attended, layer.o.weight, layer.own.norm_out, layer.gate_up.weight, layer.down.weight, norm, weight,
        weight if bias is None else bias, out, len(x), weights.model.eps, len(weight),
        WIDTH=width, PADDED=padded, ATTENDED=layer.o.weight.shape[1], INNER=layer.down.weight.shape[1], TOKENS=TOKENS,
        TILE=_tile(padded), STAGES=stages(x.device), BIASED=bias is not None, GOES_ON=following is not None,
        num_warps=WARPS,
    )  # fmt: skip


def _tile(padded: int) -> int:
    return max(16, TILE // padded)


@cache
def stages(device: torch.device) -> int:
    """Tiles of each weight that are under way at once: those asked for ahead are held in fast memory."""
    return 3 if fast_memory(device) >= ROOMY else 2
