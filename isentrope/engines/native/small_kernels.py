"""The small kernels between the matrix products of a layer: norm, SwiGLU, rotation and writing to the cache."""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

jit: Any = triton.jit  # so that a type checker lets kernels be launched
# Products of float32: cut into parts for three products on tensor cores, about as exact and faster; or as they are.
IN_PARTS, EXACT = "tf32x3", "ieee"
FEW_ROWS = 512  # of a step, against the many of a prefill, whose programs work on more rows at once
Angles = tuple[Tensor, Tensor]  # cosine and sine by position


@jit
def _add_norm(x, delta, weight, out, width, delta_width, eps, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    if ADDS:
        value += tl.load(delta + row * delta_width + column, mask=inside, other=0.0).to(value.dtype)
        tl.store(x + row * width + column, value, mask=inside)
    wide = value.to(tl.float32)
    scaled = wide * tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    result = scaled * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, result.to(out.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """RMSNorm of x + delta, in `dtype`; the sum is kept in x."""
    rows, width = x.shape
    out = torch.empty(rows, width, dtype=dtype, device=x.device)
    block = triton.next_power_of_2(width)
    warps = 1 if block <= 1024 else 4 if block <= 4096 else 8
    more = x if delta is None else delta  # whose rows may stand further apart than they are wide
    _add_norm[(rows,)](
        x, more, weight, out, width, more.stride(0), eps, ADDS=delta is not None, BLOCK=block, num_warps=warps
    )
    return out


@jit
def _swiglu(both, out, inner, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    inside = column < inner
    gate = tl.load(both + row * 2 * inner + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * inner + inner + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * inner + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


@jit
def _swiglu_adapted(
    both, low_up, out, rows, inner, rank,
    RANK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column, r = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, RANK)
    there, inside, ranked = (row < rows)[:, None], (column < inner)[None, :], r < rank
    line = both + row[:, None] * (2 * inner + rank)
    low = tl.load(line + 2 * inner + r[None, :], mask=there & ranked[None, :], other=0.0)
    place, mask = low_up + column[None, :].to(tl.int64) * rank + r[:, None], inside & ranked[:, None]
    gate = tl.load(line + column[None, :], mask=there & inside, other=0.0).to(tl.float32)
    gate = tl.dot(low, tl.load(place, mask=mask, other=0.0), gate, input_precision=PRECISION)
    up = tl.load(line + inner + column[None, :], mask=there & inside, other=0.0).to(tl.float32)
    up = tl.dot(low, tl.load(place + inner * rank, mask=mask, other=0.0), up, input_precision=PRECISION)
    done = (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty)
    tl.store(out + row[:, None] * inner + column[None, :], done, mask=there & inside)


def swiglu(both: Tensor, low_up: Tensor | None = None) -> Tensor:
    """silu(gate) · up, of gate and up side by side. With adapters, [2 inner, rank]: they are added first, from the last
    `rank` columns."""
    rows, rank = both.shape[0], 0 if low_up is None else low_up.shape[1]
    inner = (both.shape[1] - rank) // 2
    out = torch.empty(rows, inner, dtype=both.dtype, device=both.device)
    if low_up is None:
        block = min(1024, triton.next_power_of_2(inner))
        _swiglu[(rows, triton.cdiv(inner, block))](both, out, inner, BLOCK=block, num_warps=4)
        return out
    tile, columns = (16, 128) if rows <= FEW_ROWS else (64, 128)
    _swiglu_adapted[(triton.cdiv(rows, tile), triton.cdiv(inner, columns))](
        both, low_up, out, rows, inner, rank, RANK=max(16, triton.next_power_of_2(rank)), ROWS=tile, COLUMNS=columns,
        PRECISION=IN_PARTS, num_warps=4,
    )  # fmt: skip
    return out


@jit
def _head_norm(qkv, q_weight, k_weight, eps, width, HEADS: tl.constexpr, SIZE: tl.constexpr):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = qkv + row * width + head * SIZE + tl.arange(0, SIZE)
    value = tl.load(place)
    wide = value.to(tl.float32)
    scaled = wide * tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps)
    which = q_weight if head < HEADS else k_weight
    tl.store(place, (scaled * tl.load(which + tl.arange(0, SIZE)).to(tl.float32)).to(value.dtype))


def head_norm(qkv: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float, heads: int, kv_heads: int) -> None:
    """RMSNorm over each head of the queries and the keys, in place."""
    size = q_weight.shape[0]
    _head_norm[(qkv.shape[0], heads + kv_heads)](
        qkv, q_weight, k_weight, eps, qkv.stride(0), HEADS=heads, SIZE=size, num_warps=1
    )


@jit
def _rotate_write(
    qkv, q, keys, values, table, row_of, positions, cos, sin, table_width, qkv_width,
    HEADS: tl.constexpr, KV: tl.constexpr, ALL: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(row_of + token)
    if row < 0:
        return
    position = tl.load(positions + token)
    head, d = tl.arange(0, ALL)[:, None], tl.arange(0, SIZE)[None, :]
    base = qkv + token * qkv_width
    there = head < HEADS + 2 * KV
    value = tl.load(base + head * SIZE + d, mask=there, other=0.0)
    other = tl.load(base + head * SIZE + (d + SIZE // 2) % SIZE, mask=there, other=0.0).to(tl.float32)
    c = tl.load(cos + position * (SIZE // 2) + d % (SIZE // 2))
    s = tl.load(sin + position * (SIZE // 2) + d % (SIZE // 2))
    turned = value.to(tl.float32) * c + other * tl.where(d < SIZE // 2, -s, s)
    tl.store(q + token * HEADS * SIZE + head * SIZE + d, turned.to(q.dtype.element_ty), mask=head < HEADS)
    page = tl.load(table + row.to(tl.int64) * table_width + position // PAGE).to(tl.int64)
    place = page * KV * PAGE * SIZE + (position % PAGE) * SIZE + d
    is_key = (head >= HEADS) & (head < HEADS + KV)
    tl.store(keys + place + (head - HEADS) * PAGE * SIZE, turned.to(keys.dtype.element_ty), mask=is_key)
    is_value = (head >= HEADS + KV) & there
    tl.store(values + place + (head - HEADS - KV) * PAGE * SIZE, value.to(values.dtype.element_ty), mask=is_value)


def rotate_write(
    qkv: Tensor, cache: Tensor, table: Tensor, row_of: Tensor, positions: Tensor, angles: Angles, heads: int
) -> Tensor:
    """Rotate queries and keys of packed tokens; keys and values go to the pages. Gives the queries.

    `cache` is one layer's [2, pages, kv heads, page, size]; `row_of` is -1 for padding.
    """
    kv, page, size = cache.shape[2:]
    q = torch.empty(qkv.shape[0], heads * size, dtype=qkv.dtype, device=qkv.device)
    _rotate_write[(qkv.shape[0],)](
        qkv, q, cache[0], cache[1], table, row_of, positions, *angles, table.shape[1], qkv.stride(0),
        HEADS=heads, KV=kv, ALL=triton.next_power_of_2(heads + 2 * kv), SIZE=size, PAGE=page, num_warps=4,
    )  # fmt: skip
    return q
