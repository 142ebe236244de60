"""What answers a search: an index of this process, or a server.

retriever = open_corpus(Path("corpus.jsonl"), "bm25")     # builds the index, or finds it in the cache
retriever.search(["who founded Corvane Mills"], k=3)      # a list of hits for each query
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from isentrope.errors import TaskError
from isentrope.tasks.search_qa import bm25, dense, store
from isentrope.tasks.search_qa.cache import built, cache_folder, key_of
from isentrope.tasks.search_qa.passages import Hit, Passage, read_corpus

KINDS = ("bm25", "dense")
_MAKERS = {"bm25": (bm25.BM25, bm25.MADE_WITH), "dense": (dense.Dense, dense.MADE_WITH)}


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
        return _MAKERS[kind][0].load(folder, store.PassageFile(folder))
    except (OSError, ValueError, KeyError) as error:
        raise TaskError(f"the index {folder} cannot be read ({error}); delete that folder, it is built anew") from error


def index_of(corpus: Path, kind: str, cache: str = "") -> Path:
    """The folder of the corpus file's index, which is built if it is not there."""
    if not corpus.is_file():
        raise TaskError(f"corpus = {str(corpus)!r}: no such file; expected passages as .jsonl or .json (.zst, .gz)")
    maker, made_with = _MAKERS[kind]

    def build(folder: Path) -> None:
        maker.save(folder, store.write(folder, _counted(read_corpus(corpus), corpus)))

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
