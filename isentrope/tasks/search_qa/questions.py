"""Questions with their golden answers, and the many ways in which the data sets write them down.

{"id": "1", "question": "...", "golden_answers": ["..."]}            Search-R1, all sets
{"question": "...", "answer": "..."}                                  Bamboogle, and many others
{"_id", "question", "answer", "supporting_facts": [["Title", 0]]}     HotpotQA, 2WikiMultiHopQA
{"id", "question", "answer", "answer_aliases", "paragraphs": [...]}   MuSiQue
{"Question", "Answer": {"Value", "Aliases"}}                          TriviaQA
{"question", "possible_answers": "[\\"...\\"]"}                         PopQA
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from isentrope.errors import TaskError
from isentrope.tasks.search_qa.passages import clean

_ANSWERS = ("golden_answers", "answers", "possible_answers", "answer", "target")
MAX_QUESTION = 4000  # characters; nothing longer is a question


@dataclass(frozen=True)
class Question:
    id: str
    text: str
    answers: tuple[str, ...]  # any of them is right
    titles: tuple[str, ...] = ()  # of the passages that hold the answer, where the data names them


def read_question(record: Mapping[str, Any], number: int, where: str) -> Question:
    fields = {key.lower(): value for key, value in record.items()}
    text = fields.get("question")
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_QUESTION:
        raise TaskError(
            f"{where}: expected a question of up to {MAX_QUESTION} characters; the fields are {_names(fields)}"
        )
    answers = _unique([*_answers(fields), *_texts(fields.get("answer_aliases"))])
    if not answers:
        wanted = ", ".join(_ANSWERS)
        raise TaskError(
            f"{where}: the question has no answer; expected one of {wanted}; the fields are {_names(fields)}"
        )
    name = fields.get("id", fields.get("_id", fields.get("questionid", number)))
    return Question(str(name), clean(text), answers, _titles(fields))


def _answers(fields: Mapping[str, Any]) -> list[str]:
    for key in _ANSWERS:
        if found := _texts(fields.get(key)):
            return found
    model = _table(fields.get("reward_model"))  # the training files of Search-R1
    return _texts(_table(model.get("ground_truth")).get("target"))


def _texts(value: Any) -> list[str]:
    """The answers in a value: text, a list of texts, such a list written as JSON, or TriviaQA's table."""
    if isinstance(value, Mapping):
        table = {key.lower(): item for key, item in _table(value).items()}
        return [*_listed(table.get("value")), *_listed(table.get("aliases"))]
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return _listed(json.loads(value))
        except (ValueError, RecursionError):
            pass  # an answer that begins with a bracket
    return _listed(value)


def _listed(value: Any) -> list[str]:
    items: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
    return [_spoken(item) for item in items if isinstance(item, str | int | float)]


def _spoken(item: str | float | bool) -> str:
    return ("yes" if item else "no") if isinstance(item, bool) else str(item)


def _titles(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Titles of the supporting passages, in whichever of the known places they stand."""
    metadata = {key.lower(): value for key, value in _table(fields.get("metadata")).items()}
    found: list[str] = []
    for place in (fields, metadata):
        titles = place.get("supporting_titles")
        facts = place.get("supporting_facts")
        if isinstance(facts, Mapping):
            titles = cast("Mapping[str, Any]", facts).get("title")
        elif isinstance(facts, list):
            pairs = [cast("Sequence[Any]", pair) for pair in cast("list[Any]", facts) if isinstance(pair, list | tuple)]
            titles = [pair[0] for pair in pairs if pair]
        elif isinstance(place.get("paragraphs"), list):
            paragraphs = [_table(item) for item in cast("list[Any]", place["paragraphs"])]
            titles = [item.get("title") for item in paragraphs if item.get("is_supporting")]
        found += [title for title in cast("list[Any]", titles or []) if isinstance(title, str)]
    return _unique(found)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in map(clean, texts) if text))


def _table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _names(fields: Mapping[str, Any]) -> str:
    return ", ".join(fields)[:200] or "none"
