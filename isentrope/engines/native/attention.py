"""Attention over pages of keys and values: one new token for each of many conversations, or packed runs of new tokens.

Keys and values of a token are written once and read once for each step, by all query heads that share them. A long
conversation is read by several programs at once; the last to finish joins their parts.
"""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
import triton.language as tl
from torch import Tensor

from isentrope.engines.native.small_kernels import EXACT, IN_PARTS, Angles, jit


@jit
def _mix(
    q, keys, values, offset, live, seen, scale, best, total, mixed, d,
    MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Go on with a softmax over one more block of keys: its maximum, its sum and the mixture of values so far.

    MASKED: `live` says which of the block's tokens exist, `seen` which of them each query sees."""
    at_key, at_value = keys + offset[None, :] + d[:, None], values + offset[:, None] + d[None, :]
    if MASKED:
        k = tl.load(at_key, mask=live[None, :], other=0.0)
        v = tl.load(at_value, mask=live[:, None], other=0.0)
        score = tl.where(seen, tl.dot(q, k, input_precision=PRECISION) * scale, -float("inf"))
    else:
        k, v = tl.load(at_key), tl.load(at_value)
        score = tl.dot(q, k, input_precision=PRECISION) * scale
    higher = tl.maximum(best, tl.max(score, 1))
    least = tl.where(higher == -float("inf"), 0.0, higher) if MASKED else higher  # a query that has seen nothing yet
    p = tl.exp2(score - least[:, None])
    fade = tl.exp2(best - least)
    total = total * fade + tl.sum(p, 1)
    mixed = tl.dot(p.to(v.dtype), v, mixed * fade[:, None], input_precision=PRECISION)
    return higher, total, mixed


@jit
def _turned(place, mask, c, s, across, d, MASKED: tl.constexpr):
    """What stands at a place, rotated by its position's angles."""
    if MASKED:
        here = tl.load(place + d[None, :], mask=mask, other=0.0).to(tl.float32)
        there = tl.load(place + across[None, :], mask=mask, other=0.0).to(tl.float32)
        return here * c[None, :] + there * s[None, :]
    return tl.load(place + d).to(tl.float32) * c + tl.load(place + across).to(tl.float32) * s


@jit
def _add_new(
    q, key, keys, values, pages, length, kv, c, s, across, d, scale, best, total, mixed,
    KV: tl.constexpr, SIZE: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """The new token itself: written to its page for later steps, and counted."""
    k_new = _turned(key, d, c, s, across, d, False).to(keys.dtype.element_ty)
    v_new = tl.load(key + KV * SIZE + d)
    page = tl.load(pages + length // PAGE).to(tl.int64)
    offset = (page * KV + kv) * PAGE * SIZE + (length % PAGE) * SIZE
    tl.store(keys + offset + d, k_new)
    tl.store(values + offset + d, v_new.to(values.dtype.element_ty))
    score = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1) * scale
    higher = tl.maximum(best, score)
    p, fade = tl.exp2(score - higher), tl.exp2(best - higher)
    return higher, total * fade + p, mixed * fade[:, None] + p[:, None] * v_new.to(tl.float32)[None, :]


@jit
def _join(parts, sums, first, last, member, d, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """The mixture over all parts of a conversation."""
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, SIZE], tl.float32)
    for i in range(0, last + 1):
        part = (first + i) * ROWS + member
        other = tl.load(sums + part * 2, cache_modifier=".cg")  # not from this core's own cache: others wrote it
        higher = tl.maximum(best, other)
        fade, share = tl.exp2(best - higher), tl.exp2(other - higher)
        total = total * fade + tl.load(sums + part * 2 + 1, cache_modifier=".cg") * share
        piece = tl.load(parts + part[:, None] * SIZE + d[None, :], cache_modifier=".cg")
        mixed = mixed * fade[:, None] + piece * share[:, None]
        best = higher
    return mixed / total[:, None]


@partial(jit, do_not_specialize=["split_length", "splits"])  # one kernel for all lengths of conversations
def _decode(
    qkv, out, keys, values, table, positions, cos, sin, parts, sums, arrived, scale, table_width, qkv_width,
    split_length, splits,
    KV: tl.constexpr, SHARE: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, kv, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(positions + row)  # tokens before the new one; below 0: nobody is here
    last = length // split_length
    if (length < 0) | (split > last):
        return
    member, d, n = tl.arange(0, ROWS), tl.arange(0, SIZE), tl.arange(0, BLOCK)
    half: tl.constexpr = SIZE // 2
    base, pages = qkv + row * qkv_width, table + row * table_width
    c, s = tl.load(cos + length * half + d % half), tl.load(sin + length * half + d % half)
    s, across = tl.where(d < half, -s, s), (d + half) % SIZE
    ours = (member < SHARE)[:, None]
    q = _turned(base + (kv * SHARE + member)[:, None] * SIZE, ours, c, s, across, d, True).to(keys.dtype.element_ty)
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, SIZE], tl.float32)
    if WHOLE:
        begin, end = 0, length
    else:
        begin = split * split_length
        end = tl.minimum(begin + split_length, length)
    whole = begin + (end - begin) // BLOCK * BLOCK
    for at in range(begin, whole, BLOCK):
        page = tl.load(pages + at // PAGE).to(tl.int64)
        offset = (page * KV + kv) * PAGE * SIZE + (at % PAGE + n) * SIZE
        best, total, mixed = _mix(q, keys, values, offset, n, n, scale, best, total, mixed, d, False, PRECISION)
    if whole < end:
        page = tl.load(pages + whole // PAGE).to(tl.int64)
        offset = (page * KV + kv) * PAGE * SIZE + (whole % PAGE + n) * SIZE
        live = whole + n < end
        best, total, mixed = _mix(
            q, keys, values, offset, live, live[None, :], scale, best, total, mixed, d, True, PRECISION
        )

    if WHOLE or split == last:  # one part is always the last
        best, total, mixed = _add_new(
            q, base + (KV * SHARE + kv) * SIZE, keys, values, pages, length, kv, c, s, across, d, scale, best, total,
            mixed, KV, SIZE, PAGE,
        )  # fmt: skip

    target = out + (row * KV * SHARE + kv * SHARE + member)[:, None] * SIZE + d[None, :]
    if WHOLE:  # noqa: SIM114
        tl.store(target, (mixed / total[:, None]).to(out.dtype.element_ty), mask=ours)
    elif last == 0:
        tl.store(target, (mixed / total[:, None]).to(out.dtype.element_ty), mask=ours)
    else:
        first = (row * KV + kv) * splits
        part = (first + split) * ROWS + member
        tl.store(parts + part[:, None] * SIZE + d[None, :], mixed)
        tl.store(sums + part * 2, best)
        tl.store(sums + part * 2 + 1, total)
        tl.debug_barrier()  # all of this program's part is written before it is counted
        if tl.atomic_add(arrived + row * KV + kv, 1) == last:
            joined = _join(parts, sums, first, last, member, d, SIZE, ROWS)
            tl.store(target, joined.to(out.dtype.element_ty), mask=ours)
            tl.store(arrived + row * KV + kv, 0)


@dataclass(frozen=True)
class Splits:
    """Into how many parts a conversation may be read, and the memory for the parts."""

    length: int  # tokens of a part
    most: int
    parts: Tensor
    sums: Tensor
    arrived: Tensor


CROWDED = 1536  # programs from which on smaller blocks, more of them asked for ahead, are faster
HALVED = 128  # size of float32 heads from which a whole block of keys, and the next one, is more than a core may hold
ROWS = 16  # query heads that one program works on: those that share keys, up to what a matrix product needs


def precision(size: int) -> str:
    """How float32 is multiplied: larger heads, cut into parts, would not fit into a core's memory."""
    return IN_PARTS if size <= HALVED else EXACT


def make_splits(
    rows: int, kv_heads: int, size: int, length: int, most: int, device: torch.device, queries: int = ROWS
) -> Splits:
    count = rows * kv_heads
    parts = torch.empty(count * most * queries * size if most > 1 else 1, dtype=torch.float32, device=device)
    sums = torch.empty(count * most * queries * 2 if most > 1 else 1, dtype=torch.float32, device=device)
    return Splits(length, most, parts, sums, arrived=torch.zeros(count, dtype=torch.int32, device=device))


def decode_attention(
    qkv: Tensor, cache: Tensor, table: Tensor, positions: Tensor, angles: Angles, heads: int, splits: Splits
) -> Tensor:
    """Rotate, write to the cache and attend, for one new token of each row at its position.

    `cache` is one layer's [2, pages, kv heads, page, size]; `angles` are cosine and sine by position.
    """
    kv, page, size = cache.shape[2:]
    rows = qkv.shape[0]
    crowded = rows * kv >= CROWDED
    out = torch.empty(rows, heads * size, dtype=qkv.dtype, device=qkv.device)
    _decode[(rows, kv, splits.most)](
        qkv, out, cache[0], cache[1], table, positions, *angles, splits.parts, splits.sums, splits.arrived,
        math.log2(math.e) / math.sqrt(size), table.shape[1], qkv.stride(0), splits.length, splits.most,
        KV=kv, SHARE=heads // kv, ROWS=ROWS, SIZE=size, PAGE=page, BLOCK=min(32 if crowded else 64, page),
        WHOLE=splits.most == 1, PRECISION=precision(size), num_warps=max(1, size // 64), num_stages=3 if crowded else 2,
    )  # fmt: skip
    return out


@partial(jit, do_not_specialize=["split_length", "splits"])
def _verify(
    q, out, keys, values, table, positions, first, count, parts, sums, arrived, scale, table_width,
    split_length, splits,
    KV: tl.constexpr, SHARE: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, kv, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    new = tl.load(count + row)  # tokens of this row's run, whose keys and values are written already; 0: none
    start = tl.load(positions + row)
    length = start + new
    last = (length - 1) // split_length
    if (new <= 0) | (split > last):
        return
    member, d, n = tl.arange(0, ROWS), tl.arange(0, SIZE), tl.arange(0, BLOCK)
    ours = (member < new * SHARE)[:, None]
    token = tl.minimum(member // SHARE, new - 1)  # so that none of the tile sees nothing
    place = tl.load(first + row).to(tl.int64) + token
    place = ((place * KV + kv) * SHARE + member % SHARE)[:, None] * SIZE + d[None, :]
    mine, pages = tl.load(q + place), table + row * table_width
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, SIZE], tl.float32)
    if WHOLE:
        begin, end = 0, length
    else:
        begin = split * split_length
        end = tl.minimum(begin + split_length, length)
    whole = begin + tl.maximum(tl.minimum(start, end) - begin, 0) // BLOCK * BLOCK  # blocks up to here are seen by all
    for at in range(begin, whole, BLOCK):
        page = tl.load(pages + at // PAGE).to(tl.int64)
        offset = (page * KV + kv) * PAGE * SIZE + (at % PAGE + n) * SIZE
        best, total, mixed = _mix(mine, keys, values, offset, n, n, scale, best, total, mixed, d, False, PRECISION)
    for at in range(whole, end, BLOCK):
        page = tl.load(pages + at // PAGE).to(tl.int64)
        offset = (page * KV + kv) * PAGE * SIZE + (at % PAGE + n) * SIZE
        seen = (at + n)[None, :] <= (start + token)[:, None]
        best, total, mixed = _mix(
            mine, keys, values, offset, at + n < end, seen, scale, best, total, mixed, d, True, PRECISION
        )
    if WHOLE:  # noqa: SIM114
        tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=ours)
    elif last == 0:
        tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=ours)
    else:
        begins = (row * KV + kv) * splits
        part = (begins + split) * ROWS + member
        tl.store(parts + part[:, None] * SIZE + d[None, :], mixed)
        tl.store(sums + part * 2, best)
        tl.store(sums + part * 2 + 1, total)
        tl.debug_barrier()  # as in _decode
        if tl.atomic_add(arrived + row * KV + kv, 1) == last:
            joined = _join(parts, sums, begins, last, member, d, SIZE, ROWS)
            tl.store(out + place, joined.to(out.dtype.element_ty), mask=ours)
            tl.store(arrived + row * KV + kv, 0)


MOST_QUERIES = 64  # rows of the tile in which the query heads that share keys stand, for all tokens of a run


def run_queries(sharing: int, longest: int) -> int:
    """Rows of a tile for runs of up to so many tokens."""
    return max(ROWS, 1 << (sharing * longest - 1).bit_length())


def verify_attention(
    q: Tensor, cache: Tensor, table: Tensor, positions: Tensor, first: Tensor, count: Tensor, heads: int,
    splits: Splits, queries: int,
) -> Tensor:  # fmt: skip
    """Attend from runs of a few new tokens, whose keys and values are already written, to all before them.

    Row r has count[r] of them, from place first[r] of the packed ones and from its position on. Keys and values are
    read once for all of a run's tokens and heads, of which there are up to `queries` together.
    """
    kv, page, size = cache.shape[2:]
    out = torch.empty_like(q)
    block, stages = prefill_tiles(size, q.dtype)
    _verify[(len(count), kv, splits.most)](
        q, out, cache[0], cache[1], table, positions, first, count, splits.parts, splits.sums, splits.arrived,
        math.log2(math.e) / math.sqrt(size), table.shape[1], splits.length, splits.most,
        KV=kv, SHARE=heads // kv, ROWS=queries, SIZE=size, PAGE=page, BLOCK=min(block, page), WHOLE=splits.most == 1,
        PRECISION=precision(size), num_warps=2 if queries <= 32 and size <= 64 else 4, num_stages=stages,
    )  # fmt: skip
    return out


@jit
def _prefill(
    q, out, keys, values, table, block_row, block_first, block_count, positions, scale, table_width,
    HEADS: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, NEW: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(block_row + block).to(tl.int64)
    if row < 0:
        return
    first, count = tl.load(block_first + block).to(tl.int64), tl.load(block_count + block)
    start = tl.load(positions + first)
    kv = head // (HEADS // KV)
    m, d = tl.arange(0, NEW), tl.arange(0, SIZE)
    there = (m < count)[:, None]
    place = ((first + m) * HEADS + head)[:, None] * SIZE + d[None, :]
    mine = tl.load(q + place, mask=there, other=0.0)
    best = tl.full([NEW], -float("inf"), tl.float32)
    total = tl.zeros([NEW], tl.float32)
    mixed = tl.zeros([NEW, SIZE], tl.float32)
    end, pages, n = start + count, table + row * table_width, tl.arange(0, BLOCK)
    whole = start // BLOCK * BLOCK  # blocks up to here are seen by all
    for at in range(0, whole, BLOCK):
        page = tl.load(pages + at // PAGE).to(tl.int64)
        offset = (page * KV + kv) * PAGE * SIZE + (at % PAGE + n) * SIZE
        best, total, mixed = _mix(mine, keys, values, offset, n, n, scale, best, total, mixed, d, False, PRECISION)
    for at in range(whole, end, BLOCK):
        page = tl.load(pages + at // PAGE).to(tl.int64)
        offset = (page * KV + kv) * PAGE * SIZE + (at % PAGE + n) * SIZE
        seen = (at + n)[None, :] <= (start + m)[:, None]
        best, total, mixed = _mix(
            mine, keys, values, offset, at + n < end, seen, scale, best, total, mixed, d, True, PRECISION
        )
    tl.store(out + place, (mixed / total[:, None]).to(out.dtype.element_ty), mask=there)


NEW_TOKENS = 64  # of one conversation, that one program works on


def prefill_tiles(size: int, dtype: torch.dtype) -> tuple[int, int]:
    """Keys that are read at once, and blocks of them under way at a time."""
    return (32, 1) if dtype == torch.float32 and size >= HALVED else (64, 2)


def prefill_attention(
    q: Tensor, cache: Tensor, table: Tensor, blocks: tuple[Tensor, Tensor, Tensor], positions: Tensor, heads: int
) -> Tensor:
    """Attend from packed new tokens, whose keys and values are already written, to all before them.

    `blocks` are runs of up to NEW_TOKENS new tokens of one row each: its row (-1: none), the first one's place among
    the packed tokens, and how many.
    """
    kv, page, size = cache.shape[2:]
    out = torch.empty_like(q)
    block, stages = prefill_tiles(size, q.dtype)
    _prefill[(blocks[0].shape[0], heads)](
        q, out, cache[0], cache[1], table, *blocks, positions, math.log2(math.e) / math.sqrt(size), table.shape[1],
        HEADS=heads, KV=kv, SIZE=size, PAGE=page, BLOCK=min(block, page), NEW=NEW_TOKENS,
        PRECISION=precision(size), num_warps=4, num_stages=stages,
    )  # fmt: skip
    return out
