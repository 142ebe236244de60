"""Fills in what is handed to the device to be read: the new tokens of several conversations, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isentrope.policy.engine import Request
from isentrope.policy.fast.attention import NEW_TOKENS
from isentrope.policy.fast.sheet import Sheet


@dataclass(frozen=True)
class Piece:
    """One conversation: its row, how many tokens of its prompt are already in the cache, and where."""

    row: int
    start: int
    request: Request
    pages: list[int]


def fill(sheet: Sheet, pieces: Sequence[Piece], warmth: NDArray[np.float32], left: Sequence[int]) -> None:
    """`warmth` has the temperatures by row; `left` are rows that nobody is in any more."""
    rows, seats = np.array([piece.row for piece in pieces]), len(pieces)
    ids: list[int] = []
    for i, piece in enumerate(pieces):
        ids.extend(piece.request.prompt[piece.start :])
        sheet.table[i, : len(piece.pages)] = piece.pages
        sheet.uniforms[i, : len(piece.request.uniforms)] = piece.request.uniforms
    starts = np.array([piece.start for piece in pieces])
    counts = np.array([len(piece.request.prompt) for piece in pieces]) - starts
    ends = counts.cumsum()
    total = len(ids)
    sheet.ids[:total] = ids
    sheet.row_of[:total] = np.repeat(rows, counts)
    sheet.positions[:total] = np.arange(total) + np.repeat(starts + counts - ends, counts)
    sheet.last[:seats], sheet.last_row[:seats] = ends - 1, rows
    sheet.temperatures[:] = warmth[rows]
    sheet.left[: len(left)] = left
    _fill_blocks(sheet, rows, counts, ends)


def _fill_blocks(sheet: Sheet, rows: NDArray[np.int64], counts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Every conversation's tokens are cut into blocks of its own."""
    blocks = -(-counts // NEW_TOKENS)
    total = int(blocks.sum())
    within = NEW_TOKENS * (np.arange(total) - np.repeat(blocks.cumsum() - blocks, blocks))  # tokens before the block
    sheet.block_row[:total] = np.repeat(rows, blocks)
    sheet.block_first[:total] = np.repeat(ends - counts, blocks) + within
    sheet.block_count[:total] = np.minimum(NEW_TOKENS, np.repeat(counts, blocks) - within)
