"""What counts as the right answer: numbers as people write them, choices, texts, patterns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.dataset.checkers import Choice, Exact, Extract, Numeric, Regex, boxed
from isentrope.worlds.dataset.numbers import numbers_in, only_number
from isentrope.worlds.dataset.question import Question, choices_of

HALF = Fraction(1, 2)


def asked(answer: Any, choices: Any = None) -> Question:
    row = {"question": "?", "answer": answer, "choices": choices}
    answers = tuple(map(str, answer)) if isinstance(answer, list) else (str(answer),)
    return Question(row, "1", "k", "?", "", answers, None if choices is None else choices_of(choices, "choices"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234.50", Fraction("1234.5")),
        ("$3", 3),
        ("-$3", -3),
        ("12 km", 12),
        ("50%", 50),
        ("3/4", Fraction(3, 4)),
        ("3 5/8 inches", Fraction(29, 8)),
        (r"\frac{1}{2}", HALF),
        (r"-\dfrac{1}{2}", -HALF),
        ("\u22127", -7),
        ("1.5e3", 1500),
        (".5", HALF),
        ("1\u202f000", 1000),
        ("10{,}000", 10_000),
        ("1e308", 10**308),
        ("1e999", None),
        ("9" * 500, None),
        ("1/0", None),
        ("5 or 6", None),
        ("none", None),
    ],
)
def test_numbers(text: str, number: Any) -> None:
    assert only_number(text) == number


def test_a_bullet_is_no_minus_sign() -> None:
    assert numbers_in("- 5 apples, 7-2") == [5, 7, 2]


@given(st.integers(-(10**12), 10**12))
def test_numbers_are_read_back_however_they_are_written(number: int) -> None:
    for text in (str(number), f"{number:,}", f"It is {number}.", f"{number:,} km", f"{number}.0"):
        assert only_number(text) == number, text


@given(st.text(max_size=200))
def test_any_text_has_numbers_or_none(text: str) -> None:
    assert all(isinstance(number, Fraction) for number in numbers_in(text))


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("42", 1),
        ("Each has 21, so 2 * 21 = 42\n#### 42", 1),
        ("#### 41\nNo: #### 42 apples, for 3 people", 1),
        (r"It is \boxed{42}. I checked 7 times.", 1),
        ("The answer is 42, as 6 * 7 shows.", 1),
        ("**Answer:** 42.00", 1),
        ("First 42, then 43", 0),
        ("#### 43\n42", 0),
        ("forty-two", 0),
        ("", 0),
        ("4" * 100_000, 0),
    ],
)
def test_numeric(response: str, score: float) -> None:
    checker = Numeric(Extract(), 1e-6)
    question = asked("20 and 22 make 42\n#### 42")
    assert checker.problem(question) == ""
    assert checker.score(question, response) == score


def test_numeric_tolerance_and_answers_that_are_no_numbers() -> None:
    assert Numeric(Extract(), 0.01).score(asked("100"), "100.9") == 1
    assert Numeric(Extract(), 0.0).score(asked("100"), "100.9") == 0
    assert Numeric(Extract()).score(asked(["1", "2"]), "2") == 1
    assert "not a number" in Numeric(Extract()).problem(asked("many"))


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("B", 1),
        ("(b)", 0),
        ("(B)", 1),
        ("B. blue", 1),
        ("blue", 1),
        ("The answer is (B).", 1),
        (r"So \boxed{B}", 1),
        ("It is not A.\nB", 1),
        ("A", 0),
        ("A blue one", 0),
        ("Because B is blue", 0),
        ("B or C?", 0),
    ],
)
def test_choice(response: str, score: float) -> None:
    question = asked("B", ["red", "blue", "green"])
    assert Choice(Extract(), "answer").score(question, response) == score


@pytest.mark.parametrize(
    ("answer", "choices", "label"),
    [
        (1, ["red", "blue"], "B"),
        ("blue", ["red", "blue"], "B"),
        ("2", {"text": ["red", "blue"], "label": ["1", "2"]}, "2"),
        ("no", {"yes": "of course", "no": "never"}, "no"),
        (5, ["red", "blue"], None),
        ("pink", ["red", "blue"], None),
    ],
)
def test_right_choices(answer: Any, choices: Any, label: str | None) -> None:
    checker, question = Choice(Extract(), "answer"), asked(answer, choices)
    assert checker.right(question) == label
    assert (checker.problem(question) == "") == (label is not None)


@pytest.mark.parametrize("choices", ["red", ["red"], [], {"text": ["a", "b"], "label": ["A"]}, ["x"] * 27, 3, [[], []]])
def test_choices_that_are_none(choices: Any) -> None:
    with pytest.raises(TaskError, match="choices"):
        choices_of(choices, "its choices")


def test_exact_folds_what_does_not_matter() -> None:
    question = asked(["The  Hague", "Den Haag"])
    for response in (
        "the hague.",
        '"The Hague"',
        " DEN HAAG ",
        "I think so.\n**The Hague**",
        "The answer is: Den Haag.",
    ):
        assert Exact(Extract()).score(question, response) == 1, response
    for response in ("Hague", "", "The Hague or Delft"):
        assert Exact(Extract()).score(question, response) == 0, response


def test_extractors() -> None:
    assert Exact(Extract("boxed")).score(asked("{a}"), r"\boxed{{a}}") == 1
    assert Exact(Extract("boxed")).score(asked("a"), "a") == 0
    assert Exact(Extract("all")).score(asked("a"), "x\na") == 0
    assert Exact(Extract("last_line")).score(asked("a"), "x\na\n") == 1
    assert Exact(Extract(pattern=r"<answer>(.*?)</answer>")).score(asked("a"), "b <answer>a</answer>") == 1
    assert boxed(r"\boxed{1} \boxed{" * 2000) == "1"


def test_regex() -> None:
    assert Regex(Extract()).score(asked(r"\d{3}"), " 123 ") == 1
    assert Regex(Extract()).score(asked(r"\d{3}"), "1234") == 0
    assert Regex(Extract(), "[ab]+").score(asked("unused"), "abba") == 1
    assert "no regular expression" in Regex(Extract()).problem(asked("("))
