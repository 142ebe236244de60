"""What is handed to the device to be read: the new tokens of several conversations, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isentrope.policy.engine import Request
from isentrope.policy.fast.attention import NEW_TOKENS
from isentrope.policy.fast.device import MOST_RECORDED, bucket, prefill_blocks


@dataclass(frozen=True)
class Piece:
    """One conversation: its row, how many tokens of its prompt are already in the cache, and where."""

    row: int
    start: int
    request: Request
    pages: list[int]


def pack(pieces: Sequence[Piece], tokens: int, rows: int) -> tuple[list[NDArray[np.int32]], int, int]:
    """Packed's arrays (forward.py), padded to a size that passes are recorded for, and the numbers of tokens and
    blocks in them."""
    padded = bucket(max(64, tokens)) if tokens <= MOST_RECORDED else -(-tokens // 64) * 64
    most = prefill_blocks(padded, rows)
    ids, positions = np.zeros((2, padded), dtype=np.int32)
    row_of = np.full(padded, -1, dtype=np.int32)
    block_row, last_row = np.full(most, -1, dtype=np.int32), np.full(rows, -1, dtype=np.int32)
    block_first, block_count = np.zeros((2, most), dtype=np.int32)
    last = np.zeros(rows, dtype=np.int32)
    at = block = 0
    for i, piece in enumerate(pieces):
        new = np.asarray(piece.request.prompt[piece.start :], dtype=np.int32)
        count = len(new)
        ids[at : at + count] = new
        row_of[at : at + count] = piece.row
        positions[at : at + count] = np.arange(piece.start, piece.start + count)
        for first in range(0, count, NEW_TOKENS):
            block_row[block], block_first[block] = piece.row, at + first
            block_count[block] = min(NEW_TOKENS, count - first)
            block += 1
        at += count
        last[i], last_row[i] = at - 1, piece.row
    return [ids, row_of, positions, block_row, block_first, block_count, last, last_row], padded, most
