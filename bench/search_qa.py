"""The search of search_qa: what it finds, and how fast, against rank_bm25 in the same run.

    python bench/search_qa.py [--data FOLDER] [--passages 20000] [--queries 200] [--dense]

With --data, a folder with a corpus and questions that name their supporting passages, the recall at 3 and at 10
passages is printed for each data set. Without it passages and questions are generated. The peer gets the same words;
`pip install rank-bm25`. The bar is 10 times its speed.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isentrope.worlds.search_qa import generated
from isentrope.worlds.search_qa.passages import Passage, read_corpus
from isentrope.worlds.search_qa.questions import find_corpus
from isentrope.worlds.search_qa.retrievers import Index, Remote, Words, open_corpus, over
from isentrope.worlds.search_qa.server import open_server
from isentrope.worlds.search_qa.world import SearchQAOptions, SearchQAWorld, recall

BAR = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder with a corpus and questions; empty: generated ones")
    parser.add_argument("--passages", type=int, default=20_000, help="generated passages")
    parser.add_argument("--queries", type=int, default=200, help="queries that are timed")
    parser.add_argument(
        "--dense", action="store_true", help="the dense retriever's recall too; embedding takes minutes"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        options = {"data": arguments.data, "cache": cache} if arguments.data else {"passages": arguments.passages}
        world = SearchQAWorld(SearchQAOptions(**options))
        passages, index = prepare(arguments, cache)
        instances = [world.instance("test", i) for i in range(min(arguments.queries, world.size("test")))]
        queries = [world.question(instance).text for instance in instances]
        print_recall(world, "bm25")
        if arguments.dense:
            print_recall(SearchQAWorld(SearchQAOptions(**options, retriever="dense")), "dense")
        ours = timed(lambda query: index.search([query], 3), queries)
        print(f"search in this process      {ours * 1e3:10.2f} ms a query")
        print(f"search over HTTP            {over_http(index, queries) * 1e3:10.2f} ms a query")
        compare(passages, queries, ours)


def prepare(arguments: argparse.Namespace, cache: str) -> tuple[list[Passage], Index]:
    began = time.perf_counter()
    if arguments.data:
        corpus = find_corpus(Path(arguments.data))
        assert corpus is not None, f"no single corpus file in {arguments.data}"
        index, passages = open_corpus(corpus, "bm25", cache), list(read_corpus(corpus))
    else:
        passages = list(generated.library(arguments.passages).passages)
        began = time.perf_counter()
        index = over(passages, "bm25")
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"index of {len(passages):9,} passages {seconds:10.2f} s, peak memory {peak:,.0f} MiB")
    if arguments.data:
        seconds = clock(lambda: open_corpus(corpus, "bm25", cache))  # pyright: ignore[reportPossiblyUnbound]
        print(f"the same from the cache     {seconds:10.2f} s")
    return passages, index


def print_recall(world: SearchQAWorld, name: str) -> None:
    for kind, row in recall(world, "test", (3, 10), most=1000).items():
        shares = " / ".join(f"{share:.3f}" for share in row.shares.values())
        print(f"recall@3 / @10, {name:5} {shares:>16}   {kind}, {row.questions} questions")


def over_http(index: Index, queries: list[str]) -> float:
    with open_server("127.0.0.1", 0, index, {}, 3) as server, server.background():
        client = Remote(server.address)
        seconds = timed(lambda query: client.search([query], 3), queries)
    return seconds


def compare(passages: list[Passage], queries: list[str], ours: float) -> None:
    try:
        from rank_bm25 import BM25Okapi
    except ImportError:
        print("rank_bm25                   not installed: pip install rank-bm25")
        return
    words = Words()
    documents = [words(f"{passage.title} {passage.text}") for passage in passages]
    peer: Any = None

    def build() -> None:
        nonlocal peer
        peer = BM25Okapi(documents)

    print(f"rank_bm25, index            {clock(build):10.2f} s, the words given")
    numbers = list(range(len(passages)))
    theirs = timed(lambda query: peer.get_top_n(words(query), numbers, 3), queries[: max(10, len(queries) // 10)])
    ratio = theirs / ours
    print(f"rank_bm25                   {theirs * 1e3:10.2f} ms a query")
    print(f"ratio                       {ratio:10,.0f} (bar {BAR}: {'met' if ratio >= BAR else 'MISSED'})")
    if ratio < BAR:
        raise SystemExit(1)


def timed(search: Callable[[str], object], queries: list[str]) -> float:
    search(queries[0])
    return clock(lambda: [search(query) for query in queries]) / len(queries)


def clock(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
