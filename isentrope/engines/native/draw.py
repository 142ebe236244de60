"""Draws a token for each row from its logits, with log-prob and entropy; reads the logits once.

First every block of words is summed up (maximum, sum, entropy's sum), then one program a row finds the block
in which the cumulative probability passes the row's uniform number, and the word within it.
"""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from isentrope.engines.native.small_kernels import jit

BLOCK = 4096


@jit
def _scan(logits, row_of, positions, temperatures, parts, words, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    place, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = tl.load(row_of + place)
    if (row < 0) | (tl.load(positions + tl.maximum(row, 0)) < 0):
        return
    t = tl.load(temperatures + row)
    word = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + place * words + word, mask=word < words, other=-float("inf")) / tl.where(t > 0, t, 1.0)
    top = tl.max(z, 0)
    p = tl.exp(z - top)
    mine = parts + (place * BLOCKS + block) * 4
    tl.store(mine, top)
    tl.store(mine + 1, tl.sum(p, 0))
    tl.store(mine + 2, tl.sum(tl.where(p > 0, p * z, 0.0), 0))


@jit
def _pick(
    logits, row_of, further, temperatures, parts, words, uniforms, width, ids, positions, counts, tail, out, rows,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, PADDED: tl.constexpr, STEP: tl.constexpr, COMMIT: tl.constexpr,
    PLACES: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(row_of + place)
    if (row < 0) | (tl.load(positions + tl.maximum(row, 0)) < 0):
        return
    t = tl.load(temperatures + row)
    warmth = tl.where(t > 0, t, 1.0)
    count = tl.load(counts + row)
    if PLACES:
        count += tl.load(further + place)
    u = tl.load(uniforms + row.to(tl.int64) * width + tl.minimum(count, width - 1))
    i = tl.arange(0, PADDED)
    mine = parts + (place * BLOCKS + i) * 4
    tops = tl.load(mine, mask=i < BLOCKS, other=-float("inf"))
    top = tl.max(tops, 0)
    scale = tl.exp(tops - top)
    sums = tl.load(mine + 1, mask=i < BLOCKS, other=0.0) * scale
    total = tl.sum(sums, 0)
    mean = tl.sum(tl.load(mine + 2, mask=i < BLOCKS, other=0.0) * scale, 0) / total
    log_total = tl.log(total) + top
    target = u * total
    upto = tl.cumsum(sums, 0)
    last = tl.max(tl.where(sums > 0, i, 0), 0)  # no uniform number falls beyond the last word
    block = tl.minimum(tl.sum((upto <= target).to(tl.int32), 0), last)
    block = tl.where(t > 0, block, tl.min(tl.where(tops == top, i, PADDED), 0))  # the likeliest word's, if it is to be
    below = tl.sum(tl.where(i < block, sums, 0.0), 0)
    k = tl.arange(0, BLOCK)
    z = (
        tl.load(logits + place * words + block * BLOCK + k, mask=block * BLOCK + k < words, other=-float("inf"))
        / warmth
    )
    p = tl.exp(z - top)
    inside = tl.minimum(tl.sum((tl.cumsum(p, 0) + below <= target).to(tl.int32), 0), tl.max(tl.where(p > 0, k, 0), 0))
    token = block * BLOCK + tl.where(t > 0, inside, tl.argmax(z, 0))
    token = tl.maximum(0, tl.minimum(token, words - 1))  # whatever the logits were
    logp = tl.load(logits + place * words + token) / warmth - log_total
    at = out + (place if PLACES else row)
    tl.store(at, token.to(tl.float32))
    tl.store(at + rows, logp)
    tl.store(at + 2 * rows, log_total - mean)
    if COMMIT:
        tl.store(ids + row, token)
        tl.store(counts + row, count + 1)
        position = tl.load(positions + row)
        if STEP:
            position += 1
            tl.store(positions + row, position)
        tl.store(tail + row.to(tl.int64) * TAIL + position % TAIL, token)


@dataclass(frozen=True)
class Rows:
    """What is known of each conversation that is being answered, on the device."""

    ids: Tensor  # the token last drawn
    positions: Tensor  # where it stands: so many are before it; -1: nobody is in this row
    counts: Tensor  # tokens drawn so far
    limits: Tensor  # most tokens that may be drawn
    temperatures: Tensor
    tail: Tensor  # the last tokens of each conversation, the one at position p in column p modulo their number
    uniforms: Tensor  # [rows, most tokens of a response]
    table: Tensor  # pages of each conversation


def draw(logits: Tensor, row_of: Tensor, rows: Rows, out: Tensor, *, step: bool, commit: bool = True) -> None:
    """Draw for the rows named (-1: none); token, log-prob and entropy go to `out` [3, rows].

    With `commit` they become the rows' newest tokens; with `step` the rows' positions move on too.
    """
    _draw(logits, row_of, row_of, rows, out, step, commit, False)


def draw_at(logits: Tensor, row_of: Tensor, further: Tensor, rows: Rows, out: Tensor) -> None:
    """Draw behind each place of a pass, whose rows (-1: none) may have several: token number counts + `further` of the
    row. Results go to `out` [3, places]; the rows stay as they are."""
    _draw(logits, row_of, further, rows, out, False, False, True)


def _draw(
    logits: Tensor, row_of: Tensor, further: Tensor, rows: Rows, out: Tensor, step: bool, commit: bool, places: bool
) -> None:
    count, words = logits.shape
    blocks = -(-words // BLOCK)
    parts = torch.empty(count, blocks, 4, dtype=torch.float32, device=logits.device)
    _scan[(count, blocks)](
        logits, row_of, rows.positions, rows.temperatures, parts, words, BLOCK=BLOCK, BLOCKS=blocks, num_warps=4
    )  # fmt: skip
    _pick[(count,)](
        logits, row_of, further, rows.temperatures, parts, words, rows.uniforms, rows.uniforms.shape[1],
        rows.ids, rows.positions, rows.counts, rows.tail, out, out.shape[1],
        BLOCK=BLOCK, BLOCKS=blocks, PADDED=triton.next_power_of_2(blocks), STEP=step, COMMIT=commit, PLACES=places,
        TAIL=rows.tail.shape[1], num_warps=8,
    )  # fmt: skip
