"""Builds the search index in bounded memory.

While products stream by, the term counts of each are spooled to files. Then the columns of the score matrix are made,
as many at a time as fit into a block, each block by one pass over the spool. What stays in memory is the vocabulary, a
number per product and one block.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from isentrope.tasks.webshop.search import K1, B
from isentrope.tasks.webshop.words import terms

BLOCK = 4_000_000  # scores made at a time
_PARTS = {"terms": "i", "documents": "i", "counts": "H"}
_MOST = 65_535  # of one term in one document: what a count can hold


def rounded_length(length: int) -> int:
    """A document's length as Lucene remembers it, in one byte: exact below 40, then to four binary digits."""
    rest = length - 24
    shift = max(0, rest.bit_length() - 4) if rest > 0 else 0
    return 24 + (rest >> shift << shift) if rest > 0 else length


class IndexBuilder:
    """`add` each document, then `finish`. Needs an existing folder of its own."""

    def __init__(self, folder: Path, block: int = BLOCK) -> None:
        self._folder, self._block = folder, block
        self.vocabulary: dict[str, int] = {}
        self._containing = array("q")  # documents that contain a term
        self._lengths = array("i")
        self._total = 0
        self._spool: dict[str, IO[bytes]] = {name: (folder / f"{name}.spool").open("wb") for name in _PARTS}

    def add(self, document: str) -> None:
        found = terms(document)
        counts = Counter(found)
        numbers = array("i", (self._number(term) for term in counts))
        for number in numbers:
            self._containing[number] += 1
        numbers.tofile(self._spool["terms"])
        array("i", [len(self._lengths)] * len(numbers)).tofile(self._spool["documents"])
        array("H", (min(count, _MOST) for count in counts.values())).tofile(self._spool["counts"])
        self._lengths.append(rounded_length(len(found)))
        self._total += len(found)

    def _number(self, term: str) -> int:
        number = self.vocabulary.setdefault(term, len(self.vocabulary))
        if number == len(self._containing):
            self._containing.append(0)
        return number

    def finish(self, progress: Callable[[float], None] = lambda share: None) -> None:
        """Write the arrays of the bm25s index and remove the spool."""
        for file in self._spool.values():
            file.close()
        containing = np.frombuffer(self._containing, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(containing)]).astype(np.int64)
        np.save(self._folder / "indptr.csc.index.npy", starts)
        about = {"method": "lucene", "k1": K1, "b": B, "num_docs": len(self._lengths)}
        (self._folder / "params.index.json").write_text(json.dumps(about), encoding="utf-8")
        scores, documents = self._folder / "data.csc.index.npy", self._folder / "indices.csc.index.npy"
        with scores.open("wb") as score_file, documents.open("wb") as document_file:
            _header(score_file, "<f4", int(starts[-1]))
            _header(document_file, "<i4", int(starts[-1]))
            for first, last in _blocks(starts, self._block):
                chosen, numbers, counts = self._select(first, last)
                values = self._scores(chosen, numbers, counts, containing)
                score_file.write(values.astype("<f4").tobytes())
                document_file.write(numbers.astype("<i4").tobytes())
                progress(float(starts[last]) / max(1.0, float(starts[-1])))
        for name in _PARTS:
            (self._folder / f"{name}.spool").unlink()

    def _scores(
        self, chosen: np.ndarray, numbers: np.ndarray, counts: np.ndarray, containing: np.ndarray
    ) -> np.ndarray:
        """Inverse document frequency times saturated count, for each entry."""
        many = len(self._lengths)
        within = containing[chosen].astype(np.float64)
        rarity = np.log1p((many - within + 0.5) / (within + 0.5))
        lengths = np.frombuffer(self._lengths, dtype=np.int32)[numbers].astype(np.float64)
        average = self._total / many if self._total else 1.0
        return rarity * counts / (counts + K1 * (1 - B + B * lengths / average))

    def _select(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The spooled entries of the terms from `first` up to `last`, by term and then by document."""
        parts: list[list[np.ndarray]] = [[], [], []]
        for entries in self._entries():
            wanted = (entries[0] >= first) & (entries[0] < last)
            for part, values in zip(parts, entries, strict=True):
                part.append(values[wanted])
        chosen, numbers, counts = (np.concatenate(part) if part else np.zeros(0, np.int32) for part in parts)
        order = np.argsort(chosen, kind="stable")
        return chosen[order], numbers[order], counts[order].astype(np.float64)

    def _entries(self) -> Iterator[list[np.ndarray]]:
        files = {name: (self._folder / f"{name}.spool").open("rb") for name in _PARTS}
        try:
            while True:
                read = [np.fromfile(files[name], dtype=code, count=self._block) for name, code in _PARTS.items()]
                if not len(read[0]):
                    return
                yield read
        finally:
            for file in files.values():
                file.close()


def _blocks(starts: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of terms with at most `size` entries each, or a single term that has more."""
    first, count = 0, len(starts) - 1
    while first < count:
        last = int(np.searchsorted(starts, int(starts[first]) + size, side="right")) - 1
        last = min(max(last, first + 1), count)
        yield first, last
        first = last


def _header(file: IO[bytes], kind: str, length: int) -> None:
    """The head of a .npy file, so that its numbers can be written one block after another."""
    head = {"descr": kind, "fortran_order": False, "shape": (length,)}
    cast(Any, np.lib.format).write_array_header_1_0(file, head)
