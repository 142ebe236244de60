"""The memory of drafts.py on a GPU: what was said last, and where each run of up to `REACH` tokens stood last in it.

Guesses are looked up in the pass that reads them, so nothing waits for the host; the host only tells what was said.
"""

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false
# Kernels are in Triton's language, which only looks like Python's types.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from isentrope.core.errors import EngineError
from isentrope.engines.drafts import GAP, REACH, ROOM, SLOTS, Said, said_before
from isentrope.engines.native.draw import Rows
from isentrope.engines.native.small_kernels import jit

BLOCK = 128
MISSING = tl.constexpr(GAP)
LONGEST_MATCH = tl.constexpr(REACH)
SLOT_BITS: tl.constexpr = tl.constexpr(SLOTS.bit_length() - 1)
FACTOR, MIX = tl.constexpr(0x9E3779B1), tl.constexpr(0x85EBCA6B)


@jit
def _longer(key, token):
    return (key + token.to(tl.uint32) + 1) * FACTOR


@jit
def _slot(key):
    mixed = (key ^ (key >> 15)) * MIX
    return ((mixed ^ (mixed >> 13)) >> (32 - SLOT_BITS)).to(tl.int64)


@partial(jit, do_not_specialize=["count", "start", "first"])
def _tell(tokens, count, start, first, said, index, end, room, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """Tokens stand from `start` on; the places from `first` of them on are written into the index."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    token = tl.load(tokens + i, mask=inside, other=MISSING)
    tl.store(said + (start + i) % room, token, mask=inside)
    whole, key = (token != MISSING) & inside & (i >= first), tl.zeros([BLOCK], tl.uint32)
    for n in tl.static_range(1, LONGEST_MATCH + 1):
        before = tl.load(tokens + i - n, mask=inside & (i >= n), other=MISSING)
        whole &= before != MISSING
        key = _longer(key, before)
        # of equal ones the last stays, in whatever order programs come to it
        tl.atomic_max(index + (n - 1) * SLOTS + _slot(key), start + i, mask=whole)
    if tl.program_id(0) == 0:
        tl.store(end, start + count)


@jit
def _look_up(
    tail, positions, counts, limits, said, index, end, reach, guesses, wanted, found, rows, room, longest,
    SLOTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    position, most = tl.load(positions + row), tl.load(limits + row) - tl.load(counts + row) - 1
    if (position < 0) | (most < 0):
        tl.store(wanted + row, -1)
        tl.store(found + row, 0)
        tl.store(found + rows + row, 0)
        return
    told = tl.load(end)
    oldest = tl.maximum(told - room + LONGEST_MATCH, -1)  # what stands before it or here has lost tokens before it
    j, base = tl.arange(0, LONGEST_MATCH), tail + row * LONGEST_MATCH
    ends = tl.load(base + (position - j + LONGEST_MATCH) % LONGEST_MATCH)
    key, best, best_place = tl.full([1], 0, tl.uint32), tl.full([1], 0, tl.int32), tl.full([1], -1, tl.int64)
    for n in tl.static_range(LONGEST_MATCH):
        key = _longer(key, tl.load(base + (position - n + LONGEST_MATCH) % LONGEST_MATCH + tl.arange(0, 1)))
        place = tl.load(index + n * SLOTS + _slot(key))  # [1], as all that belongs to it
        at = place[:, None] - 1 - j[None, :]
        other = tl.load(said + at % room, mask=(place[:, None] > oldest) & (at >= 0), other=-2)
        same = (other == ends[None, :]) & (ends[None, :] != MISSING)
        match = tl.min(tl.where(same, LONGEST_MATCH, j[None, :]), 1)
        better = (match > best) | ((match == best) & (place > best_place) & (match > 0))
        best, best_place = tl.where(better, match, best), tl.where(better, place, best_place)
    k = tl.arange(0, WIDTH)
    after = best_place + k  # from here on [WIDTH]
    token = tl.load(said + tl.maximum(after, 0) % room, mask=(k < longest) & (after < told), other=MISSING)
    length = tl.min(tl.where((token != MISSING) & (best > 0), WIDTH, k), 0)
    length = tl.minimum(length, most)
    match = tl.max(best, 0)
    tl.store(guesses + row * longest + k, token, mask=k < longest)
    tl.store(wanted + row, tl.minimum(length, tl.load(reach + match)))
    tl.store(found + row, match)
    tl.store(found + rows + row, length)


class DeviceMemory:
    """Keeps the interface of `Memory`, but for looking up: see `look_up` below."""

    def __init__(self, device: torch.device, room: int = ROOM) -> None:
        try:
            self.said = torch.full((room,), GAP, dtype=torch.int32, device=device)
            self.index = torch.full((REACH, SLOTS), -1, dtype=torch.int64, device=device)
        except torch.OutOfMemoryError as error:
            megabytes = (4 * room + 8 * REACH * SLOTS) / 1e6
            raise EngineError(
                f"no memory for the table of drafts ({megabytes:.0f} MB): set engine.drafts = 0"
            ) from error
        self.end = torch.zeros(1, dtype=torch.int64, device=device)  # tokens ever told
        self._room, self._end, self._device = room, 0, device

    @property
    def told(self) -> bool:
        """Whether there is anything to remember."""
        return self._end > 0

    def tell(self, responses: Sequence[Said]) -> None:
        """Remember these: the tokens before each response, of which the last few count, and its own."""
        tokens = said_before(responses)[-self._room :]
        self._write(tokens, 0)

    def _write(self, tokens: NDArray[np.int32], first: int) -> None:
        """Behind what stands there; places before `first` of them are not looked up any more."""
        if not len(tokens):
            return
        host = torch.empty(len(tokens), dtype=torch.int32, pin_memory=self._device.type == "cuda")
        there = host.copy_(torch.from_numpy(tokens)).to(self._device, non_blocking=True)
        _tell[(triton.cdiv(len(tokens), BLOCK),)](
            there, len(tokens), self._end, first, self.said, self.index, self.end, self._room,
            SLOTS=SLOTS, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
        self._end += len(tokens)

    def state_dict(self) -> dict[str, Any]:
        held = min(self._end, self._room)
        places = torch.arange(self._end - held, self._end) % self._room
        return {"end": self._end, "said": self.said.cpu()[places]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        said: NDArray[np.int32] = state["said"].numpy()
        end = int(state["end"])
        if said.dtype != np.int32 or said.shape != (min(end, self._room),):
            raise ValueError(f"{said.size} tokens were remembered, expected {min(end, self._room)}")
        self.index.fill_(-1)
        self.said.fill_(GAP)
        self._end = end - len(said)
        self.end.fill_(end)
        oldest = max(-1, end - self._room + REACH)
        self._write(said, max(0, oldest + 1 - self._end))


def look_up(memory: DeviceMemory, rows: Rows, count: int, reach: Tensor, guesses: Tensor, wanted: Tensor,
            found: Tensor) -> None:  # fmt: skip
    """For each of the first `count` rows up to so many guesses as `guesses` has columns. `wanted`: how many of them to
    read, at most reach[tokens matched]; -1 where nobody is. `found`: tokens matched, and guesses that there are."""
    longest = guesses.shape[1]
    _look_up[(count,)](
        rows.tail, rows.positions, rows.counts, rows.limits, memory.said, memory.index, memory.end, reach, guesses,
        wanted, found, found.shape[1], len(memory.said), longest,
        SLOTS=SLOTS, WIDTH=triton.next_power_of_2(longest), num_warps=1,
    )  # fmt: skip
