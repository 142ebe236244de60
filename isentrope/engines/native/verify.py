"""Guesses on their way through a pass: laid out behind each other, and judged by what is drawn behind each.

A row's run is the token that was drawn last and its guesses. Draws are the row's next tokens up to the first that is
not what was guessed. What is left of the run in the cache lies behind the row's new position, and is written over.
"""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from isentrope.engines.native.draw import Rows
from isentrope.engines.native.small_kernels import jit

BLOCK = 128  # places that one program fills up


@jit
def _lay_out(
    last, positions, guesses, wanted, ids, row_of, places, further, first, count, rows, tokens, longest,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program, r = tl.program_id(0), tl.arange(0, ROWS)
    more = tl.load(wanted + r, mask=r < rows, other=-1)
    there = (more >= 0).to(tl.int32)
    more = tl.maximum(more, 0)
    spare = tokens - tl.sum(there, 0)
    if program >= rows:  # the places behind all runs
        place = (program - rows) * BLOCK + tl.arange(0, BLOCK)
        used = tl.sum(there, 0) + tl.minimum(tl.sum(more, 0), spare)
        empty = (place >= used) & (place < tokens)
        tl.store(row_of + place, tl.full([BLOCK], -1, tl.int32), mask=empty)
        tl.store(ids + place, tl.zeros([BLOCK], tl.int32), mask=empty)
        tl.store(places + place, tl.zeros([BLOCK], tl.int32), mask=empty)
        return
    row, mine = program.to(tl.int64), tl.load(wanted + program)
    before = tl.minimum(tl.sum(tl.where(r < program, more, 0), 0), spare)
    begin = tl.sum(tl.where(r < program, there, 0), 0) + before
    guessed = tl.minimum(mine, spare - before)  # where there is no room for all, the last rows go without
    tl.store(first + row, begin)
    tl.store(count + row, guessed + 1)
    if mine < 0:
        return
    i = tl.arange(0, WIDTH)
    inside = i <= guessed
    token = tl.load(guesses + row * longest + i - 1, mask=inside & (i > 0), other=0)
    tl.store(ids + begin + i, tl.where(i == 0, tl.load(last + row), token), mask=inside)
    tl.store(row_of + begin + i, tl.zeros([WIDTH], tl.int32) + program, mask=inside)
    tl.store(places + begin + i, tl.load(positions + row) + i, mask=inside)
    tl.store(further + begin + i, i, mask=inside)


@jit
def _accept(
    drawn, guessed, first, count, ids, positions, counts, limits, tail, taken,
    WIDTH: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n, begin = tl.load(count + row), tl.load(first + row)
    if n <= 0:
        tl.store(taken + row, 0)
        return
    i = tl.arange(0, WIDTH)
    token = tl.load(drawn + begin + i, mask=i < n, other=-1.0).to(tl.int32)
    guess = tl.load(guessed + begin + i + 1, mask=i + 1 < n, other=-2)
    right = tl.min(tl.where(token == guess, WIDTH, i), 0)  # in front: the last of a run has no guess behind it
    position, counted = tl.load(positions + row) + right + 1, tl.load(counts + row) + right + 1
    tl.store(taken + row, right + 1)
    tl.store(ids + row, tl.sum(tl.where(i == right, token, 0), 0))
    tl.store(counts + row, counted)
    # a row that has all its tokens is left at once: further passes may be under way before the host knows
    tl.store(positions + row, tl.where(counted >= tl.load(limits + row), -1, position))
    there = (i <= right) & (i > right - TAIL)
    tl.store(tail + row * TAIL + (position - right + i) % TAIL, token, mask=there)


INFO = 5  # per row: tokens matched, guesses that there were, where its run begins, how long it is, tokens taken


@dataclass(frozen=True)
class Run:
    """A pass over so many tokens of so many rows: what it reads, and where its results go, all on the device."""

    ids: Tensor
    row_of: Tensor
    positions: Tensor
    further: Tensor
    out: Tensor  # [3, tokens]: token, log-prob, entropy
    found: Tensor  # [2, rows]
    first: Tensor  # [rows]
    count: Tensor
    taken: Tensor
    whole: Tensor  # `out` and what is known of each row, as they travel to the host


class Runs:
    """The memory for passes of all sizes: one begins when the one before has been judged."""

    def __init__(self, rows: int, tokens: int, longest: int, device: torch.device) -> None:
        self.longest = longest
        self._packed = torch.zeros(4 * tokens, dtype=torch.int32, device=device)
        self.results = torch.zeros(3 * tokens + INFO * rows, device=device)
        self.guesses = torch.zeros(rows, longest, dtype=torch.int32, device=device)
        self.wanted = torch.full((rows,), -1, dtype=torch.int32, device=device)

    def of(self, rows: int, tokens: int) -> Run:
        ids, row_of, positions, further = self._packed[: 4 * tokens].view(4, tokens)
        whole = self.results[: 3 * tokens + INFO * rows]
        info = whole[3 * tokens :].view(torch.int32).view(INFO, rows)
        out = whole[: 3 * tokens].view(3, tokens)
        return Run(ids, row_of, positions, further, out, info[:2], info[2], info[3], info[4], whole)


def lay_out(run: Run, runs: Runs, rows: Rows) -> None:
    """Each row's newest token and as many guesses as it wants, as far as there is room for them."""
    count, tokens = len(run.first), len(run.ids)
    _lay_out[(count + triton.cdiv(tokens, BLOCK),)](
        rows.ids, rows.positions, runs.guesses, runs.wanted, run.ids, run.row_of, run.positions, run.further, run.first,
        run.count, count, tokens, runs.longest,
        ROWS=triton.next_power_of_2(count), WIDTH=triton.next_power_of_2(runs.longest + 1), BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip


def accept(run: Run, longest: int, rows: Rows) -> None:
    """The rows go on by the draws that were guessed, and the one behind them."""
    _accept[(len(run.first),)](
        run.out, run.ids, run.first, run.count, rows.ids, rows.positions, rows.counts, rows.limits, rows.tail,
        run.taken, WIDTH=triton.next_power_of_2(longest + 1), TAIL=rows.tail.shape[1], num_warps=1,
    )  # fmt: skip
