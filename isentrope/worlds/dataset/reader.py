"""From files to questions: which rows make a split, and what each of them asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError
from isentrope.core.seeding import stream
from isentrope.worlds.dataset.files import Row, read_rows
from isentrope.worlds.dataset.options import AUTO, DatasetOptions
from isentrope.worlds.dataset.question import Choices, Question, Template, choices_of, messages_of, texts_of

MOST_SPLITS = 20
_ONE_KIND = "question"
_NAME = re.compile(r"[^\w.-]+")
Splits = dict[str, list[tuple[str, Row]]]
"""Rows by split, each with its place in the file, as errors name it."""


def read_splits(options: DatasetOptions) -> Splits:
    """The rows of each split, `train` first."""
    if bool(options.file) == bool(options.files):
        raise TaskError(
            "the world dataset needs a file of questions: set task.options.file=train.jsonl, or one for each split, "
            'task.options.files = {train = "train.jsonl", test = "test.jsonl"}'
            + ("; both are set" if options.file else "")
        )
    if options.files:
        if options.split_column:
            raise TaskError("task.options.split_column is for one file; with task.options.files leave it out")
        found = {
            _split_name(split): _numbered(name, f"task.options.files.{split}") for split, name in options.files.items()
        }
    else:
        rows = _numbered(options.file, "task.options.file")
        found = _by_column(rows, options.split_column) if options.split_column else _by_share(rows, options)
    ordered = {split: found[split] for split in sorted(found, key=lambda split: split != "train")}
    return {split: rows[: options.limit or None] for split, rows in ordered.items()}


def _numbered(name: Any, setting: str) -> list[tuple[str, Row]]:
    if not isinstance(name, str):
        raise TaskError(f"{setting} = {name!r:.60}: expected the name of a file")
    file = name.replace("\\", "/").rpartition("/")[2]
    return [(f"{file}, row {number}", row) for number, row in enumerate(read_rows(name, setting), start=1)]


def _split_name(name: object) -> str:
    text = str(name)
    if not re.fullmatch(r"[\w.-]{1,64}", text):
        raise TaskError(f"the split {text!r:.80}: expected a name of 1 to 64 letters, digits, . _ and -")
    return text


def _by_column(rows: Sequence[tuple[str, Row]], column: str) -> Splits:
    found: Splits = {}
    for where, row in rows:
        if row.get(column) is None:
            there = ", ".join(map(str, row))[:200]
            raise TaskError(f"{where}: it has no {column!r}, which task.options.split_column names; there is: {there}")
        found.setdefault(_split_name(row[column]), []).append((where, row))
        if len(found) > MOST_SPLITS:
            raise TaskError(f"task.options.split_column = {column!r} has more than {MOST_SPLITS} different values")
    return found


def _by_share(rows: Sequence[tuple[str, Row]], options: DatasetOptions) -> Splits:
    """Drawn by the seed: the same rows are tested on, wherever and in whatever order they are played."""
    count = round(options.test_share * len(rows))
    if options.test_share and not 0 < count < len(rows):
        raise TaskError(
            f"task.options.test_share = {options.test_share:g} of {len(rows)} rows leaves a split empty; name a file "
            "for each split with task.options.files, or set test_share to 0"
        )
    kept = {int(number) for number in stream(options.split_seed, "dataset", "test").permutation(len(rows))[:count]}
    train = [row for number, row in enumerate(rows) if number not in kept]
    return {"train": train} | ({"test": [rows[number] for number in sorted(kept)]} if kept else {})


class Reader:
    """Makes questions of rows."""

    def __init__(self, options: DatasetOptions, columns: frozenset[str]) -> None:
        self._options, self._columns = options, columns
        prompt = options.prompt
        if prompt == AUTO:
            prompt = f"{{{options.question}}}" + ("\n\n{choices}" if options.choices else "")
        self._prompt = Template(prompt, "task.options.prompt")
        self._system = Template("" if options.system == AUTO else options.system, "task.options.system")
        self._check_columns()

    def _check_columns(self) -> None:
        options = self._options
        named = {f"task.options.{name}": getattr(options, name) for name in ("answer", "id", "kind", "choices")}
        for template in (self._prompt, self._system):
            named |= {f"{template.setting}, {{{name}}}": name for name in sorted(template.columns())}
        if options.prompt == AUTO:
            named = {"task.options.question": options.question, **named}
        for setting, name in named.items():
            if name and name not in self._columns and not (name == "choices" and options.choices):
                guess = did_you_mean(name, self._columns, 0)
                there = ", ".join(sorted(self._columns))[:300]
                raise TaskError(f"{setting}: the data have no column {name!r}{guess}; there is: {there}")

    def questions(self, split: str, rows: Sequence[tuple[str, Row]]) -> Iterator[Question]:
        if not rows:
            raise TaskError(f"the split {split!r} has no rows: expected at least one question")
        for where, row in rows:
            try:
                yield self._made(where, row)
            except TaskError as error:
                raise TaskError(f"{where}: {error}") from None

    def _made(self, where: str, row: Row) -> Question:
        options, choices = self._options, self._choices(row)
        values, messages = self._values(row, choices)
        prompt, system = self._prompt.filled(values), self._system.filled(values)
        if messages and options.prompt == AUTO:
            system = system or messages[0]
        if not prompt.strip():
            raise TaskError("its question is empty")
        answer = self._needed(row, options.answer) if options.answer else None
        answers = () if answer is None else texts_of(answer, f"its {options.answer}")
        name = str(self._needed(row, options.id)) if options.id else where
        kind = _NAME.sub("_", str(self._needed(row, options.kind))).strip("_")[:64] if options.kind else _ONE_KIND
        told = row[options.question] if messages else ()
        return Question(row, name, kind or "unnamed", prompt, system, answers, choices, tuple(told))

    def _values(self, row: Row, choices: Choices | None) -> tuple[dict[str, str], tuple[str, str] | None]:
        """The columns that the templates ask for, as text; and system message and question, where they are messages."""
        values: dict[str, str] = {}
        messages = None
        for name in self._prompt.columns() | self._system.columns():
            if choices is not None and name in ("choices", self._options.choices):
                values[name] = choices.shown()
                continue
            value = self._needed(row, name)
            if name == self._options.question and isinstance(value, list | tuple):
                messages = messages_of(cast("list[Any]", value), f"its {name}")
                value = messages[1]
            values[name] = ", ".join(texts_of(value, f"its {name}"))
        return values, messages

    def _choices(self, row: Row) -> Choices | None:
        name = self._options.choices
        return choices_of(self._needed(row, name), f"its {name}") if name else None

    @staticmethod
    def _needed(row: Row, name: str) -> Any:
        if row.get(name) is None:
            raise TaskError(f"it has no {name!r}; expected one in every row")
        return row[name]
