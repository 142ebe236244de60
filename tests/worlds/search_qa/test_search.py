"""BM25 against its formula, and the index on disk: built once, complete or absent, renewed when the file changes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.search_qa import retrievers as bm25
from isentrope.worlds.search_qa.passages import Passage
from isentrope.worlds.search_qa.retrievers import Index, Words, best, open_corpus, over

pytest.importorskip("bm25s", reason="needs pip install -e .[search]")

TEXTS = [
    ("Tarn", "Tarn lies on the river Elb. Boats go to Tarn."),
    ("Elb", "The Elb is a river."),
    ("Boat", "A boat floats on a river, and rivers carry boats."),
    ("Hill", "Nothing but grass."),
]
PASSAGES = [Passage(str(i), title, text) for i, (title, text) in enumerate(TEXTS)]


def naive(query: str) -> list[tuple[str, float]]:
    """BM25 as Lucene computes it, k1 = 1.5 and b = 0.75, one passage and one word at a time."""
    words = Words()
    documents = [words(f"{passage.title} {passage.text}") for passage in PASSAGES]
    mean = sum(map(len, documents)) / len(documents)
    scores: list[tuple[str, float]] = []
    for passage, document in zip(PASSAGES, documents, strict=True):
        total = 0.0
        for word in words(query):
            frequency = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - frequency + 0.5) / (frequency + 0.5))
            count = document.count(word)
            total += idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean))
        scores.append((passage.title, total))
    return sorted([pair for pair in scores if pair[1] > 0], key=lambda pair: -pair[1])


@pytest.mark.parametrize(
    "query", ["river", "boats on the river", "Tarn Elb", "grass grass", "TARN!", "the", "", "zebra", "river zebra"]
)
def test_scores_are_the_formula(query: str) -> None:
    found = [(hit.passage.title, hit.score) for hit in over(PASSAGES, "bm25").search([query], 10)[0]]
    expected = naive(query)
    assert [title for title, _ in found] == [title for title, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-5)


def test_words_are_stems_without_common_words() -> None:
    assert Words()("The rivers and the RUNNING of Łódź in 1984!") == ["river", "run", "łódź", "1984"]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0])), st.integers(1, 8))
def test_the_best_in_order(scores: list[float], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert best(np.array(scores, dtype=np.float32), k) == expected


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_query_is_answered(query: str) -> None:
    hits = over_all().search([query], 2)[0]
    assert len(hits) <= 2
    assert all(hit.score > 0 for hit in hits)


@cache
def over_all() -> Index:
    return over(PASSAGES, "bm25")


def test_threads_get_the_same_answers() -> None:
    queries = ["river", "boat", "grass", "tarn"] * 50
    index = over_all()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda query: index.search([query], 3)[0], queries))
    assert found == index.search(queries, 3)


def test_nothing_to_search() -> None:
    with pytest.raises(TaskError, match="nothing to search"):
        over([Passage("0", "", "the and of")], "bm25")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text(
        "".join(json.dumps({"id": p.id, "contents": p.contents}) + "\n" for p in PASSAGES), encoding="utf-8"
    )
    return path


def indexes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_an_index_on_disk_answers_like_one_in_memory(corpus: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    for _ in range(2):  # built, then found
        index = open_corpus(corpus, "bm25", folder)
        assert len(index) == len(PASSAGES)
        for query in ("river", "boats on the river", "zebra"):
            assert index.search([query], 3) == over_all().search([query], 3)


def test_the_index_is_built_once_and_again_when_the_file_changes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    real = bm25.build
    monkeypatch.setattr(bm25, "build", lambda passages: built.append(1) or real(passages))
    folder = tmp_path / "cache"
    for _ in range(3):
        open_corpus(corpus, "bm25", str(folder))
    assert len(built) == 1
    first = indexes(folder)
    with corpus.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "9", "title": "New", "text": "zebra"}) + "\n")
    assert open_corpus(corpus, "bm25", str(folder)).search(["zebra"], 3)[0][0].passage.title == "New"
    assert len(built) == 2
    assert len(indexes(folder)) == 2
    assert set(first) < set(indexes(folder))
    os.utime(corpus, ns=(1, 1))  # the same size, another time
    open_corpus(corpus, "bm25", str(folder))
    assert len(built) == 3


def test_a_build_that_fails_leaves_nothing(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with corpus.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    with pytest.raises(TaskError, match=r"corpus\.jsonl, line 5"):
        open_corpus(corpus, "bm25", str(folder))
    assert indexes(folder) == []


def test_a_build_that_is_killed_leaves_no_index(corpus: Path, tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from isentrope.worlds.search_qa import retrievers as bm25\n"
        "from isentrope.worlds.search_qa.retrievers import open_corpus\n"
        "bm25.build = lambda passages: os.kill(os.getpid(), 9)\n"
        "open_corpus(Path(sys.argv[1]), 'bm25', sys.argv[2])\n"
    )
    folder = tmp_path / "cache"
    assert subprocess.run([sys.executable, "-c", code, str(corpus), str(folder)], check=False).returncode == -9
    assert all(name.startswith(".") for name in indexes(folder))
    assert open_corpus(corpus, "bm25", str(folder)).search(["river"], 1)[0]
    assert not any(name.startswith(".") for name in indexes(folder)), "what the dead build left is cleared away"


def test_three_processes_build_it_once(corpus: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from isentrope.worlds.search_qa import retrievers as bm25\n"
        "from isentrope.worlds.search_qa.retrievers import open_corpus\n"
        "real = bm25.build\n"
        "bm25.build = lambda passages: (print('built'), time.sleep(0.5), real(passages))[2]\n"
        "open_corpus(Path(sys.argv[1]), 'bm25', sys.argv[2]).search(['river'], 1)\n"
    )
    command = [sys.executable, "-c", code, str(corpus), str(tmp_path / "cache")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(process.communicate(timeout=60)[0].strip() for process in running) == ["", "", "built"]
    assert [process.returncode for process in running] == [0, 0, 0]


def test_a_damaged_index_says_what_to_do(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    open_corpus(corpus, "bm25", str(folder))
    (folder / indexes(folder)[0] / "params.index.json").write_text("{", encoding="utf-8")
    with pytest.raises(TaskError, match="delete that folder"):
        open_corpus(corpus, "bm25", str(folder))


def test_where_the_cache_cannot_be(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(TaskError, match="choose another folder with the option cache"):
        open_corpus(corpus, "bm25", str(tmp_path / "file" / "cache"))
    with pytest.raises(TaskError, match="no such file"):
        open_corpus(tmp_path / "none.jsonl", "bm25", str(tmp_path))


def test_the_cache_follows_the_environment(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path / "own"))
    open_corpus(corpus, "bm25")
    assert len(indexes(tmp_path / "own" / "search")) == 1
    monkeypatch.setenv("HOME", str(tmp_path))
    open_corpus(corpus, "bm25", "~/x")
    assert len(indexes(tmp_path / "x")) == 1
