"""Rows are given to new conversations, and taken from those that have ended, on the device."""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

import torch
import triton.language as tl

from isentrope.policy.fast.draw import Rows
from isentrope.policy.fast.sheet import Sent
from isentrope.policy.fast.small_kernels import jit

BLOCK = 256


@jit
def _seat(
    left, last_row, last, token_positions, seats, positions, counts, temperatures, table, uniforms, pages, answer,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    gone = tl.load(left + i)
    tl.store(positions + gone, -1, mask=gone >= 0)
    row = tl.load(last_row + i).to(tl.int64)
    if row < 0:
        return
    tl.store(positions + row, tl.load(token_positions + tl.load(last + i)) + 1)
    tl.store(counts + row, 0)
    mine = seats + i * (1 + pages + answer)
    tl.store(temperatures + row, tl.load(mine))
    column = tl.arange(0, BLOCK)
    for first in range(0, pages, BLOCK):
        inside = first + column < pages
        tl.store(table + row * pages + first + column, tl.load(mine + 1 + first + column, mask=inside), mask=inside)
    mine += 1 + pages
    for first in range(0, answer, BLOCK):
        inside = first + column < answer
        tl.store(uniforms + row * answer + first + column, tl.load(mine + first + column, mask=inside), mask=inside)


def take_seats(sent: Sent, rows: Rows) -> None:
    """Empty the rows that were left; seat those whose prompts are about to be read: length, temperature, pages and
    random numbers. No row may be among both. Rows that are not named stay as they are."""
    packed = sent.packed
    _seat[(len(rows.positions),)](
        sent.left, packed.last_row, packed.last, packed.positions, sent.seats, rows.positions, rows.counts,
        rows.temperatures.view(torch.int32), rows.table, rows.uniforms.view(torch.int32),  # bits, as they travel
        rows.table.shape[1], rows.uniforms.shape[1], BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
