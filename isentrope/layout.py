"""Where the tokens of sequences stand in the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.core.types import Spans
from isentrope.shared_prefix import Bundle

Ints = NDArray[np.int64]
NO_PARENT, PADDING = -2, -1
TILE = 128
"""On a GPU the width of a row is a multiple of this."""


@dataclass(frozen=True)
class TokenSequence:
    """One run of tokens, and where its response tokens stand: response token tokens_N[k] of the step at columns[k]."""

    ids: NDArray[np.int64]
    columns: NDArray[np.int64]
    tokens: NDArray[np.int64]
    group: int
    episode: int


@dataclass(frozen=True)
class Layout:
    """Arrays [rows, width], where the response tokens stand in them, and which tokens of the step these are."""

    ids: Ints
    segments: Ints
    positions: Ints
    parents: Ints | None  # None: nothing is shared
    rows: Ints
    columns: Ints
    tokens: Ints
    spans: Spans


@dataclass
class _Writer:
    """Fills rows segment by segment, and keeps a list of the segments."""

    ids: Ints
    segments: Ints
    positions: Ints
    parents: Ints
    spans: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    at: int = 0  # column in the current row
    first: int = 0  # number of the current row's first span

    def write(self, row: int, ids: Ints, position: int = 0, parent: int = NO_PARENT) -> int:
        """Append a segment to the row; gives its number within the row."""
        number = len(self.spans) - self.first
        place = slice(self.at, self.at + len(ids))
        self.ids[row, place], self.segments[row, place], self.parents[row, place] = ids, number, parent
        self.positions[row, place] = np.arange(position, position + len(ids))
        above = parent + self.first if parent >= 0 else -1
        self.spans.append((row * self.ids.shape[1] + self.at, len(ids), above))
        self.at += len(ids)
        return number

    def end_row(self, row: int) -> None:
        if self.at < self.ids.shape[1]:
            self.spans.append((row * self.ids.shape[1] + self.at, self.ids.shape[1] - self.at, -1))
        self.at, self.first = 0, len(self.spans)


def lay_out(sequences: Sequence[TokenSequence], rows: Sequence[Sequence[Bundle]], width: int) -> Layout:
    """Each row: what its bundles share, then the rest of each of their sequences, all in the order given."""
    shape = (len(rows), width)
    out = _Writer(
        np.zeros(shape, dtype=np.int64), np.full(shape, PADDING), np.zeros(shape, dtype=np.int64),
        np.full(shape, NO_PARENT),
    )  # fmt: skip
    row_N: list[Ints] = []
    col_N: list[Ints] = []
    tokens: list[Ints] = []
    for r, row in enumerate(rows):
        beginnings = {bundle: sequences[bundle.members[0]].ids[: bundle.shared] for bundle in row if bundle.shared}
        parents = {bundle: out.write(r, ids) for bundle, ids in beginnings.items()}
        for bundle in sorted(row, key=lambda bundle: bundle not in parents):
            for sequence in (sequences[number] for number in bundle.members):
                row_N.append(np.full(len(sequence.columns), r))
                col_N.append(sequence.columns - bundle.shared + out.at)
                tokens.append(sequence.tokens)
                out.write(r, sequence.ids[bundle.shared :], bundle.shared, parents.get(bundle, NO_PARENT))
        out.end_row(r)
    start, length, above = (np.array(values, dtype=np.int64) for values in zip(*out.spans, strict=True))
    return Layout(
        out.ids,
        out.segments,
        out.positions,
        out.parents if (above >= 0).any() else None,
        np.concatenate(row_N),
        np.concatenate(col_N),
        np.concatenate(tokens),
        Spans(start, length, above),
    )


def padded(width: int, device: torch.device | str) -> int:
    return -(-width // TILE) * TILE if torch.device(device).type == "cuda" else width


def on_device(values: NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """On the device, without waiting for what it is doing."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
