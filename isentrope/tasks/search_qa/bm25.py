"""Search by words: BM25 on `bm25s`, English stems, common words left out."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from isentrope.errors import TaskError
from isentrope.tasks.needs import require
from isentrope.tasks.search_qa.passages import Hit, Passage

MADE_WITH = "bm25 lucene k1=1.5 b=0.75 english stems, 1"  # part of an index's name: change it with what stands below
_WORD = re.compile(r"\b\w\w+\b")
_WHAT = "the BM25 search of search_qa"


class Words:
    """Text to stems. Each word is stemmed once; the stemmer itself is not made for several threads."""

    def __init__(self) -> None:
        self._stemmer: Any = require("Stemmer", "search", _WHAT).Stemmer("english")
        self._common = frozenset(require("bm25s.stopwords", "search", _WHAT).STOPWORDS_EN)
        self._lock = Lock()

    def __call__(self, text: str) -> list[str]:
        words = [word for word in _WORD.findall(text.lower()) if word not in self._common]
        with self._lock:
            return self._stemmer.stemWords(words)


def build(passages: Iterable[Passage]) -> Any:
    """The index of the passages, title and text alike."""
    bm25s = require("bm25s", "search", _WHAT)
    words, numbers, rows = Words(), dict[str, int](), list[Any]()
    for passage in passages:
        stems = words(f"{passage.title} {passage.text}")
        rows.append(array("i", [numbers.setdefault(stem, len(numbers)) for stem in stems]))
    if not numbers:
        raise TaskError("there is nothing to search: no passage holds a word")
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index((rows, numbers), show_progress=False)
    return index


class BM25:
    """The best passages for a query, and their scores. May be asked by several threads at once."""

    def __init__(self, index: Any, passages: Sequence[Passage] | Any) -> None:
        self._index, self._passages = index, passages
        self._words = Words()

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> BM25:
        return cls(build(passages), passages)

    @classmethod
    def load(cls, folder: Path, passages: Any) -> BM25:
        """An index that `save` wrote. Its arrays stay on the disk and are shared by all who use them."""
        bm25s = require("bm25s", "search", _WHAT)
        return cls(bm25s.BM25.load(folder, mmap=True, show_progress=False), passages)

    @staticmethod
    def save(folder: Path, passages: Iterable[Passage]) -> None:
        build(passages).save(folder, show_progress=False)

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [self._search(query, k) for query in queries]

    def _search(self, query: str, k: int) -> list[Hit]:
        numbers = self._index.get_tokens_ids(self._words(query))
        if not numbers:
            return []
        scores = self._index.get_scores_from_ids(numbers)
        found = np.flatnonzero(scores > 0)
        return [Hit(self._passages[int(found[i])], float(scores[found[i]])) for i in best(scores[found], k)]


def best(scores: Any, k: int) -> list[int]:
    """The places of the k largest scores, in order; of equal ones the first."""
    places = np.arange(len(scores))
    if k < len(scores):
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= bound)
    return places[np.argsort(-scores[places], kind="stable")][:k].tolist()
