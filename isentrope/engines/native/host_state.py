"""The native engine's host state: cache pages, and the responses under way, one row of arrays for each.

Tokens come in for all rows at once and are written down by array operations; only a token that could end a response is
looked at by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from isentrope.core.engine import TAIL_BYTES, Request, Sampled
from isentrope.core.tokenizer import ChatTokenizer

_Name = tuple[int, tuple[int, ...]]  # the page before (-1: none), and a page's tokens


@dataclass
class Held:
    """What a conversation has in the cache."""

    tokens: list[int] = field(default_factory=list[int])  # whose keys and values are there
    pages: list[int] = field(default_factory=list[int])


class Pages:
    """Which pages of the cache belong to which conversation.

    A page holds the keys and values of a fixed number of tokens. Full pages of a prompt are known by all tokens up to
    their end, so a prompt that begins like another shares its pages: within a group, and with the same instructions
    across groups. A shared page is full and never written again.
    """

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._free = list(range(count - 1, -1, -1))
        self._users = [0] * count
        self._known: dict[_Name, int] = {}
        self._names: dict[int, _Name] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def share(self, prompt: Sequence[int]) -> list[int]:
        """Pages that already hold the beginning of this prompt, counted as used once more. Its last token is never
        among them: someone has to compute what follows it."""
        found: list[int] = []
        before = -1
        for i in range((len(prompt) - 1) // self.size):
            page = self._known.get((before, self._tokens(prompt, i)))
            if page is None:
                break
            found.append(page)
            before = page
        for page in found:
            self._users[page] += 1
        return found

    def take(self, count: int) -> list[int] | None:
        """So many new pages, or None if there are not enough."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._users[page] = 1
        return pages

    def know(self, prompt: Sequence[int], pages: Sequence[int], first: int) -> None:
        """From now on, the full pages of this prompt may be shared; those before `first` are known already."""
        before = pages[first - 1] if first else -1
        for i in range(first, len(prompt) // self.size):
            page, name = pages[i], (before, self._tokens(prompt, i))
            if name in self._known:  # another conversation's: what follows must not hang on its page
                break
            self._known[name] = page
            self._names[page] = name
            before = page

    def give(self, pages: Sequence[int]) -> None:
        """No longer used by one conversation."""
        for page in pages:
            self._users[page] -= 1
            if self._users[page] == 0:
                self._free.append(page)
                name = self._names.pop(page, None)
                if name is not None:
                    del self._known[name]

    def _tokens(self, prompt: Sequence[int], page: int) -> tuple[int, ...]:
        return tuple(prompt[page * self.size : (page + 1) * self.size])


ASKS, ENDS = 1, 2  # after such a word the stop rule is asked; such a word ends a response by itself


class Vocabulary:
    """The bytes of every word, and which words could end a response."""

    def __init__(self, tokenizer: ChatTokenizer, words: int) -> None:
        known = min(words, tokenizer.size)
        self.pieces = tokenizer.pieces(range(known)) + [b""] * (words - known)
        self._eos = [word for word in tokenizer.eos_ids if word < words]
        self._rules: dict[tuple[bytes, ...], int] = {}
        self.endings = np.zeros((0, words), dtype=np.uint8)  # by stop rule: ASKS or ENDS for words that could, else 0

    def ending(self, closings: tuple[bytes, ...]) -> int:
        """The row of `endings` for a stop rule that holds only behind one of these; if there are none, anywhere."""
        if closings not in self._rules:
            self._rules[closings] = len(self.endings)
            asks = np.array([_could_close(piece, closings) for piece in self.pieces], dtype=np.uint8)
            asks[self._eos] = ENDS
            self.endings = np.stack([*self.endings, asks])
        return self._rules[closings]


def _could_close(piece: bytes, closings: tuple[bytes, ...]) -> bool:
    """Whether a response may end with one of these once it ends with this word, white space behind it aside."""
    end = piece.rstrip()
    if not closings:
        return True
    return bool(end) and any(end.endswith(closing) or closing.endswith(end) for closing in closings)


class HostState:
    def __init__(self, rows: int, length: int, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.requests: dict[int, Request] = {}  # by row
        self.slots: set[int] = set()  # of these requests
        self.ruled: set[int] = set()  # rows whose temperatures follow a rule
        self._sorted: NDArray[np.int64] | None = None
        self.ending = np.zeros(rows, dtype=np.int64)  # which of the vocabulary's endings
        self.count = np.zeros(rows, dtype=np.int64)
        self.limit = np.zeros(rows, dtype=np.int64)
        self.prompt = np.zeros(rows, dtype=np.int64)  # tokens before the response; 0 where there is none
        self.serial = np.zeros(rows, dtype=np.int64)  # changes when a row is left, so that what comes late is known
        self.warmth = np.ones(rows, dtype=np.float32)  # temperature of the token that is drawn next; 0: the likeliest
        self.drawn = np.zeros((rows, 3, length), dtype=np.float32)  # tokens, log-probs, entropies
        self.temperatures = np.zeros((rows, length), dtype=np.float32)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Those in which a response is being written, ascending."""
        if self._sorted is None:
            self._sorted = np.array(sorted(self.requests), dtype=np.int64)
        return self._sorted

    @property
    def longest(self) -> int:
        """Most tokens of any prompt and what was written behind it."""
        return int((self.prompt + self.count).max())

    @property
    def total(self) -> int:
        """Tokens of all prompts and what was written behind them."""
        return int((self.prompt + self.count).sum())

    @property
    def room(self) -> int:
        """Tokens that every response that is being written may still have."""
        rows = self.rows
        return int((self.limit[rows] - self.count[rows]).min())

    def begin(self, row: int, request: Request) -> None:
        self._sorted = None
        if request.temperature_of is not None:
            self.ruled.add(row)
        self.requests[row], self.ending[row] = request, self.vocabulary.ending(request.closings)
        self.slots.add(request.slot)
        self.limit[row], self.prompt[row] = len(request.uniforms), len(request.prompt)
        self.warmth[row] = request.temperature
        self.temperatures[row] = request.temperature

    def add(self, rows: NDArray[np.int64], values: NDArray[np.float32]) -> dict[int, str]:
        """One token more in each of these rows; gives the rows that are complete, and why."""
        drawn, at = values.T[rows], self.count[rows]
        self.drawn[rows, :, at] = drawn
        for row in self.ruled.intersection(rows.tolist()) if self.ruled else ():
            self.temperatures[row, self.count[row]] = self.warmth[row]
        at += 1
        self.count[rows] = at
        ending = self.vocabulary.endings[self.ending[rows], drawn[:, 0].astype(np.int64)]
        full = at == self.limit[rows]
        maybe = (ending | full).nonzero()[0].tolist()
        found: dict[int, str] = {}
        for i in maybe:
            row = int(rows[i])
            stop = self._stop(row, int(ending[i]), int(at[i])) or ("length" if full[i] else "")
            if stop:
                found[row] = stop
        return found

    def add_runs(
        self, rows: NDArray[np.int64], first: NDArray[np.int32], taken: NDArray[np.int32], values: NDArray[np.float32]
    ) -> tuple[dict[int, str], NDArray[np.int64]]:
        """In each of these rows the next tokens, `taken` of them from place `first` of the values on; gives the rows
        that are complete, and why, and how many tokens of each row belong to its response."""
        ends = taken.cumsum()
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - taken, taken)
        row_N = np.repeat(rows, taken)
        drawn, at_N = values[:, np.repeat(first, taken) + within].T, np.repeat(self.count[rows], taken) + within
        self.drawn[row_N, :, at_N] = drawn
        self.count[rows] += taken
        ending = self.vocabulary.endings[self.ending[row_N], drawn[:, 0].astype(np.int64)]
        full = at_N + 1 == self.limit[row_N]
        found: dict[int, str] = {}
        kept = taken.astype(np.int64)
        maybe: list[int] = (ending | full).nonzero()[0].tolist()
        for i in maybe:
            row, count = int(row_N[i]), int(at_N[i]) + 1
            if row in found:
                continue  # drawn after it had ended
            stop = self._stop(row, int(ending[i]), count) or ("length" if full[i] else "")
            if stop:
                found[row] = stop
                self.count[row] = count
                kept[int(np.searchsorted(ends, i, side="right"))] = within[i] + 1
        return found, kept

    def _stop(self, row: int, ending: int, count: int) -> str:
        if ending == ENDS:
            return "eos"
        if ending != ASKS:
            return ""
        pieces = self.vocabulary.pieces
        last: list[int] = self.drawn[row, 0, max(0, count - TAIL_BYTES) : count].astype(np.int32).tolist()
        tail = b"".join([pieces[word] for word in last])
        return "tag" if self.requests[row].stop(tail[-TAIL_BYTES:]) else ""

    def _words(self, row: int) -> list[int]:
        return self.drawn[row, 0, : self.count[row]].astype(np.int32).tolist()

    def end(self, row: int, stop: str) -> Sampled:
        count = int(self.count[row])
        self.slots.discard(self.requests.pop(row).slot)
        self._sorted = None
        self.ruled.discard(row)
        self.serial[row] += 1
        self.count[row] = self.prompt[row] = 0
        words, logprobs, entropies = self.drawn[row, :, :count].copy()
        return Sampled(words.astype(np.int32), logprobs, entropies, self.temperatures[row, :count].copy(), stop)

    def next_temperature(self, row: int, entropy: float) -> float:
        """By the rule of the request in this row."""
        rule = self.requests[row].temperature_of
        assert rule is not None
        return rule(self._words(row), entropy)
