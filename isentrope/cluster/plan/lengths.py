"""The episodes of a step in tokens and turns: as a run had them, or assumed from their means.

Without a run turns end with the same chance at each one (geometric, cut off at task.max_turns) and responses are spread
log-normally (a sigma of a half): both have the long tail that rollouts have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isentrope.core.seeding import stream
from isentrope.core.types import Episode

Ints = NDArray[np.int64]
SPREAD = 0.5  # sigma of the logarithm of a response's length
MIN_SHARED = 0.1  # of the tokens that must be saved for shared prompts to be learnt from once: learning/prefix_sharing


@dataclass(frozen=True)
class Lengths:
    """Of one step. Episodes × turns; a turn that there is not has no tokens written."""

    read: Ints  # tokens that come before each response and after the one before
    new: Ints  # tokens of each response
    group_size: int = 8  # neighbours that begin alike: their first prompt is read once
    window: bool = False  # each turn is prompted anew: `read` is the whole prompt, and nothing is held

    @property
    def episodes(self) -> int:
        return len(self.new)

    @property
    def turns(self) -> Ints:
        return (self.new > 0).sum(1)

    @property
    def written(self) -> int:
        return int(self.new.sum())

    @property
    def whole(self) -> int:
        """Tokens of all conversations, written ones included."""
        return self.written + int(self.read[self.new > 0].sum())

    @property
    def sequences(self) -> Ints:
        """Tokens of each sequence that is learnt from: a conversation, or a turn in a window."""
        each = np.where(self.new > 0, self.read + self.new, 0)
        return each[self.new > 0] if self.window else each.sum(1)

    @property
    def computed(self) -> int:
        """Tokens of a pass over all of them, shared prompts once where that saves a tenth."""
        total = int(self.sequences.sum())
        if self.window or self.group_size < 2:
            return total
        saved = int(self.read[:, 0].sum() - self.read[:: self.group_size, 0].sum())
        return total - saved if saved >= MIN_SHARED * total else total

    @property
    def seen(self) -> float:
        """Pairs of a token and one that it sees."""
        return float((self.sequences.astype(np.float64) ** 2).sum() / 2)

    @property
    def longest(self) -> int:
        return int(self.sequences.max(initial=0))


@dataclass(frozen=True)
class Assumed:
    """Means and limits of episodes that nobody has played yet."""

    groups: int
    group_size: int
    turns: float  # mean
    max_turns: int
    response: float  # mean tokens of a response
    max_response: int
    prompt: int  # tokens before the first response
    read: int  # tokens between two responses
    max_context: int
    window: int = -1  # turns shown in a window; -1: full context

    def lengths(self, step: int) -> Lengths:
        rng, count = stream(0, f"plan/{step}"), self.groups * self.group_size
        ends = _solve(lambda p: _mean_turns(p, self.max_turns), self.turns)
        turns = np.minimum(
            rng.geometric(ends, count) if ends > 1e-9 else np.full(count, self.max_turns), self.max_turns
        )
        new = _responses(rng.standard_normal((count, self.max_turns)), self.response, self.max_response)
        read = np.full((count, self.max_turns), self.read, dtype=np.int64)
        read[:, 0] = self.prompt
        if self.window >= 0:
            shown = np.minimum(np.arange(self.max_turns), self.window)
            read = (self.prompt + shown * (self.read + round(self.response)))[None, :].repeat(count, 0)
        new = np.where(np.arange(self.max_turns) < turns[:, None], new, 0)
        return _cut(Lengths(read, new, self.group_size, self.window >= 0), self.max_context, self.max_response)


def _cut(lengths: Lengths, context: int, response: int) -> Lengths:
    """Conversations end before one more response might not fit."""
    before = lengths.read if lengths.window else lengths.read.cumsum(1) + lengths.new.cumsum(1) - lengths.new
    fits = np.logical_and.accumulate(before + response <= context, axis=1)
    fits[:, 0] = True
    return Lengths(lengths.read, np.where(fits, lengths.new, 0), lengths.group_size, lengths.window)


def _mean_turns(ends: float, most: int) -> float:
    return most if ends <= 0 else (1 - (1 - ends) ** most) / ends


def _responses(normal: NDArray[np.float64], mean: float, most: int) -> Ints:
    if mean >= most:
        return np.full(normal.shape, most, dtype=np.int64)

    def drawn(size: float) -> NDArray[np.float64]:
        return np.clip(np.rint(size * np.exp(SPREAD * normal)), 1, most)

    return drawn(_solve(lambda size: float(drawn(size).mean()), mean, 0.1, 20.0 * most)).astype(np.int64)


def _solve(function: Callable[[float], float], value: float, low: float = 0.0, high: float = 1.0) -> float:
    """Where a monotonous function takes the value, between the two ends."""
    falls = function(low) > function(high)
    for _ in range(60):
        middle = (low + high) / 2
        if (function(middle) > value) == falls:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def fixed(episodes: int, turns: int, new: int, read: int, prompts: Sequence[int] | int, group_size: int = 1) -> Lengths:
    """Conversations that all go on for so many turns."""
    reads = np.full((episodes, turns), read, dtype=np.int64)
    reads[:, 0] = prompts
    return Lengths(reads, np.full((episodes, turns), new, dtype=np.int64), group_size)


def played(episodes: Sequence[Episode], group_size: int) -> Lengths:
    """Of episodes that were stored."""
    most = max((len(episode.turns) for episode in episodes), default=1)
    read, new = np.zeros((2, len(episodes), most), dtype=np.int64)
    ordered = sorted(episodes, key=lambda episode: (episode.group, episode.member))
    for row, episode in enumerate(ordered):
        for column, turn in enumerate(episode.turns):
            read[row, column], new[row, column] = len(turn.context_ids), max(1, len(turn.response_ids))
    anew = [turn.continues for episode in episodes for turn in episode.turns[1:]]
    return Lengths(read, new, group_size, bool(anew) and not any(anew))


def resampled(kept: Sequence[Lengths], groups: int, group_size: int, step: int) -> Lengths:
    """A step of so many groups, drawn from the episodes of kept ones: whole groups, then members of them."""
    rng, first = stream(0, f"plan/{step}"), kept[0]
    most = max(lengths.new.shape[1] for lengths in kept)
    read, new = (np.concatenate([_wide(getattr(one, name), most) for one in kept]) for name in ("read", "new"))
    there = len(new) // first.group_size
    chosen = rng.permutation(there) if groups <= there else rng.integers(0, there, groups)
    own = first.group_size
    members = [np.arange(own)[:group_size] if group_size <= own else rng.integers(0, own, group_size) for _ in chosen]
    rows = np.concatenate([group * own + some for group, some in zip(chosen[:groups], members, strict=False)])
    return Lengths(read[rows], new[rows], group_size, first.window)


def _wide(table: Ints, columns: int) -> Ints:
    return np.pad(table, ((0, 0), (0, columns - table.shape[1])))
