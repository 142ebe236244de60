"""Episodes to packed token rows.

By the prefix rule a turn that continues the one before belongs to the same sequence, so a whole conversation is
computed once. Sequences are packed into rows (first fit, longest first), rows into micro-batches of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.core.types import Episode, Floats, StepTokens, Targets, TokenBatch, Turn, measured_at
from isentrope.layout import Layout, TokenSequence, lay_out, on_device, padded
from isentrope.masked import MODES, token_weights
from isentrope.shared_prefix import Beginning, Bundle, bundles

OTHER, THINK, ACTION = 0, 1, 2


def flatten(episodes: Sequence[Episode], all_tokens: bool = False) -> tuple[list[TokenSequence], StepTokens]:
    """The sequences of these episodes and the table of their response tokens.

    With `all_tokens` every token but the first of a sequence counts as a response: language modelling.
    """
    sequences: list[TokenSequence] = []
    turns: list[tuple[int, int, Episode, Turn]] = []
    count = 0
    for number, episode in enumerate(episodes):
        for run in _runs(episode.turns):
            sequence = _sequence([turn for _, turn in run], count, episode.group, number, all_tokens)
            sequences.append(sequence)
            count += len(sequence.tokens)
            turns += [(number, place, episode, turn) for place, turn in run]
    return sequences, _table(turns, all_tokens)


def _runs(turns: Sequence[Turn]) -> list[list[tuple[int, Turn]]]:
    """Turns cut where one does not continue the one before; turns without a response carry nothing to learn."""
    runs: list[list[tuple[int, Turn]]] = []
    for place, turn in enumerate(turns):
        if turn.continues and runs:
            runs[-1].append((place, turn))
        else:
            runs.append([(place, turn)])
    return [run for run in runs if any(len(turn.response_ids) for _, turn in run)]


def _sequence(run: Sequence[Turn], first: int, group: int, episode: int, all_tokens: bool) -> TokenSequence:
    parts: list[NDArray[np.int32]] = []
    columns: list[NDArray[np.int64]] = []
    at = 0
    for turn in run:
        begin = at + len(turn.context_ids)
        end = begin + len(turn.response_ids)
        parts += [turn.context_ids, turn.response_ids]
        columns.append(np.arange(max(at, 1) if all_tokens else begin, end))
        at = end
    where = np.concatenate(columns)
    tokens = np.arange(first, first + len(where))
    return TokenSequence(np.concatenate(parts).astype(np.int64), where, tokens, group, episode)


def _table(turns: Sequence[tuple[int, int, Episode, Turn]], all_tokens: bool) -> StepTokens:
    def joined(values: list[NDArray[Any]], kind: type) -> NDArray[Any]:
        found: Any = np.concatenate(values) if values else np.zeros(0)
        return cast("NDArray[Any]", found.astype(kind))

    targets: list[NDArray[Any]] = []
    floats: dict[str, list[NDArray[Any]]] = {"temperatures": [], "logprobs": [], "entropies": []}
    whole: dict[str, list[NDArray[Any]]] = {"episode": [], "turn": [], "group": [], "part": [], "success": []}
    for number, (at, _, episode, turn) in enumerate(turns):
        skip = 0
        if all_tokens:
            skip = len(turn.context_ids) - (0 if turn.continues else 1)
            targets.append(turn.context_ids[len(turn.context_ids) - skip :])
        targets.append(turn.response_ids)
        length = skip + len(turn.response_ids)
        for name, fill in (("temperatures", 1.0), ("logprobs", 0.0), ("entropies", 0.0)):
            floats[name] += [np.full(skip, fill, dtype=np.float32), getattr(turn, name)]
        constants = {"episode": at, "turn": number, "group": episode.group, "success": float(episode.success)}
        for name, value in constants.items():
            whole[name].append(np.full(length, value))
        whole["part"] += [np.zeros(skip), _parts(turn)]
    return StepTokens(
        target_N=joined(targets, np.int64),
        temperature_N=measured_at(joined(floats["temperatures"], np.float32)),
        logp_N=joined(floats["logprobs"], np.float32),
        entropy_N=joined(floats["entropies"], np.float32),
        episode_N=joined(whole["episode"], np.int64),
        turn_N=joined(whole["turn"], np.int64),
        group_N=joined(whole["group"], np.int64),
        part_N=joined(whole["part"], np.int64),
        success_N=joined(whole["success"], np.float32),
        episode_U=np.array([at for at, _, _, _ in turns], dtype=np.int64),
        place_U=np.array([place for _, place, _, _ in turns], dtype=np.int64),
    )


def _parts(turn: Turn) -> NDArray[np.int64]:
    parts = np.full(len(turn.response_ids), OTHER, dtype=np.int64)
    for span, label in ((turn.think_span, THINK), (turn.action_span, ACTION)):
        if span:
            parts[span[0] : span[1]] = label
    return parts


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
) -> Iterator[TokenBatch]:
    """The mini-batch made of these sequences, piece by piece. Without targets: for scoring or imitation.

    With `share` the beginnings that sequences of a group have in common are computed once (shared_prefix.py).
    """
    if not sequences:
        return
    chosen = np.concatenate([sequence.tokens for sequence in sequences])
    weights = {mode: np.zeros(len(tokens.target_N)) for mode in MODES}
    for mode, values in weights.items():
        values[chosen] = token_weights(mode, tokens.episode_N[chosen], tokens.turn_N[chosen], constant_length)
    longest = max(len(sequence.ids) for sequence in sequences)
    capacity = row_tokens or (min(2 * longest, max(longest, micro_tokens)) if share else longest)
    found = _bundles(sequences, capacity, share)
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


def _bundles(sequences: Sequence[TokenSequence], capacity: int, share: bool) -> list[Bundle]:
    if not share:
        return [Bundle((number,), 0, len(sequence.ids)) for number, sequence in enumerate(sequences)]
    return bundles(
        [
            Beginning(number, s.group, s.ids[: max(0, int(s.columns[0]) - 1) if len(s.columns) else 0], len(s.ids))
            for number, s in enumerate(sequences)
        ],
        capacity,
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
