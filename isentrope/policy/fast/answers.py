"""The responses under way, on the host: one row of arrays for each, and how one ends.

Tokens come in for all rows at once and are written down by array operations; only a token that could end a response is
looked at by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.agent.tokens import Dialect
from isentrope.policy.engine import TAIL_BYTES, Request, Sampled


class Vocabulary:
    """The bytes of every word, and which words could end a response."""

    endings: NDArray[np.bool_]  # by mark: words that hold it

    def __init__(self, dialect: Dialect, words: int) -> None:
        known = min(words, dialect.size)
        self.pieces = dialect.pieces(range(known)) + [b""] * (words - known)
        self.eos = np.zeros(words, dtype=bool)
        self.eos[[word for word in dialect.eos_ids if word < words]] = True
        self._marks: list[bytes] = []
        self.endings = np.zeros((0, words), dtype=bool)

    def ending(self, mark: bytes) -> int:
        """The number of this mark in `endings`. Every word holds the empty one."""
        if mark not in self._marks:
            self._marks.append(mark)
            self.endings = np.stack([*self.endings, np.array([mark in piece for piece in self.pieces])])
        return self._marks.index(mark)


class Answers:
    def __init__(self, rows: int, length: int, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.requests: dict[int, Request] = {}  # by row
        self.ruled: set[int] = set()  # rows whose temperatures follow a rule
        self._sorted: NDArray[np.int64] | None = None
        self.mark = np.zeros(rows, dtype=np.int64)  # which of the vocabulary's endings
        self.count = np.zeros(rows, dtype=np.int64)
        self.limit = np.zeros(rows, dtype=np.int64)
        self.prompt = np.zeros(rows, dtype=np.int64)  # tokens before the response
        self.serial = np.zeros(rows, dtype=np.int64)  # changes when a row is left, so that what comes late is known
        self.warmth = np.ones(rows, dtype=np.float32)  # temperature of the token that is drawn next; 0: the likeliest
        self.ids = np.zeros((rows, length), dtype=np.int32)
        self.numbers = np.zeros((3, rows, length), dtype=np.float32)  # log-probs, entropies, temperatures

    @property
    def rows(self) -> NDArray[np.int64]:
        """Those in which a response is being written, ascending."""
        if self._sorted is None:
            self._sorted = np.array(sorted(self.requests), dtype=np.int64)
        return self._sorted

    def begin(self, row: int, request: Request) -> None:
        self._sorted = None
        if request.temperature_of is not None:
            self.ruled.add(row)
        self.requests[row], self.mark[row] = request, self.vocabulary.ending(request.end_mark)
        self.count[row], self.limit[row], self.prompt[row] = 0, len(request.uniforms), len(request.prompt)
        self.warmth[row] = request.temperature

    def add(self, rows: NDArray[np.int64], values: NDArray[np.float32]) -> dict[int, str]:
        """One token more in each of these rows; gives the rows that are complete, and why."""
        tokens, at = values[0, rows].astype(np.int64), self.count[rows]
        self.ids[rows, at] = tokens
        self.numbers[0, rows, at] = values[1, rows]
        self.numbers[1, rows, at] = values[2, rows]
        self.numbers[2, rows, at] = np.where(self.warmth[rows] > 0, self.warmth[rows], 1.0)
        self.count[rows] += 1
        full = self.count[rows] == self.limit[rows]
        maybe = full | self.vocabulary.eos[tokens] | self.vocabulary.endings[self.mark[rows], tokens]
        found = {
            int(row): self._stop(int(row), int(token)) for row, token in zip(rows[maybe], tokens[maybe], strict=True)
        }
        return {row: stop for row, stop in found.items() if stop}

    def _stop(self, row: int, token: int) -> str:
        if self.vocabulary.eos[token]:
            return "eos"
        if not self.vocabulary.endings[self.mark[row], token]:
            return "length"
        written: list[int] = self.ids[row, : self.count[row]][-TAIL_BYTES:].tolist()
        tail = b"".join(self.vocabulary.pieces[word] for word in written)[-TAIL_BYTES:]
        if self.requests[row].stop(tail):
            return "tag"
        return "length" if self.count[row] == self.limit[row] else ""

    def end(self, row: int, stop: str) -> Sampled:
        count = self.count[row]
        del self.requests[row]
        self._sorted = None
        self.ruled.discard(row)
        self.serial[row] += 1
        logprobs, entropies, temperatures = self.numbers[:, row, :count].copy()
        return Sampled(self.ids[row, :count].copy(), logprobs, entropies, temperatures, stop)

    def next_temperature(self, row: int, entropy: float) -> float:
        """By the rule of the request in this row."""
        rule = self.requests[row].temperature_of
        assert rule is not None
        return rule(self.ids[row, : self.count[row]].tolist(), entropy)
