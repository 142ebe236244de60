"""Search by meaning, with the real model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isentrope.worlds.search_qa.passages import Passage
from isentrope.worlds.search_qa.retrievers import Index, open_corpus, over
from isentrope.worlds.search_qa.world import NEEDS

pytestmark = pytest.mark.skipif(bool(NEEDS["dense"].missing()), reason="needs pip install -e .[dense]")

PASSAGES = [
    Passage("0", "Canines", "Dogs and wolves bark and howl at night."),
    Passage("1", "Bread", "Flour, water, salt and yeast are kneaded and baked."),
    Passage("2", "Astronomy", "Planets circle the sun on ellipses."),
]


@pytest.fixture(scope="module")
def index() -> Index:
    return over(PASSAGES, "dense")


def test_it_finds_what_shares_no_word(index: Index) -> None:
    queries = ["a puppy makes noise", "how to make a loaf in an oven", "orbit of Mars"]
    assert [hits[0].passage.title for hits in index.search(queries, 1)] == ["Canines", "Bread", "Astronomy"]
    assert index.search([], 3) == []
    assert [len(hits) for hits in index.search(["x", ""], 10)] == [3, 3]
    scores = [hit.score for hit in index.search(["orbit of Mars"], 3)[0]]
    assert scores == sorted(scores, reverse=True)
    assert all(-1.001 <= score <= 1.001 for score in scores)


def test_on_disk_it_is_the_same(index: Index, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        "".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in PASSAGES), encoding="utf-8"
    )
    kept = open_corpus(corpus, "dense", str(tmp_path / "cache"))
    for query in ("wolf", "sun"):
        ours, theirs = kept.search([query], 3)[0], index.search([query], 3)[0]
        assert [hit.passage for hit in ours] == [hit.passage for hit in theirs]
        assert np.allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-5)
