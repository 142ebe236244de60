"""Packs token sequences into the rows of a batch.

Sequences are packed into rows (first fit, longest first), rows into micro-batches of bounded size. A `Layout` says
where the tokens of each sequence stand in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.core.token_weights import MODES, token_weights
from isentrope.core.types import Floats, Spans, StepTokens, Targets, TokenBatch
from isentrope.kernels.attention import on_device
from isentrope.learning.prefix_sharing import Beginning, Bundle, bundles
from isentrope.learning.tokens import TokenSequence

Ints = NDArray[np.int64]
NO_PARENT, PADDING = -2, -1
TILE = 128
"""On a GPU the width of a row is a multiple of this."""


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Rows of sequence numbers: first fit, longest first. A sequence longer than the capacity has a row of its own."""
    rows: list[list[int]] = []
    room: dict[int, int] = {}  # row -> what is left of it, for rows into which something may still go
    smallest = min(lengths, default=0)
    for number in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[number]
        row = next((r for r, free in room.items() if free >= length), None)
        if row is None:
            row = len(rows)
            rows.append([])
            room[row] = capacity
        rows[row].append(number)
        room[row] -= length
        if room[row] < smallest:
            del room[row]
    return rows


def micro_batches(
    sequences: Sequence[TokenSequence],
    tokens: StepTokens,
    targets: Targets | None = None,
    *,
    row_tokens: int = 0,
    micro_tokens: int = 16384,
    constant_length: float = 1.0,
    device: torch.device | str = "cpu",
    share: bool = False,
    own: Sequence[Bundle] | None = None,
) -> Iterator[TokenBatch]:
    """The mini-batch made of these sequences, piece by piece; of N ranks each makes those of its `own` bundles.
    Without targets: for scoring or imitation.

    With `share` the beginnings that sequences of a group have in common are computed once (prefix_sharing.py).
    """
    if not sequences:
        return
    chosen = np.concatenate([sequence.tokens for sequence in sequences])
    weights = {mode: np.zeros(len(tokens.target_N)) for mode in MODES}
    for mode, values in weights.items():
        values[chosen] = token_weights(mode, tokens.episode_N[chosen], tokens.turn_N[chosen], constant_length)
    capacity = row_width(sequences, row_tokens, micro_tokens, share)
    found = bundles_of(sequences, capacity, share, device) if own is None else own
    widths = [bundle.width for bundle in found]
    rows = pack(widths, capacity)
    row_widths = [sum(widths[i] for i in row) for row in rows]
    known = targets or Targets(np.zeros_like(tokens.logp_N), tokens.logp_N)
    at = 0
    while at < len(rows):
        width, end = row_widths[at], at + 1
        while end < len(rows) and max(width, row_widths[end]) * (end + 1 - at) <= micro_tokens:
            width, end = max(width, row_widths[end]), end + 1
        packed = [[found[i] for i in row] for row in rows[at:end]]
        layout = lay_out(sequences, packed, padded(width, device))
        yield batch_of(layout, tokens, known, weights, chosen, device)
        at = end


def row_width(sequences: Sequence[TokenSequence], row_tokens: int, micro_tokens: int, share: bool) -> int:
    longest = max((len(sequence.ids) for sequence in sequences), default=0)
    return row_tokens or (min(2 * longest, max(longest, micro_tokens)) if share else longest)


def bundles_of(
    sequences: Sequence[TokenSequence], capacity: int, share: bool, device: torch.device | str
) -> list[Bundle]:
    """What is computed together."""
    if not share:
        return [Bundle((number,), 0, len(sequence.ids)) for number, sequence in enumerate(sequences)]
    return bundles(
        [
            Beginning(number, s.group, s.ids[: max(0, int(s.columns[0]) - 1) if len(s.columns) else 0], len(s.ids))
            for number, s in enumerate(sequences)
        ],
        capacity,
        torch.device(device).type,
    )


def batch_of(
    layout: Layout,
    tokens: StepTokens,
    targets: Targets,
    weights: dict[str, NDArray[np.float64]],
    mini_batch: NDArray[np.int64],
    device: torch.device | str,
) -> TokenBatch:
    """The rows of this layout with what is known of their response tokens."""
    chosen = layout.tokens

    def tensor(values: NDArray[Any]) -> torch.Tensor:
        return on_device(values, device)

    def optional(values: Floats | None) -> torch.Tensor | None:
        return None if values is None else tensor(values[chosen])

    return TokenBatch(
        ids_BT=tensor(layout.ids),
        segments_BT=tensor(layout.segments),
        positions_BT=tensor(layout.positions),
        row_N=tensor(layout.rows),
        col_N=tensor(layout.columns),
        target_N=tensor(tokens.target_N[chosen]),
        temperature_N=tensor(tokens.temperature_N[chosen]),
        old_logp_N=tensor(targets.old_logp_N[chosen]),
        advantage_N=tensor(targets.advantage_N[chosen]),
        ref_logp_N=optional(targets.ref_logp_N),
        success_N=tensor(tokens.success_N[chosen]),
        part_N=tensor(tokens.part_N[chosen]),
        turn_N=tensor(np.unique(tokens.turn_N[chosen], return_inverse=True)[1]),
        number_N=chosen,
        mini_batch=mini_batch,
        weights={mode: tensor(values[chosen].astype(np.float32)) for mode, values in weights.items()},
        return_N=optional(targets.return_N),
        old_value_N=optional(targets.value_N),
        mismatch_N=optional(targets.mismatch_N),
        parents_BT=None if layout.parents is None else tensor(layout.parents),
        spans=layout.spans,
    )


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
