"""Packs the new tokens of several prompts into one array, so that a prefill needs a single copy to the device.

The array holds, one after the other: for every new token its row, for every block of tokens its row, for every
conversation that is read its row, and the rows that were left; all of these are -1 where there is none. Then tokens,
their positions, the first token and the length of every block, and where the last token of every conversation stands;
these are 0 where there is none. At the end, for every admitted conversation, its temperature, the most tokens of its
response, the last tokens of its prompt, its pages and its random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from isentrope.core.engine import Request
from isentrope.engines.drafts import GAP, REACH
from isentrope.engines.native.attention import NEW_TOKENS
from isentrope.engines.native.forward import Packed


def prefill_blocks(tokens: int, rows: int) -> int:
    """Most runs of new tokens that one program works on, among so many tokens of so many rows."""
    most = -(-tokens // NEW_TOKENS) + rows
    return -(-most // 4) * 4  # arrays that begin at any address would need kernels of their own


@dataclass(frozen=True)
class Layout:
    """Where each part begins, for a pass over so many tokens; one admission has `table` pages, `answer` numbers."""

    tokens: int
    rows: int
    table: int
    answer: int

    @cached_property
    def admission(self) -> int:
        return 2 + REACH + self.table + self.answer

    @cached_property
    def blocks(self) -> int:
        return prefill_blocks(self.tokens, self.rows)

    def size(self, admitted: int) -> int:
        return 3 * self.tokens + 3 * self.blocks + 3 * self.rows + admitted * self.admission

    @cached_property
    def cuts(self) -> list[slice]:
        """Rows of tokens, blocks, conversations, those left; tokens, positions, blocks' first and count, last ones."""
        t, b, r = self.tokens, self.blocks, self.rows
        found, at = list[slice](), 0
        for size in (t, b, r, r, t, t, b, b, r):
            found.append(slice(at, at + size))
            at += size
        return found

    def parts(self, whole: Tensor) -> tuple[Packed, Tensor, Tensor]:
        """Of an array on the device: what a forward pass reads, the rows that were left, and the admissions."""
        row_of, block_row, last_row, left, ids, positions, first, count, last = (whole[cut] for cut in self.cuts)
        packed = Packed(ids, row_of, positions, block_row, first, count, last, last_row)
        return packed, left, whole[self.cuts[-1].stop :]


class PrefillPacket:
    """The packed array on the host, in memory that a copy to the device may read later."""

    def __init__(self, layout: Layout, admitted: int, memory: Tensor) -> None:
        self.layout, self.memory, self.admitted = layout, memory, admitted
        whole: NDArray[np.int32] = memory.numpy()
        cuts = layout.cuts
        whole[: cuts[4].start], whole[cuts[4].start :] = -1, 0
        self.row_of, self.block_row, self.last_row, self.left = (whole[cut] for cut in cuts[:4])
        self.ids, self.positions, self.block_first, self.block_count, self.last = (whole[cut] for cut in cuts[4:])
        rest = whole[cuts[-1].stop :].reshape(admitted, layout.admission)
        temperatures, self.limits, self.tail, self.table, uniforms = np.split(
            rest, np.cumsum([1, 1, REACH, layout.table]), axis=1
        )
        self.temperatures, self.uniforms = temperatures[:, 0].view(np.float32), uniforms.view(np.float32)


@dataclass(frozen=True)
class Piece:
    """One conversation: its row, how many tokens of its prompt are already in the cache, and where."""

    row: int
    start: int
    request: Request
    pages: list[int]


def fill(packet: PrefillPacket, pieces: Sequence[Piece], warmth: NDArray[np.float32], left: Sequence[int]) -> None:
    """`warmth` has the temperatures by row; `left` are rows that nobody is in any more."""
    rows, admitted = np.array([piece.row for piece in pieces]), len(pieces)
    ids: list[int] = []
    for i, piece in enumerate(pieces):
        ids.extend(piece.request.prompt[piece.start :])
        packet.table[i, : len(piece.pages)] = piece.pages
        packet.limits[i] = len(piece.request.uniforms)
        end = piece.request.prompt[-REACH:]
        packet.tail[i] = [GAP] * (REACH - len(end)) + list(end)
        packet.uniforms[i, : len(piece.request.uniforms)] = piece.request.uniforms
    starts = np.array([piece.start for piece in pieces])
    counts = np.array([len(piece.request.prompt) for piece in pieces]) - starts
    ends = counts.cumsum()
    total = len(ids)
    packet.ids[:total] = ids
    packet.row_of[:total] = np.repeat(rows, counts)
    packet.positions[:total] = np.arange(total) + np.repeat(starts + counts - ends, counts)
    packet.last[:admitted], packet.last_row[:admitted] = ends - 1, rows
    packet.temperatures[:] = warmth[rows]
    packet.left[: len(left)] = left
    _fill_blocks(packet, rows, counts, ends)


def _fill_blocks(
    packet: PrefillPacket, rows: NDArray[np.int64], counts: NDArray[np.int64], ends: NDArray[np.int64]
) -> None:
    """Every conversation's tokens are cut into blocks of its own."""
    blocks = -(-counts // NEW_TOKENS)
    total = int(blocks.sum())
    within = NEW_TOKENS * (np.arange(total) - np.repeat(blocks.cumsum() - blocks, blocks))  # tokens before the block
    packet.block_row[:total] = np.repeat(rows, blocks)
    packet.block_first[:total] = np.repeat(ends - counts, blocks) + within
    packet.block_count[:total] = np.minimum(NEW_TOKENS, np.repeat(counts, blocks) - within)
