"""Searches a corpus, by words (BM25) or by meaning (sentence embeddings), or asks a server that does.

retriever = open_corpus(Path("corpus.jsonl"), "bm25")     # builds the index, or finds it in the cache
retriever.search(["who founded Corvane Mills"], k=3)      # a list of hits for each query
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.net.client import Client, TooLarge, TooLate, Unreachable
from isentrope.runs.atomic import flush_folder
from isentrope.worlds.files import built, cache_folder, progress
from isentrope.worlds.search_qa import minilm
from isentrope.worlds.search_qa.passages import Hit, Passage, PassageFile, read_corpus, read_passage, write_passages

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

    @staticmethod
    def load(folder: Path) -> Any:
        """An index that `save` wrote. Its arrays stay on the disk and are shared by all who use them."""
        return require("bm25s", "search", _BM25_WHAT).BM25.load(folder, mmap=True, show_progress=False)

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


# sentence embeddings of all-MiniLM-L6-v2, compared exactly

_EMBEDDING = Lock()


def embed(texts: Sequence[str], device: str = "cpu") -> Any:
    """Texts to unit vectors."""
    how: dict[str, Any] = {"batch_size": 64, "normalize_embeddings": True, "show_progress_bar": False}
    with _EMBEDDING:
        return np.asarray(minilm.load().encode(list(texts), device=device, **how), dtype=np.float32)


def embedded(passages: Iterable[Passage]) -> Any:
    """The passages' vectors, made on a GPU if there is one; queries are embedded on the CPU."""
    device = "cuda" if require("torch", "dense", minilm.WHAT).cuda.is_available() else "cpu"
    rest, vectors = iter(passages), list[Any]()
    while batch := list(islice(rest, 256)):
        vectors.append(embed([f"{passage.title}\n{passage.text}" for passage in batch], device))
    if not vectors:
        raise TaskError("there is nothing to search: the corpus holds no passage")
    return np.concatenate(vectors)


class Dense:
    made_with = "dense all-MiniLM-L6-v2, 1"

    def __init__(self, vectors: Any, passages: Sequence[Passage] | Any) -> None:
        self._vectors, self._passages = vectors, passages
        with _EMBEDDING:
            minilm.load()  # loaded now, so that the first search is quick

    @staticmethod
    def load(folder: Path) -> Any:
        return np.load(folder / "vectors.npy", mmap_mode="r")

    @staticmethod
    def save(folder: Path, passages: Iterable[Passage]) -> None:
        np.save(folder / "vectors.npy", embedded(passages))

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        if not queries:
            return []
        scores = embed(queries) @ np.asarray(self._vectors).T
        return [[Hit(self._passages[i], float(row[i])) for i in best(row, k)] for row in scores]


_MAX_ANSWER = 16 * 2**20
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class Remote:
    """Searches on a server that speaks Search-R1's protocol: `isentrope retrieve`, or one of theirs.

    POST /retrieve   {"queries": ["..."], "topk": 3, "return_scores": true}
    answer           {"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\nText"}, "score": 11.2}, ...]]}
    """

    def __init__(self, url: str, timeout: float = 20.0, retries: int = 3) -> None:
        self._url = _address(url)
        self._timeout, self._retries = timeout, retries
        self._client = Client(self._url, _MAX_ANSWER, dict.fromkeys(("Content-Type", "Accept"), "application/json"))

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        body = json.dumps({"queries": list(queries), "topk": k, "return_scores": True}).encode()
        answer = self._ask(body)
        result = cast("Mapping[str, Any]", answer).get("result") if isinstance(answer, Mapping) else None
        results = _items(result, self._url)
        if len(results) != len(queries):
            raise TaskError(f"{self._url} gave {len(results)} results for {len(queries)} queries")
        return [
            [_hit(item, number, self._url) for number, item in enumerate(_items(row, self._url)[:k])] for row in results
        ]

    def _ask(self, body: bytes) -> Any:
        """All attempts together have the time limit: afterwards nobody waits for the answer."""
        problem, end = "", time.monotonic() + self._timeout
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(max(0.0, min(0.25 * 2 ** (attempt - 1), 8.0, end - time.monotonic())))
            left = end - time.monotonic()
            if left <= 0:
                break
            try:
                answer = self._client.ask("", body, left)
            except TooLarge as error:
                raise TaskError(f"{self._url} answered with {error}") from None
            except TooLate:
                problem = "timed out"
            except Unreachable as error:
                problem = str(error.reason) or str(error)
            else:
                if answer.success:
                    try:
                        return json.loads(answer.body)
                    except (ValueError, RecursionError):
                        known = "is it a server of Search-R1's protocol?"
                        raise TaskError(f"{self._url} did not answer in JSON; {known}") from None
                problem = f"it answered {answer.status}: {answer.body[:300].decode('utf-8', 'replace')}"
                if answer.status not in _AGAIN:
                    break
        raise TaskError(
            f"no search at {self._url}: {problem or 'timed out'}. Is the server running? `isentrope retrieve CORPUS` "
            "starts one; option retriever has its address"
        )


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine, parts = False, urlsplit("")
    if not fine or parts.username or parts.password or parts.query or parts.fragment:
        raise TaskError(f"retriever = {url[:100]!r}: expected bm25, dense, or an address like http://127.0.0.1:8000")
    base = url.rstrip("/")
    return base if base.endswith("/retrieve") else f"{base}/retrieve"


def _items(value: Any, url: str) -> list[Any]:
    if not isinstance(value, list):
        raise TaskError(f'{url} did not answer {{"result": [[...], ...]}}; is it a server of Search-R1\'s protocol?')
    return cast("list[Any]", value)


def _hit(item: Any, number: int, url: str) -> Hit:
    """A hit with its score, or a bare document, as servers give them that know no scores."""
    table: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else dict[str, Any]()
    document, score = table.get("document", table), table.get("score", 0.0)
    if not isinstance(document, Mapping):
        raise TaskError(f"{url}: a document is a {type(document).__name__}, not a JSON object")
    known = isinstance(score, int | float) and math.isfinite(score)
    return Hit(read_passage(cast("Mapping[str, Any]", document), number, url), float(score) if known else 0.0)


_MAKERS = {"bm25": BM25, "dense": Dense}
KINDS = tuple(_MAKERS)
Index = BM25 | Dense  # a retriever of this process, which knows how many passages it has
Retriever = Index | Remote  # finds at most k hits for each query, the best first; several threads may ask it


def over(passages: Sequence[Passage], kind: str) -> Index:
    """A retriever over passages in memory."""
    return BM25(build(passages), passages) if kind == "bm25" else Dense(embedded(passages), passages)


def open_corpus(corpus: Path, kind: str, cache: str = "") -> Index:
    """A retriever over a corpus file. Its index is built on the first call and then kept on disk."""
    folder = index_of(corpus, kind, cache)
    try:
        return _MAKERS[kind](_MAKERS[kind].load(folder), PassageFile(folder))
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
