"""The tokens of a step as flat arrays: the one table that learning, methods, instruments and probes compute on.

`flatten` gives the table and the sequences that a forward pass reads; `step_tokens` the table alone. Shape letters are
those of types.py: N tokens, U turns that have some, E episodes, in the order of episodes, turns and tokens.

By the prefix rule a turn that continues the one before belongs to the same sequence, so a whole conversation is
computed once.

Single tokens whose numbers are not finite are left out of an update, so that one of them does not cost all of it: a
token whose log-prob (of the sampler, the old policy or the reference), entropy or value is NaN or infinite. It is taken
out of the table before credit is assigned (`finite`, `rows`, `renumbered`): advantages, methods, weights and
denominators are those of a step in which it was never sampled. It still stands in the context of the tokens behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isentrope.core.types import FAILURES, Episode, Floats, StepTokens, Targets, Turn, measured_at

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
Table = TypeVar("Table", StepTokens, Targets)

OTHER, THINK, ACTION = 0, 1, 2
"""Parts of a response: tags and stray text, the thought, the action."""


@dataclass(frozen=True)
class TokenSequence:
    """One run of tokens, and where its response tokens stand: token `tokens[k]` of the table at `columns[k]`."""

    ids: Ids
    columns: Ids
    tokens: Ids
    group: int
    episode: int


@dataclass(frozen=True)
class _Place:
    """A turn and where it stands."""

    episode: int
    place: int  # in its episode
    turn: Turn


def flatten(episodes: Sequence[Episode], all_tokens: bool = False) -> tuple[list[TokenSequence], StepTokens]:
    """The sequences of these episodes and the table of their response tokens.

    With `all_tokens` every token but the first of a sequence counts as a response: language modelling.
    """
    sequences: list[TokenSequence] = []
    places: list[_Place] = []
    count = 0
    for number, episode in enumerate(episodes):
        for run in _runs(number, episode.turns):
            sequence = _sequence([place.turn for place in run], count, episode.group, number, all_tokens)
            sequences.append(sequence)
            count += len(sequence.tokens)
            places += run
    return sequences, _table(episodes, places, all_tokens)


def step_tokens(episodes: Sequence[Episode]) -> StepTokens:
    """The table of these episodes' response tokens."""
    places = (_Place(e, p, turn) for e, episode in enumerate(episodes) for p, turn in enumerate(episode.turns))
    return _table(episodes, places)


def _runs(episode: int, turns: Sequence[Turn]) -> list[list[_Place]]:
    """Turns cut where one does not continue the one before; a run without a response carries nothing to learn."""
    runs: list[list[_Place]] = []
    for number, turn in enumerate(turns):
        if not turn.continues or not runs:
            runs.append([])
        runs[-1].append(_Place(episode, number, turn))
    return [run for run in runs if any(len(place.turn.response_ids) for place in run)]


def _sequence(run: Sequence[Turn], first: int, group: int, episode: int, all_tokens: bool) -> TokenSequence:
    parts: list[NDArray[np.int32]] = []
    columns: list[Ids] = []
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


def _table(episodes: Sequence[Episode], turns: Iterable[_Place], all_tokens: bool = False) -> StepTokens:
    """With `all_tokens` the context of a turn stands before its response, but for the first token of a sequence."""

    def lead(turn: Turn) -> int:
        return len(turn.context_ids) - (0 if turn.continues else 1) if all_tokens else 0

    places = [place for place in turns if lead(place.turn) + len(place.turn.response_ids)]
    leads = [lead(place.turn) for place in places]

    def joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> Any:
        return np.concatenate([np.zeros(0, dtype=kind), *parts], dtype=kind, casting="unsafe")

    def column(name: str, fill: float) -> Floats:
        parts: list[NDArray[Any]] = []
        for count, place in zip(leads, places, strict=True):
            parts += [np.full(count, fill)] if count else []
            parts.append(getattr(place.turn, name))
        return joined(parts, np.float32)

    ids = [
        (turn.context_ids[len(turn.context_ids) - n :], turn.response_ids)
        for n, turn in zip(leads, (place.turn for place in places), strict=True)
    ]
    lengths = [count + len(place.turn.response_ids) for count, place in zip(leads, places, strict=True)]
    turn_N = np.repeat(np.arange(len(places)), np.array(lengths, dtype=np.int64))
    episode_U = np.array([place.episode for place in places], dtype=np.int64)
    episode_N = episode_U[turn_N]
    solved_E = np.array([episode.success for episode in episodes], dtype=np.bool_)
    broken_E = np.array([episode.stop in FAILURES for episode in episodes], dtype=np.bool_)
    sampled_at_N = column("temperatures", 1.0)
    return StepTokens(
        target_N=joined([part for both in ids for part in both], np.int64),
        temperature_N=measured_at(sampled_at_N),
        sampled_at_N=sampled_at_N,
        logp_N=column("logprobs", 0.0),
        entropy_N=column("entropies", 0.0),
        episode_N=episode_N,
        turn_N=turn_N,
        group_N=np.array([episode.group for episode in episodes], dtype=np.int64)[episode_N],
        part_N=_parts(places, leads, lengths),
        success_N=solved_E[episode_N].astype(np.float32),
        episode_U=episode_U,
        place_U=np.array([place.place for place in places], dtype=np.int64),
        valid_U=np.array([place.turn.valid for place in places], dtype=np.bool_),
        kind_E=tuple(episode.kind for episode in episodes),
        solved_E=solved_E,
        failed_E=~solved_E & ~broken_E,
    )


def _parts(places: Sequence[_Place], leads: Sequence[int], lengths: Sequence[int]) -> Ids:
    part_N = np.full(sum(lengths), OTHER, dtype=np.int64)
    for place, lead, start in zip(places, leads, accumulate(lengths, initial=0), strict=False):
        for span, part in ((place.turn.think_span, THINK), (place.turn.action_span, ACTION)):
            if span is not None:
                part_N[start + lead + span[0] : start + lead + span[1]] = part
    return part_N


def episode_slices(tokens: StepTokens) -> list[slice]:
    """Where the tokens of each episode stand."""
    ends = accumulate(np.bincount(tokens.episode_N, minlength=len(tokens.kind_E)).tolist(), initial=0)
    return [slice(first, end) for first, end in pairwise(ends)]


def finite(first_N: Floats, *others: Floats | None) -> Mask:
    """Tokens of which every column is finite; a column that is None does not count."""
    known_N = np.isfinite(first_N)
    for column_N in others:
        if column_N is not None:
            known_N &= np.isfinite(column_N)
    return known_N


def rows(table: Table, keep_N: Mask) -> Table:
    """The table with these tokens alone."""
    columns = {field.name: getattr(table, field.name) for field in fields(table) if field.name.endswith("_N")}
    return replace(table, **{name: values[keep_N] for name, values in columns.items() if values is not None})


def only(sequences: Sequence[TokenSequence], keep_N: Mask) -> list[TokenSequence]:
    """The sequences with these response tokens alone; one without any teaches nothing and is left out."""
    kept = [replace(s, columns=s.columns[keep_N[s.tokens]], tokens=s.tokens[keep_N[s.tokens]]) for s in sequences]
    return [sequence for sequence in kept if len(sequence.tokens)]


def renumbered(sequences: Sequence[TokenSequence], keep_N: Mask) -> list[TokenSequence]:
    """The same for a table that has only these tokens (`rows`)."""
    number_N = np.cumsum(keep_N) - 1
    return [replace(sequence, tokens=number_N[sequence.tokens]) for sequence in only(sequences, keep_N)]


def spread(values_N: Floats, keep_N: Mask, fill: float) -> Floats:
    """The opposite of `rows`, for one column: `fill` stands for the tokens that were left out."""
    whole = np.full(len(keep_N), fill, dtype=np.float32)
    whole[keep_N] = values_N
    return whole
