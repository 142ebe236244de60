"""The index and the search, against scores worked out naively, bm25s's own index, and Lucene's rankings."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.worlds.webshop.catalogue import Ranking, compare, open_generated, read_rankings
from isentrope.worlds.webshop.search import K1, B, IndexBuilder, Search, _blocks, rounded_length, terms

WORDS = ["red", "blue", "shirt", "shoe", "cotton", "lamp", "desk", "oak"]


def built(folder: Path, documents: list[str], block: int = 1000) -> Search:
    builder = IndexBuilder(folder, block)
    for document in documents:
        builder.add(document)
    builder.finish()
    return Search(folder, builder.vocabulary.get)


def naive(documents: list[str], query: str, count: int) -> list[int]:
    """BM25 by the book, one document at a time."""
    cut = [terms(document) for document in documents]
    average = sum(map(len, cut)) / len(cut)
    scores: list[float] = []
    for words in cut:
        score = 0.0
        for term in terms(query):
            containing = sum(term in other for other in cut)
            many = Counter(words)[term]
            norm = K1 * (1 - B + B * rounded_length(len(words)) / average)
            score += math.log(1 + (len(cut) - containing + 0.5) / (containing + 0.5)) * many / (many + norm)
        scores.append(float(np.float32(score)))
    ranked = sorted(range(len(cut)), key=lambda position: (-round(scores[position], 5), position))
    return [position for position in ranked if scores[position] > 0][:count]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join), min_size=1, max_size=12).filter(any),
    st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=4).map(" ".join),
    st.integers(1, 40),
)
def test_as_worked_out_by_hand(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], query: str, block: int
) -> None:
    search = built(tmp_path_factory.mktemp("index"), documents, block)
    assert search(query, 5) == naive(documents, query, 5)


def test_short_documents_score_as_bm25s_scores_them(tmp_path: Path) -> None:
    """Lucene remembers lengths below 40 exactly, so there the two agree to the last digit."""
    documents = ["red cotton shirt", "red red shoe", "desk lamp oak desk lamp", "blue shirt"]
    built(tmp_path, documents)
    ours = bm25s.BM25.load(tmp_path, load_vocab=False)
    theirs = bm25s.BM25(method="lucene", k1=K1, b=B)
    theirs.index([terms(document) for document in documents], show_progress=False)
    columns = {term: number for number, term in enumerate(dict.fromkeys(terms(" ".join(documents))))}
    for word, column in columns.items():
        assert np.allclose(ours.get_scores_from_ids([column]), theirs.get_scores([word]), rtol=1e-6)


@pytest.mark.parametrize(
    ("length", "remembered"),
    [(0, 0), (23, 23), (24, 24), (39, 39), (40, 40), (41, 40), (56, 56), (59, 56), (1000, 984)],
)
def test_lengths_are_rounded_as_lucene_rounds_them(length: int, remembered: int) -> None:
    assert rounded_length(length) == remembered


def test_equally_good_products_stay_in_order(tmp_path: Path) -> None:
    search = built(tmp_path, ["red shirt"] * 30 + ["red red shirt"])
    assert search("red", 4) == [30, 0, 1, 2]
    assert search("red " * 500, 2) == [30, 0]


@pytest.mark.parametrize("query", ["", "the of", "unheardof", "!!!", "\x00\udcff"])
def test_queries_that_find_nothing(tmp_path: Path, query: str) -> None:
    assert built(tmp_path, ["red shirt"])(query, 10) == []


def test_the_spool_is_gone_and_small_blocks_change_nothing(tmp_path: Path) -> None:
    documents = [" ".join(WORDS[i % 8 :] + WORDS[: i % 3]) for i in range(50)]
    for name, block in (("small", 3), ("large", 10_000)):
        (tmp_path / name).mkdir()
        built(tmp_path / name, documents, block)
    names = sorted(file.name for file in (tmp_path / "small").iterdir())
    assert not any(name.endswith(".spool") for name in names)
    for name in names:
        assert (tmp_path / "small" / name).read_bytes() == (tmp_path / "large" / name).read_bytes()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 12))
def test_blocks_are_no_larger_than_they_may_be(counts: list[int], size: int) -> None:
    starts = np.concatenate([[0], np.cumsum(counts)])
    blocks = list(_blocks(starts, size))
    assert [term for first, last in blocks for term in range(first, last)] == list(range(len(counts)))
    assert all(sum(counts[first:last]) <= size or last == first + 1 for first, last in blocks)


def test_the_rankings_of_the_real_lucene() -> None:
    """Recorded over the generated shop by bench/lucene_rankings.py."""
    rankings = read_rankings(Path(__file__).with_name("lucene_rankings.tsv"))
    assert len(rankings) == 60
    for found in compare(open_generated(), rankings):
        assert found.ours == found.recorded, found.query


@pytest.mark.parametrize(("recorded", "overlap"), [(1, 1.0), (5, 1.0), (10, 1.0), (14, 1.0), (0, 0.0)])
def test_as_many_are_compared_as_were_recorded(recorded: int, overlap: float) -> None:
    shop, query = open_generated(), "running shoes"
    top = tuple(shop.product(position).asin for position in shop.search(query, recorded)) if recorded else ()
    assert len(top) == recorded
    (found,) = compare(shop, [(query, top)])
    assert (found.overlap, found.same_first) == (overlap, recorded > 0)
    (other,) = compare(shop, [(query, ("X", *top[1:]))]) if recorded > 1 else (found,)
    assert other.same_first == (recorded == 1)


def test_overlap_is_a_share_of_the_longer_ranking() -> None:
    assert Ranking("q", ("A", "B"), ("B",)).overlap == Ranking("q", ("B",), ("A", "B")).overlap == 0.5
    assert Ranking("q", (), ()).overlap == 1.0
    assert Ranking("q", (), ()).same_first
    assert not Ranking("q", ("A",), ()).same_first
