"""Reads questions with their golden answers, in the formats of the usual data sets, and finds the sets in local files.


{"id": "1", "question": "...", "golden_answers": ["..."]}            Search-R1, all sets
{"question": "...", "answer": "..."}                                  Bamboogle, and many others
{"_id", "question", "answer", "supporting_facts": [["Title", 0]]}     HotpotQA, 2WikiMultiHopQA
{"id", "question", "answer", "answer_aliases", "paragraphs": [...]}   MuSiQue
{"Question", "Answer": {"Value", "Aliases"}}                          TriviaQA
{"question", "possible_answers": "[\"...\"]"}                         PopQA

A question's set is what its record says (`dataset`, `data_source`), else what the file or its folder is called; its
split likewise (`split`, "hotpotqa-train", `nq/train.jsonl`, `hotpot_dev_fullwiki_v1.json`). A folder counts only if
its name is a set, a split, or both, and nothing else.

no split named                     the questions are for testing
a set with dev but without test    its dev questions are for testing: those of its test are not public
a set with a single split          stands in that split alone; nothing is moved
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError
from isentrope.worlds.search_qa.passages import SUFFIXES, clean, is_record_file, plain_name, read_records

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
    text, named = fields.get("question"), ", ".join(fields)[:200] or "none"
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_QUESTION:
        raise TaskError(f"{where}: expected a question of up to {MAX_QUESTION} characters; the fields are {named}")
    answers = _unique([*_answers(fields), *_texts(fields.get("answer_aliases"))])
    if not answers:
        wanted = ", ".join(_ANSWERS)
        raise TaskError(f"{where}: the question has no answer; expected one of {wanted}; the fields are {named}")
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
    spoken = ({True: "yes", False: "no"}[item] if isinstance(item, bool) else item for item in items)
    return [str(item) for item in spoken if isinstance(item, str | int | float)]


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


NAMES: dict[str, tuple[str, ...]] = {
    "nq": ("nq", "nqopen", "naturalquestions", "naturalquestionsopen"),
    "triviaqa": ("triviaqa", "trivia", "triviaqaunfiltered", "tqa"),
    "popqa": ("popqa",),
    "hotpotqa": ("hotpotqa", "hotpot"),
    "2wiki": ("2wiki", "2wikimultihopqa", "2wikimultihop", "2wikimqa"),
    "musique": ("musique", "musiqueans"),
    "bamboogle": ("bamboogle",),
}
SPLITS = ("train", "dev", "test")
_SPLIT_NAMES = {"train": "train", "training": "train", "test": "test"}
_SPLIT_NAMES.update(dict.fromkeys(("dev", "val", "valid", "validation"), "dev"))
_NOT_QUESTIONS = ("corpus", "wiki18", "wiki-18", "passages")
Sets = dict[str, dict[str, list[Question]]]  # split -> set -> questions


def canonical(name: str) -> str | None:
    """The set that is meant by a name such as "2WikiMultihopQA" or "natural_questions"."""
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((known for known, aliases in NAMES.items() if bare in aliases), None)


@lru_cache(maxsize=1000)
def set_and_split(name: str) -> tuple[str | None, str | None]:
    """What a name of a file, a folder or a set says: "hotpotqa-train" is hotpotqa, train."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    split = next((_SPLIT_NAMES[word] for word in words if word in _SPLIT_NAMES), None)
    runs = ("".join(words[i:j]) for i in range(len(words)) for j in range(len(words), i, -1))
    return next(filter(None, map(canonical, runs)), None), split


def find_corpus(folder: Path) -> Path | None:
    """The one file of a folder that is called a corpus."""
    if not folder.is_dir():
        return None
    found = [path for path in sorted(folder.iterdir()) if is_record_file(path) and is_corpus(path)]
    return found[0] if len(found) == 1 else None


def is_corpus(path: Path) -> bool:
    return any(word in plain_name(path) for word in _NOT_QUESTIONS)


def read_sets(data: Path, names: Sequence[str]) -> Sets:
    """All questions of the named sets (of every set if none is named) in a file, or in a folder and its subfolders."""
    if not data.exists():
        raise TaskError(f"data = {str(data)!r}: no such file or folder; leave it empty for the generated questions")
    wanted = tuple(dict.fromkeys(canonical(name) or name for name in names))
    found: set[str] = set()
    sets: Sets = {}
    for path in _files(data):
        for number, (where, record) in enumerate(read_records(path)):
            name, split = _place(path, record, data.is_dir())
            found.add(name)
            if not wanted or name in wanted:
                sets.setdefault(split, {}).setdefault(name, []).append(read_question(record, number, where))
    for name in [name for name in sets.get("dev", {}) if name not in sets.get("test", {})]:
        sets.setdefault("test", {})[name] = sets["dev"].pop(name)
    missing = [name for name in wanted if name not in found]
    if missing or not sets:
        there = ", ".join(sorted(found)) or "nothing"
        hint = did_you_mean(missing[0], [*found, *NAMES]) if missing else ""
        raise TaskError(f"data = {str(data)!r}: no questions of {', '.join(missing)}; there is {there}{hint}")
    return {split: sets[split] for split in SPLITS if sets.get(split)}


def _files(data: Path) -> Iterable[Path]:
    if data.is_file():
        return [data]
    below = [path for path in sorted([*data.glob("*"), *data.glob("*/*")]) if is_record_file(path)]
    # somebody may keep an index beside the data
    found = [path for path in below if not is_corpus(path) and not path.name.endswith(".index.json")]
    if not found:
        raise TaskError(f"data = {str(data)!r}: no question file there; expected {', '.join(SUFFIXES)} (or .zst, .gz)")
    return found


def _place(path: Path, record: dict[str, Any], in_folder: bool) -> tuple[str, str]:
    """The set and the split of a record: by what it says itself, by its file, by its folder.

    A set that is not one of the known ones keeps its own name. The folder of a file that was named by itself says
    nothing of its split: it may be any place where somebody keeps files.
    """
    named = [str(record[key]) for key in ("dataset", "data_source") if record.get(key)]
    file, folder = set_and_split(plain_name(path)), _of_folder(path.parent.name)
    known = [*(set_and_split(text)[0] for text in named), *named, file[0], folder[0], plain_name(path).split(".")[0]]
    splits = [set_and_split(text)[1] for text in (str(record.get("split") or ""), *named)]
    splits += [file[1], folder[1] if in_folder else None]
    return next(filter(None, known), ""), next(filter(None, splits), "test")


@lru_cache(maxsize=1000)
def _of_folder(name: str) -> tuple[str | None, str | None]:
    """The set and the split of a folder that is called after them and nothing else: nq, train, nq-train."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    splits = [_SPLIT_NAMES[word] for word in words if word in _SPLIT_NAMES]
    rest = [word for word in words if word not in _SPLIT_NAMES]
    found = canonical("".join(rest))
    return (found, splits[0] if splits else None) if len(splits) <= 1 and (found or not rest) else (None, None)
