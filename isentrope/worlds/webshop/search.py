"""BM25 search over the products, with Lucene's scores and Lucene's order; builds its index in bounded memory.

Terms are made as Lucene's English analyzer makes them. Word breaks follow Unicode's annex 29, which is what its
StandardTokenizer implements; then possessive 's goes, words are lower-cased, 33 stop words are left out and the rest is
stemmed by Porter's algorithm. The index is a bm25s index (three arrays: a column of scores per term), so it can be read
from the disk as it is needed.

To build it: while products stream by, the term counts of each are spooled to a file. Then the columns of the score
matrix are made, as many at a time as fit into a block, each block by one pass over the spool. What stays in memory is
the vocabulary, a number per product and one block.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from isentrope.core.needs import require
from isentrope.worlds.search_qa.retrievers import best

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
LONGEST = 255  # characters; Lucene cuts longer words into pieces of this length

# Word_Break classes of annex 29. A class may be followed by marks and joiners, which belong to the character before.
_MARKS = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*"
_LETTER = rf"(?:[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_MARKS})"
_DIGIT = rf"(?:[\p{{WB=Numeric}}\uFF10-\uFF19]{_MARKS})"
_JOIN = rf"(?:\p{{WB=ExtendNumLet}}{_MARKS})"
_KATAKANA = rf"(?:\p{{WB=Katakana}}{_MARKS})"
_IN_WORD = rf"(?:[:\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_MARKS})"
_IN_NUMBER = rf"(?:[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_MARKS})"
# Symbols and emoji are words too. Unicode no longer counts those in the ranges as pictures; Lucene still does.
_PICTURE = r"[\p{ExtPict}\u2388\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2765-\u2767]"
_LETTERS = rf"{_LETTER}+(?:{_IN_WORD}{_LETTER}+)*"
_DIGITS = rf"{_DIGIT}+(?:{_IN_NUMBER}{_DIGIT}+)*"
_PIECE = rf"(?:{_LETTERS}|{_DIGITS})"
_WORD = (
    rf"{_JOIN}*(?:(?:{_PIECE})+|{_KATAKANA}+)(?:{_JOIN}+(?:(?:{_PIECE})+|{_KATAKANA}+))*{_JOIN}*"
    rf"|[\p{{Script=Han}}\p{{Script=Hiragana}}]{_MARKS}"
    rf"|\p{{LB=Complex_Context}}+"
    r"|\p{RI}{2}"
    rf"|{_PICTURE}(?:{_MARKS}\u200D{_PICTURE})*{_MARKS}"
)
# A vowel with a consonant after it: what must come before an ending for Porter to take it off.
_MEASURE = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)(?:[^aeiouy]|(?<=[aeiou])y)")


@cache
def _pattern() -> Any:
    return require("regex", "webshop", "the search of the webshop").compile(_WORD)


@cache
def _porter() -> Callable[[str], str]:
    stemmer = require("Stemmer", "webshop", "the search of the webshop").Stemmer("porter", 0)
    return stemmer.stemWord


def words(text: str) -> list[str]:
    """The words of a text, cut as Lucene cuts them, case as it stands."""
    found: list[str] = _pattern().findall(text)
    if max(map(len, found), default=0) > LONGEST:
        return [word[i : i + LONGEST] for word in found for i in range(0, len(word), LONGEST)]
    return found


def terms(text: str) -> list[str]:
    """The search terms of a text, in order."""
    return [term for word in words(text) if (term := _term(word))]


@lru_cache(maxsize=200_000)
def _term(word: str) -> str:
    """A word's term; empty for a stop word."""
    if word[-2:] in ("'s", "'S", "’s", "’S", "＇s", "＇S"):
        word = word[:-2]
    word = word.lower()
    return "" if word in STOP_WORDS else stem(word)


def stem(word: str) -> str:
    """Porter's stem. Lucene has the two rules that he added to his program later, -bli to -ble and -logi to -log, and
    leaves words of one or two letters alone."""
    if len(word) <= 2:
        return word
    found = _porter()(word)
    if found.endswith("logi") and _MEASURE.search(found[:-4]):
        return found[:-1]
    if found.endswith("bli") and _MEASURE.search(found[:-3]):
        return _porter()(found[:-1] + "e")
    return found


K1, B = 0.9, 0.4
LONGEST_QUERY = 1000  # characters looked at

Lookup = Callable[[str], int | None]  # term -> its number


class Search:
    """Finds products by words."""

    def __init__(self, folder: Path, lookup: Lookup, mmap: bool = True) -> None:
        bm25s: Any = require("bm25s", "webshop", "the search of the webshop")
        self._bm25 = bm25s.BM25.load(folder, mmap=mmap, load_vocab=False, auto_compile=False)
        self._lookup = lookup

    def __call__(self, query: str, count: int) -> list[int]:
        """Positions of the best products, best first; of equally good ones the one that stands first in the file."""
        numbers = map(self._lookup, terms(query[:LONGEST_QUERY]))
        known = [number for number in numbers if number is not None]
        if not known:
            return []
        scores: np.ndarray = self._bm25.get_scores_from_ids(known)
        found = np.flatnonzero(scores > 0)
        return found[best(scores[found], count)].tolist()


BLOCK = 4_000_000  # scores made at a time
_MOST = 65_535  # of one term in one document: what a count can hold
_ENTRY = np.dtype([("term", "i4"), ("document", "i4"), ("count", "u2")])  # of the spool


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
        self._lengths, self._total = array("i"), 0
        self._spool = folder / "entries.spool"
        self._file = self._spool.open("wb")

    def add(self, document: str) -> None:
        found = terms(document)
        counts = Counter(found)
        entries = np.empty(len(counts), _ENTRY)
        entries["term"] = [self.vocabulary.setdefault(term, len(self.vocabulary)) for term in counts]
        entries["document"] = len(self._lengths)
        entries["count"] = [min(count, _MOST) for count in counts.values()]
        self._file.write(entries.tobytes())
        self._lengths.append(rounded_length(len(found)))
        self._total += len(found)

    def finish(self, progress: Callable[[float], None] = lambda share: None) -> None:
        """Write the arrays of the bm25s index and remove the spool."""
        self._file.close()
        containing = np.zeros(len(self.vocabulary), np.int64)  # documents that contain a term
        for entries in self._entries():
            containing += np.bincount(entries["term"], minlength=len(containing))
        starts = np.concatenate([[0], np.cumsum(containing)]).astype(np.int64)
        np.save(self._folder / "indptr.csc.index.npy", starts)
        about = {"method": "lucene", "k1": K1, "b": B, "num_docs": len(self._lengths)}
        (self._folder / "params.index.json").write_text(json.dumps(about), encoding="utf-8")
        scores, documents = self._folder / "data.csc.index.npy", self._folder / "indices.csc.index.npy"
        with scores.open("wb") as score_file, documents.open("wb") as document_file:
            _header(score_file, "<f4", int(starts[-1]))
            _header(document_file, "<i4", int(starts[-1]))
            for first, last in _blocks(starts, self._block):
                entries = self._select(first, last)
                score_file.write(self._scores(entries, containing).astype("<f4").tobytes())
                document_file.write(entries["document"].astype("<i4").tobytes())
                progress(float(starts[last]) / max(1.0, float(starts[-1])))
        self._spool.unlink()

    def _scores(self, entries: np.ndarray, containing: np.ndarray) -> np.ndarray:
        """Inverse document frequency times saturated count, for each entry."""
        many, counts = len(self._lengths), entries["count"].astype(np.float64)
        within = containing[entries["term"]].astype(np.float64)
        rarity = np.log1p((many - within + 0.5) / (within + 0.5))
        lengths = np.frombuffer(self._lengths, dtype=np.int32)[entries["document"]].astype(np.float64)
        average = self._total / many if self._total else 1.0
        return rarity * counts / (counts + K1 * (1 - B + B * lengths / average))

    def _select(self, first: int, last: int) -> np.ndarray:
        """The spooled entries of the terms from `first` up to `last`, by term and then by document."""
        every = (entries[(entries["term"] >= first) & (entries["term"] < last)] for entries in self._entries())
        chosen = np.concatenate(list(every))
        return chosen[np.argsort(chosen["term"], kind="stable")]

    def _entries(self) -> Iterator[np.ndarray]:
        """What was spooled, a block at a time."""
        with self._spool.open("rb") as file:
            while len(entries := np.fromfile(file, dtype=_ENTRY, count=self._block)):
                yield entries


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
