"""Search terms against what the real Lucene made of the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.worlds.webshop.search import LONGEST, STOP_WORDS, stem, terms, words

RECORDED = Path(__file__).with_name("lucene_terms.tsv").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", RECORDED, ids=range(len(RECORDED)))
def test_the_same_terms_as_lucene(line: str) -> None:
    text, _, expected = line.partition("\t")
    assert " ".join(terms(text)) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("technology", "technolog"),  # two rules that Porter added after his article
        ("possibly", "possibl"),
        ("incredibly", "incred"),
        ("us", "us"),  # too short to stem
        ("caresses", "caress"),
        ("hopefulness", "hope"),
        ("18", "18"),
    ],
)
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_stop_words_and_long_words() -> None:
    assert len(STOP_WORDS) == 33
    assert terms("The AND of") == []
    assert [len(word) for word in words("x" * (2 * LONGEST + 3))] == [LONGEST, LONGEST, 3]


@given(st.text(max_size=60))
def test_any_text_has_terms_without_blanks(text: str) -> None:
    found = terms(text)
    assert all(found)
    assert not any(char.isspace() for term in found for char in term)
    assert terms(text + " shirt")[-1] == "shirt"
