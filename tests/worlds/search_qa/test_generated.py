"""The invented library: always the same, splits apart, every question answerable from its passages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from isentrope.worlds.search_qa.generated import KINDS, RELATIONS, SPLITS, Library, library
from isentrope.worlds.search_qa.task import normalise, understood


@pytest.fixture(scope="module")
def books() -> Library:
    return library(400)


def test_it_is_of_the_size_asked_for(books: Library) -> None:
    assert len(books.passages) == 400
    assert len({passage.title for passage in books.passages}) == 400
    assert [passage.id for passage in books.passages] == [str(i) for i in range(400)]
    assert all(len(questions) >= 200 for questions in books.questions.values())
    assert len(library(50).passages) >= 50


def test_kinds_take_turns_and_no_question_comes_twice(books: Library) -> None:
    texts = [question.text for asked in books.questions.values() for _, question in asked]
    assert len(set(texts)) == len(texts)
    for asked in books.questions.values():
        assert [kind for kind, _ in asked[:4]] == [*KINDS, *KINDS]
        assert {len(question.titles) for kind, question in asked if kind == "one_hop"} == {1}
        assert {len(question.titles) for kind, question in asked if kind == "two_hop"} == {2}


def test_splits_share_no_thing(books: Library) -> None:
    """Neither in a question's titles nor in anything that the passages of a split mention."""
    titles = {split: {t for _, q in asked for t in q.titles} for split, asked in books.questions.items()}
    texts = {passage.title: passage.text for passage in books.passages}
    names = {split: {name for name in texts if name in titles[split]} for split in SPLITS}
    for split in SPLITS:
        others = set().union(*(names[other] for other in SPLITS if other != split))
        assert not names[split] & others
        for name in names[split]:
            assert not any(other in texts[name] for other in others), name


def test_every_answer_stands_in_its_last_passage_and_not_in_the_question(books: Library) -> None:
    texts = {passage.title: passage.text for passage in books.passages}
    for asked in books.questions.values():
        for _, question in asked:
            (answer,) = question.answers
            assert answer in texts[question.titles[-1]]
            assert question.titles[0] in question.text
            assert normalise(answer) not in normalise(question.text)


def test_questions_can_be_understood_in_one_way_alone(books: Library) -> None:
    for asked in books.questions.values():
        for kind, question in asked:
            subject, chain = understood(question.text)
            assert subject == question.titles[0]
            assert len(chain) == 1 + KINDS.index(kind)
    assert understood("What is the capital of France?") == ("", [])
    templates = [question for relation in RELATIONS for question in relation.questions]
    assert len(set(templates)) == len(templates)


def test_it_is_the_same_in_every_process(books: Library) -> None:
    code = (
        "import hashlib; from isentrope.worlds.search_qa.generated import library;"
        "print(hashlib.sha256(repr(library(400)).encode()).hexdigest())"
    )
    marks = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(marks) == 1
