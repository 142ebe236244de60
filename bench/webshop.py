"""Speed of the webshop: steps a second, search against rank_bm25 in the same run, and the memory of a large catalogue.

    python bench/webshop.py [--goals 500] [--products 120000]

rank_bm25 (pip install rank_bm25) searches the same documents, cut into the same terms. The catalogue is built from
files in the official layout with that many invented products, in a process of its own whose peak memory is printed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isentrope.worlds.webshop.catalogue import open_official
from isentrope.worlds.webshop.products import Product
from isentrope.worlds.webshop.reward import noun_share
from isentrope.worlds.webshop.search import terms
from isentrope.worlds.webshop.sources import SHELVES, generated_products, write_official
from isentrope.worlds.webshop.world import WebShopWorld

MIB = 1024 * 1024
BAR = 5  # times rank_bm25
MEMORY_BAR = 600  # MiB above the start, however many products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goals", type=int, default=500)
    parser.add_argument("--products", type=int, default=120_000)
    arguments = parser.parse_args()
    play(arguments.goals)
    fine = compare_search(arguments.goals)
    if arguments.products:
        with tempfile.TemporaryDirectory() as folder:
            fine = large_catalogue(Path(folder), arguments.products) and fine
    if not fine:
        raise SystemExit(1)


def play(goals: int) -> None:
    """The expert's visits: all pages, searches and purchases."""
    world = WebShopWorld()
    noun_share("a first call", "imports the tagger")
    task, expert = world.open(), world.expert(0)
    steps = solved = 0
    spent = 0.0
    for index in range(goals):
        instance = world.instance("test", index % 500)
        view = task.start(instance)
        expert.start(view, instance)
        for _ in range(15):
            action = expert.act(view).action
            begin = time.perf_counter()
            step = task.step(action)
            spent += time.perf_counter() - begin
            steps, view = steps + 1, step.view
            if step.terminated:
                solved += step.success
                break
    print(
        f"webshop            {steps / spent:12,.0f} steps/s in generated games; the expert solved {solved / goals:.1%}"
    )


def compare_search(goals: int) -> bool:
    world = WebShopWorld()
    queries = [world.goal(world.instance("test", index % 500)).text for index in range(goals)]
    world.catalogue.search("a first call opens the files", 50)
    begin = time.perf_counter()
    for query in queries:
        world.catalogue.search(query, 50)
    ours = (time.perf_counter() - begin) / goals * 1000
    print(f"search             {ours:12.3f} ms a query, {len(world.catalogue)} products")
    try:
        from rank_bm25 import BM25Okapi
    except ImportError:
        print("rank_bm25          not installed: pip install rank_bm25")
        return True
    documents = [world.catalogue.product(position).document() for position in range(len(world.catalogue))]
    peer = BM25Okapi([terms(document) for document in documents], k1=0.9, b=0.4)
    begin = time.perf_counter()
    for query in queries:
        scores = peer.get_scores(terms(query))
        sorted(range(len(scores)), key=lambda position: -scores[position])[:50]
    theirs = (time.perf_counter() - begin) / goals * 1000
    ratio = theirs / ours
    print(f"rank_bm25          {theirs:12.3f} ms a query")
    print(f"ratio              {ratio:12.1f} (bar {BAR}: {'met' if ratio >= BAR else 'MISSED'})")
    return ratio >= BAR


def large_catalogue(folder: Path, count: int) -> bool:
    begin = time.perf_counter()
    items, _ = write_official(folder, many_products(count))
    size = items.stat().st_size / MIB
    print(f"official layout    {count:12,} products, {size:,.0f} MiB, written in {time.perf_counter() - begin:.0f} s")
    os.environ["ISENTROPE_CACHE"] = str(folder / "cache")
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=build_and_measure, args=(str(items), sender))
    process.start()
    sender.close()
    start, peak, seconds, search, goals = receiver.recv()
    process.join()
    stored = sum(file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file()) / MIB
    print(f"index built in     {seconds:12.0f} s, {goals:,} goals, {stored:,.0f} MiB on the disk")
    print(f"peak memory        {peak:12.0f} MiB, {peak - start:.0f} above the start (bar {MEMORY_BAR})")
    print(f"search             {search:12.2f} ms a query")
    return peak - start <= MEMORY_BAR


def build_and_measure(items: str, sender: object) -> None:
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin = time.perf_counter()
    catalogue = open_official(items)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queries = [catalogue.goal(number).text for number in range(200)]
    begin = time.perf_counter()
    for query in queries:
        catalogue.search(query, 50)
    search = (time.perf_counter() - begin) / len(queries) * 1000
    sender.send((start, peak, seconds, search, catalogue.goals))  # type: ignore[attr-defined]


def many_products(count: int) -> Iterator[Product]:
    """Invented products with longer descriptions: words of a large vocabulary, some of them common, most rare."""
    draw = random.Random(0)
    made = generated_products(-(-count // len(SHELVES)))
    for _, product in zip(range(count), made, strict=False):
        extra = " ".join(f"w{int(draw.paretovariate(0.6)) % 400_000:x}" for _ in range(80))
        yield replace(product, description=f"{product.description} {extra}")


if __name__ == "__main__":
    main()
