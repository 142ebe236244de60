"""BM25 search over the products, with Lucene's scores and Lucene's order.

The index is a bm25s index (three arrays: a column of scores per term), so it can be read from the disk as it is
needed. It is written by `index.py`, which keeps little in memory however many products there are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.tasks.needs import require
from isentrope.tasks.webshop.words import terms

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
        found = [self._lookup(term) for term in terms(query[:LONGEST_QUERY])]
        known = [number for number in found if number is not None]
        if not known:
            return []
        scores: np.ndarray = self._bm25.get_scores_from_ids(known)
        candidates = np.flatnonzero(scores > 0)
        if len(candidates) > count:
            limit = np.partition(scores[candidates], -count)[-count]
            candidates = candidates[scores[candidates] >= limit]
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:count]
        return [int(position) for position in best]
