"""Exact match and F1: worked out by hand, against a plain second writing of the rules, and for any text at all."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.worlds.search_qa.task import best_exact_match, best_f1, exact_match, f1, normalise

WORDS = st.lists(st.sampled_from(["a", "the", "an", "red", "Fox", "fox!", "1984", "U.S.", "-", "yes", "no"])).map(
    " ".join
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Beatles!", "beatles"),
        ("an apple, a day", "apple day"),
        ("Theatre another than", "theatre another than"),  # articles are words, not beginnings
        ("U.S.A.", "usa"),
        ("rock'n'roll", "rocknroll"),
        ("A-ha", "aha"),  # the hyphen goes first
        ("  \t\n ", ""),
        ("the", ""),
        ("Łódź", "łódź"),
        ("Café", "café"),
        ("Cafe\u0301", "café"),  # e and an accent of its own
        ("Ａ", "ａ"),  # full width: not the article
        ("20 June 1837", "20 june 1837"),
        ("non\u00a0breaking", "non breaking"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("answer", "golden", "match", "score"),
    [
        ("Rush", "rush.", True, 1.0),
        ("the band Rush", "Rush", False, 2 / 3),  # 1 shared of 2 and 1: 2 * 1 / 3
        ("James Madison", "Madison", False, 2 / 3),
        ("red red fox", "red fox fox", False, 2 / 3),  # red once, fox once: 2 * 2 / 6
        ("red red red", "red", False, 0.5),  # once only: 2 * 1 / 4
        ("Paris", "London", False, 0.0),
        ("yes", "no", False, 0.0),
        ("yes he did", "yes", False, 0.0),  # yes and no are right or wrong as a whole
        ("noanswer", "no answer", False, 0.0),
        ("", "Rush", False, 0.0),
        ("?!", "Rush", False, 0.0),
        ("The The", "the the", True, 1.0),  # nothing is left after normalisation: as it stands
        ("a", "The The", False, 0.0),
        ("", "The The", False, 0.0),
        ("", "", False, 0.0),
        ("naive", "naïve", False, 0.0),
    ],
)
def test_by_hand(answer: str, golden: str, match: bool, score: float) -> None:
    assert exact_match(answer, golden) is match
    assert f1(answer, golden) == pytest.approx(score)


def test_the_best_of_several_golden_answers_counts() -> None:
    golden = ["20 June 1837", "June 1837", "1837"]
    assert best_exact_match("1837!", golden)
    assert not best_exact_match("May 1837", golden)
    assert best_f1("May 1837", golden) == pytest.approx(2 / 3)  # against 1837 as against June 1837: 2/3 and 1/2
    assert best_f1("x", []) == 0.0
    assert not best_exact_match("x", [])


def plain_normalise(text: str) -> str:
    """The rules once more, letter by letter, for ASCII."""
    kept = "".join(char.lower() for char in text if char not in string.punctuation)
    return " ".join(word for word in re.split(r"\s+", kept) if word not in ("a", "an", "the", ""))


def plain_f1(answer: str, golden: str) -> float:
    left, right = plain_normalise(answer).split(), plain_normalise(golden).split()
    if left == right:
        return 1.0
    if " ".join(left) in ("yes", "no") or " ".join(right) in ("yes", "no"):
        return 0.0
    rest, shared = list(right), 0
    for word in left:
        if word in rest:
            rest.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(left), shared / len(right)
    return 2 * precision * recall / (precision + recall)


@given(WORDS, WORDS)
def test_agrees_with_the_plain_writing(answer: str, golden: str) -> None:
    assert normalise(answer) == plain_normalise(answer)
    if plain_normalise(golden):
        assert exact_match(answer, golden) == (plain_normalise(answer) == plain_normalise(golden))
        assert f1(answer, golden) == pytest.approx(plain_f1(answer, golden))


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.text(), st.text())
def test_any_text(answer: str, golden: str) -> None:
    score = f1(answer, golden)
    assert 0.0 <= score <= 1.0
    assert exact_match(answer, golden) <= (score == 1.0)
    assert exact_match(golden, golden) == bool(golden.strip())
    if normalise(answer) and normalise(golden):
        assert f1(golden, answer) == pytest.approx(score)
        assert exact_match(answer, golden) == exact_match(golden, answer)
