"""Reads passages, the texts that a search finds, from corpus files and from a server's answers, and keeps them on disk.

{"id": "7", "contents": "\"Title\"\nText"}       as Search-R1 has them
{"id": "7", "title": "Title", "text": "Text"}     as most others do
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from isentrope.core.errors import TaskError
from isentrope.worlds.files import COMPRESSED, open_text

SUFFIXES = (".jsonl", ".json", ".parquet")

Record = dict[str, Any]


def is_record_file(path: Path) -> bool:
    return path.is_file() and plain_name(path).endswith(SUFFIXES)


def plain_name(path: Path) -> str:
    """The name in lower case, without the ending of its compression."""
    name = path.name.lower()
    return name[: -len(path.suffix)] if path.suffix.lower() in COMPRESSED else name


def read_records(path: Path) -> Iterator[tuple[str, Record]]:
    """(where it stands, the record), one at a time, from JSON lines, JSON arrays or Parquet; the first two may be
    compressed (.zst, .gz). JSON lines and Parquet are never held whole."""
    try:
        yield from _parquet(path) if plain_name(path).endswith(".parquet") else _json(path)
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read {path}: {error}") from error


def _json(path: Path) -> Iterator[tuple[str, Record]]:
    with open_text(path) as file:
        first = next((line for line in file if line.strip()), "")
        if not first.strip():
            raise TaskError(f"{path} is empty; expected one JSON object a line, or a JSON array of objects")
        try:
            record = json.loads(first)
        except (ValueError, RecursionError):
            record = None  # only the beginning of something
        if isinstance(record, dict) and not isinstance(_inner(cast(Record, record)), list):
            yield f"{path.name}, line 1", cast(Record, record)
            for number, line in enumerate(file, start=2):
                if line.strip():
                    where = f"{path.name}, line {number}"
                    try:
                        yield where, _checked(json.loads(line), where)
                    except (ValueError, RecursionError) as error:
                        raise TaskError(f"{where}: not valid JSON ({error})") from error
            return
        whole = first + file.read()
    for number, record in enumerate(_members(path, whole), start=1):
        yield f"{path.name}, number {number}", _checked(record, f"{path.name}, number {number}")


def _members(path: Path, text: str) -> list[Any]:
    """The objects of a JSON array, or of the array that a JSON object keeps under `data` (as TriviaQA's files do)."""
    try:
        whole: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path}: neither JSON lines nor a JSON array ({error})") from error
    if isinstance(whole, dict):
        whole = _inner(cast(Record, whole)) or [whole]
    if not isinstance(whole, list):
        raise TaskError(f"{path}: expected a JSON array of objects, found a {type(whole).__name__}")
    return cast("list[Any]", whole)


def _inner(record: Record) -> Any:
    return record.get("data", record.get("Data"))


def _checked(record: Any, where: str) -> Record:
    if not isinstance(record, dict):
        raise TaskError(f"{where}: expected a JSON object, found a {type(record).__name__}")
    return cast(Record, record)


def _parquet(path: Path) -> Iterator[tuple[str, Record]]:
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    number = 0
    try:
        for batch in cast(Any, pq).ParquetFile(path).iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                number += 1
                yield f"{path.name}, row {number}", record
    except cast(Any, pa).ArrowException as error:
        raise TaskError(f"could not read {path}: {error}") from error


MAX_TITLE = 200  # characters of a title that are shown


@dataclass(frozen=True)
class Passage:
    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """Title and text as Search-R1 writes them."""
        return f'"{self.title}"\n{self.text}'

    def shown(self, number: int, limit: int) -> str:
        """For the agent: the number and title on one line, the text on the next, whatever stands in them."""
        return f"[{number}] {shortened(self.title, MAX_TITLE)}\n{shortened(self.text, limit)}"


@dataclass(frozen=True)
class Hit:
    passage: Passage
    score: float


def clean(text: str) -> str:
    """One line of text that can be encoded: half surrogates, which a JSON file can hold, become question marks."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").split())


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where there is a space in the last third."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ", limit * 2 // 3)
    return (cut[:space] if space > 0 else cut).rstrip() + "…"


def read_passage(record: Mapping[str, Any], number: int, where: str) -> Passage:
    contents, title, text = (record.get(key) for key in ("contents", "title", "text"))
    name = str(record.get("id", record.get("_id", number)))
    if isinstance(text, str):
        return Passage(name, clean(title) if isinstance(title, str) else "", clean(text))
    if not isinstance(contents, str):
        raise TaskError(f"{where}: a passage needs contents, or title and text; it has {', '.join(record)[:200]!r}")
    first, _, rest = contents.strip().partition("\n")
    return Passage(name, clean(first).strip('"'), clean(rest))


def read_corpus(path: Path) -> Iterator[Passage]:
    for number, (where, record) in enumerate(read_records(path)):
        yield read_passage(record, number, where)


_TEXT, _ENDS = "passages.jsonl", "ends.npy"


class PassageFile:
    """Passages by number, from a folder that `write_passages` filled. They stay on the disk, however many there are."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / _ENDS, mmap_mode="r")
        with (folder / _TEXT).open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> Passage:
        begin = int(self._ends[number - 1]) if number else 0
        return Passage(*json.loads(self._text[begin : int(self._ends[number])]))


def write_passages(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Write the passages as they pass through, so that one reading of the corpus serves for the index too."""
    ends, place = array("q"), 0
    with (folder / _TEXT).open("wb") as file:
        for passage in passages:
            place += file.write(json.dumps([passage.id, passage.title, passage.text]).encode() + b"\n")
            ends.append(place)
            yield passage
    np.save(folder / _ENDS, np.frombuffer(ends, dtype=np.int64))
