"""Drafts by lookup: guesses at the next tokens of a response, read in one pass and kept where they are right.

A draw is a function of its uniform number, so a drafted token is right exactly if the draw equals it: drafts change no
token and no probability, only how many tokens a pass of the model gives. They come from what was said before, with
the end of the prompt that it was said to: by the conversation itself, by others of its group and step, and by the
step before. The longest match of up to `REACH` tokens counts, and of equally long ones the latest.

How many tokens are drafted follows from counts of what was right so far and from a fixed table of costs, never from
measured time. Counts and table are kept in checkpoints, so a run that is resumed drafts the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.core.errors import EngineError

Array = NDArray[np.int64]
Numbers = NDArray[np.floating[Any]]
Said = tuple[Sequence[int], Sequence[int] | NDArray[np.int32]]
"""A prompt, of which the last tokens count, and the response to it."""

REACH = 8  # tokens that a match may have
ROOM = 1 << 18  # tokens that are remembered; the oldest make room for new ones
SLOTS = 1 << 18  # of the index, for each length of a match
GAP = -1  # stands between two responses, and equals no token
_FACTOR, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(64 - SLOTS.bit_length() + 1)
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of the longest draft of a pass, that are looked at
MOST_COUNTED = 1 << 14  # from here on the counts of a length are halved, so that they follow the policy
REST = 32
FIRST = 8  # reads of a response, and as many tokens gained, that are counted before there were any
PRIOR = (2.0, 3.0)  # right and tried, before anything was tried


@dataclass(frozen=True)
class Cost:
    """What a pass costs, in units of one more token in it."""

    fixed: float
    row: float  # its cache is read, and the host works on it
    place: float  # of one token in the widest row, for every row: attention is computed with padding

    def of(self, rows: int, width: int, tokens: Array) -> Numbers:
        return self.fixed + self.row * rows + self.place * rows * width + tokens

    def looking(self, rows: int) -> float:
        """What drafting costs in a pass, whether anything is drafted or not."""
        return 0.3 * self.fixed + 0.06 * self.row * rows

    def parts(self, widths: Sequence[int]) -> list[list[int]]:
        """Which pieces of these many tokens to read together: each pass costs, and so does padding to its widest."""
        order = sorted(range(len(widths)), key=lambda i: -widths[i])
        ends = [i for i in range(1, len(order)) if widths[order[i]] < widths[order[i - 1]]] + [len(order)]
        best: dict[int, tuple[float, int]] = {0: (0.0, 0)}  # of the widest so many: what they cost, the last pass from
        for end in ends:
            best[end] = min(
                (cost + self.fixed + self.place * (end - begin) * widths[order[begin]], begin)
                for begin, (cost, _) in best.items()
            )
        parts, end = list[list[int]](), len(order)
        whole = self.fixed + self.place * end * widths[order[0]]
        if whole <= best[end][0] + self.row / 2 * end:  # some of the rows have to be gathered, all of them need not
            return [list(range(end))]
        while end:
            begin = best[end][1]
            parts.append(sorted(order[begin:end]))
            end = begin
        return parts


COSTS = {"cpu": Cost(fixed=40, row=3.5, place=0.4)}
"""By kind of device; there are no drafts where it is not known. Measured with bench/drafts.py --costs."""


@dataclass(frozen=True)
class Draft:
    """Guesses for some rows: those of row r are the first length_R[r] of tokens_RK[r]."""

    tokens_RK: Array
    length_R: Array
    match_R: Array  # tokens before it that were found; 0: nothing was

    def cut(self, most_R: Array) -> Draft:
        return Draft(self.tokens_RK, np.minimum(self.length_R, most_R), self.match_R)


class Memory:
    """What was said last, and where each run of up to `REACH` tokens stood last in it."""

    def __init__(self, room: int = ROOM) -> None:
        try:
            self._said = np.full(room, GAP, dtype=np.int32)
            self._index = np.full((REACH, SLOTS), -1, dtype=np.int64)  # of a token: the place behind the run
        except MemoryError as error:
            megabytes = (4 * room + 8 * REACH * SLOTS) / 1e6
            raise EngineError(
                f"no memory for the table of drafts ({megabytes:.0f} MB): set engine.drafts = 0"
            ) from error
        self._room, self._end = room, 0  # tokens ever told

    def tell(self, responses: Sequence[Said]) -> None:
        """Remember these: the tokens before each response, of which the last few count, and its own."""
        self._append(said_before(responses))

    def _append(self, tokens: NDArray[np.int32]) -> None:
        tokens = tokens[-self._room :]
        places = np.arange(self._end, self._end + len(tokens))
        self._said[places % self._room] = tokens
        self._end += len(tokens)
        self._note(tokens, self._end - len(tokens), 0)

    def _note(self, tokens: NDArray[np.int32], start: int, first: int) -> None:
        """Write the places from `first` on into the index; `tokens` stand from `start` on."""
        known = tokens != GAP
        whole = known.copy()
        key = np.zeros(len(tokens), dtype=np.uint64)
        for n in range(1, REACH + 1):
            before = np.concatenate([np.full(min(n, len(tokens)), GAP, dtype=np.int32), tokens[:-n]])
            whole &= before != GAP
            key = _longer(key, before)
            at = whole.nonzero()[0]
            at = at[at >= first]
            self._index[n - 1, _slot(key[at])] = start + at  # of equal ones the last stays

    def look_up(self, ends_RN: Array, longest: int) -> Draft:
        """Up to `longest` tokens for each row, from the `REACH` tokens that it ends with, its last one first; where it
        has fewer there is a `GAP`."""
        place_NR, match_NR = self._matches(ends_RN)
        best = np.argmax(match_NR * (self._end + 1) + place_NR + 1, axis=0)  # the latest of the longest
        rows = np.arange(len(ends_RN))
        place_R, match_R = place_NR[best, rows], match_NR[best, rows]
        after_RK = place_R[:, None] + np.arange(longest)
        tokens_RK = self._said[after_RK % self._room].astype(np.int64)
        there_RK = (tokens_RK != GAP) & (after_RK < self._end)
        length_R = np.where(match_R > 0, _leading(there_RK), 0)
        return Draft(tokens_RK, length_R, match_R)

    def _matches(self, ends_RN: Array) -> tuple[Array, Array]:
        """By length of a run: the place behind where it stood last, and how many tokens before that are a row's."""
        key = np.zeros(len(ends_RN), dtype=np.uint64)
        places: list[Array] = []
        for n in range(REACH):
            key = _longer(key, ends_RN[:, n])
            places.append(self._index[n, _slot(key)])
        place_NR = np.stack(places)
        before_NRN = place_NR[:, :, None] - np.arange(1, REACH + 1)
        same = (self._said[before_NRN % self._room] == ends_RN) & (ends_RN != GAP)
        match_NR = _leading(same)
        kept = place_NR > self._oldest
        return np.where(kept, place_NR, -1), np.where(kept, match_NR, 0)

    @property
    def _oldest(self) -> int:
        """What stands before it or here has lost some of the tokens before it."""
        return max(-1, self._end - self._room + REACH)

    @property
    def told(self) -> bool:
        """Whether there is anything to remember."""
        return self._end > 0

    def state_dict(self) -> dict[str, Any]:
        held = min(self._end, self._room)
        places = np.arange(self._end - held, self._end) % self._room
        return {"end": self._end, "said": torch.from_numpy(self._said[places])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        said: NDArray[np.int32] = state["said"].numpy()
        end = int(state["end"])
        if said.dtype != np.int32 or said.shape != (min(end, self._room),):
            raise ValueError(f"{said.size} tokens were remembered, expected {min(end, self._room)}")
        self._end = end
        self._index.fill(-1)
        self._said.fill(GAP)
        start = end - len(said)
        self._said[np.arange(start, end) % self._room] = said
        self._note(said, start, max(0, self._oldest + 1 - start))


def said_before(responses: Sequence[Said]) -> NDArray[np.int32]:
    """The end of each prompt and its response, one behind the other, with a gap before each."""
    parts = [part for prompt, ids in responses for part in ([GAP, *prompt[-REACH:]], ids)]
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts]) if parts else np.empty(0, np.int32)


def _leading(true: NDArray[np.bool_]) -> Array:
    """How many in front are true, along the last axis."""
    return np.asarray(np.cumprod(true, axis=-1).sum(axis=-1), dtype=np.int64)


def _longer(key: NDArray[np.uint64], token: NDArray[Any]) -> NDArray[np.uint64]:
    return (key + token.astype(np.uint64) + np.uint64(1)) * _FACTOR


def _slot(key: NDArray[np.uint64]) -> NDArray[np.intp]:
    return ((key ^ (key >> np.uint64(31))) * _MIX >> _SHIFT).astype(np.intp)


class Counts:
    """How often what was drafted was right, up to `longest` tokens ahead."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        # by tokens matched: drafted tokens that were compared with a draw, and those that were right
        self.tried, self.right = np.zeros((2, REACH + 1), dtype=np.int64)
        self.reads, self.gained, self.rested = 0, 0, 0
        self.drafted = self.accepted = 0

    def chances(self) -> Numbers:
        """[tokens matched, place in the draft]: how often this token and those before it are right, as counted so far.
        A token that is right makes the match longer."""
        rate_M = (self.right + PRIOR[0]) / (self.tried + PRIOR[1])
        grown = np.minimum(np.arange(REACH + 1)[:, None] + np.arange(self.longest), REACH)
        return np.cumprod(rate_M[grown], axis=1)

    def fade(self) -> None:
        """The policy has changed: what was counted before counts half."""
        self.tried //= 2
        self.right //= 2
        self.reads //= 2
        self.gained //= 2

    def notes(self) -> dict[str, float]:
        """Since it was asked last."""
        told = {"drafted": float(self.drafted), "accepted": float(self.accepted)}
        self.drafted = self.accepted = 0
        return told

    def state_dict(self) -> dict[str, Any]:
        counts = {"tried": self.tried.tolist(), "right": self.right.tolist()}
        return counts | {"reads": self.reads, "gained": self.gained, "rested": self.rested}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        counts = np.array([state["tried"], state["right"]], dtype=np.int64)
        if counts.shape != (2, REACH + 1) or (counts < 0).any() or (counts[1] > counts[0]).any():
            raise ValueError(f"the counts of drafts are {counts.tolist()!r:.80}")
        gain = [int(state[name]) for name in ("reads", "gained", "rested")]
        self.tried, self.right = counts
        self.reads, self.gained, self.rested = gain


class Drafts(Counts):
    """Drafts responses, up to `longest` tokens ahead, on a kind of device."""

    def __init__(self, longest: int, device: str) -> None:
        super().__init__(longest)
        self.cost, self.memory = COSTS[device], Memory()

    def begin(self, rows: int) -> bool:
        """Whether to draft the next responses: not before anything was said, nor if what was gained lately is less than
        drafting costs. Then it is tried again once in `REST` times."""
        if not self.memory.told:
            return False
        gain = (self.gained + FIRST) / (self.reads + FIRST)
        worth = gain * float(self.cost.of(rows, 1, np.array(rows))) > self.cost.looking(rows)
        self.rested = 0 if worth else (self.rested + 1) % REST
        return self.rested == 0

    def draft(self, ends: Sequence[Sequence[int]], most: Sequence[int]) -> list[list[int]]:
        """For each row the guesses that are worth a place in the next pass. `ends`: the last tokens of each, `most`:
        how many of it may be drafted."""
        ends_RN = np.full((len(ends), REACH), GAP, dtype=np.int64)
        for row, end in enumerate(ends):
            ends_RN[row, : len(end)] = end[::-1]
        found = self.memory.look_up(ends_RN, self.longest).cut(np.array(most))
        self._match_R = found.match_R
        self.reads += len(ends)
        if self.reads >= MOST_COUNTED:
            self.reads, self.gained = self.reads // 2, self.gained // 2
        length_R = self.lengths(found.match_R, found.length_R).tolist()
        return [tokens[:length] for tokens, length in zip(found.tokens_RK.tolist(), length_R, strict=True)]

    def lengths(self, match_R: Array, length_R: Array) -> Array:
        """How many of its tokens each row should draft in the next pass: the likeliest of all rows', as many as give
        most tokens for their cost."""
        rows = len(match_R)
        chance_RK = np.where(np.arange(self.longest) < length_R[:, None], self.chances()[match_R], 0.0)
        best, lengths_R = rows / float(self.cost.of(rows, 1, np.array(rows))), np.zeros(rows, dtype=np.int64)
        for width in (width for width in WIDTHS if width < 2 * self.longest):
            within_RK = chance_RK[:, :width]
            likeliest = np.sort(within_RK, axis=None)[::-1]
            count = np.arange(1, len(likeliest) + 1)
            worth = (rows + likeliest.cumsum()) / self.cost.of(rows, 1 + width, rows + count)
            most = int(np.argmax(worth))
            if worth[most] > best and likeliest[most] > 0:
                best, lengths_R = float(worth[most]), (within_RK >= likeliest[most]).sum(axis=1)
        return lengths_R

    def judged(self, row: int, guess: Sequence[int], drawn: Sequence[int]) -> None:
        """What was drafted for a row, and what was drawn: up to the first that differs, or that ended the response."""
        self.drafted += len(guess)
        match = int(self._match_R[row])
        for i, (guessed, token) in enumerate(zip(guess, drawn, strict=False)):
            at, right = min(match + i, REACH), guessed == token
            self.tried[at] += 1
            self.right[at] += right
            self.accepted += right
            self.gained += right
            if self.tried[at] >= MOST_COUNTED:
                self.tried[at], self.right[at] = self.tried[at] // 2, self.right[at] // 2

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory.state_dict(), **super().state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"])
