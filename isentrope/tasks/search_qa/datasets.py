"""The data sets by name, found in local files.

A question's set is what its record says (`dataset`, `data_source`), else what the file or its folder is called; its
split likewise (`split`, "hotpotqa-train", `nq/train.jsonl`, `hotpot_dev_fullwiki_v1.json`). A folder counts only if its
name is a set, a split, or both, and nothing else.

    no split named                     the questions are for testing
    a set with dev but without test    its dev questions are for testing: those of its test are not public
    a set with a single split          stands in that split alone; nothing is moved
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from isentrope.config.suggest import did_you_mean
from isentrope.errors import TaskError
from isentrope.tasks.search_qa.files import SUFFIXES, is_record_file, plain_name, read_records
from isentrope.tasks.search_qa.questions import Question, read_question

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
_SPLIT_NAMES = {
    "train": "train", "training": "train",
    "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
    "test": "test",
}  # fmt: skip
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


def is_index(path: Path) -> bool:
    """Whether it is part of an index that somebody keeps beside the data."""
    return path.name.endswith(".index.json")


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
    _test_on_dev(sets)
    missing = [name for name in wanted if name not in found]
    if missing or not sets:
        there = ", ".join(sorted(found)) or "nothing"
        hint = did_you_mean(missing[0], [*found, *NAMES]) if missing else ""
        raise TaskError(f"data = {str(data)!r}: no questions of {', '.join(missing)}; there is {there}{hint}")
    return {split: sets[split] for split in SPLITS if sets.get(split)}


def mixed(sets: dict[str, list[Question]]) -> list[tuple[str, Question]]:
    """One list in which each set is spread evenly, so that the first hundred have the mix of the whole."""
    places: list[tuple[float, str, Question]] = []
    for name, questions in sorted(sets.items()):
        places += [((i + 0.5) / len(questions), name, question) for i, question in enumerate(questions)]
    return [(name, question) for _, name, question in sorted(places, key=lambda place: (place[0], place[1]))]


def _files(data: Path) -> Iterable[Path]:
    if data.is_file():
        return [data]
    below = sorted([*data.glob("*"), *data.glob("*/*")])
    found = [path for path in below if is_record_file(path) and not is_corpus(path) and not is_index(path)]
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


def _test_on_dev(sets: Sets) -> None:
    counts = Counter(name for split in ("dev", "test") for name in sets.get(split, {}))
    for name in [name for name in sets.get("dev", {}) if counts[name] == 1]:
        sets.setdefault("test", {})[name] = sets["dev"].pop(name)
