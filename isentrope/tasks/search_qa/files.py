"""Records from files: JSON lines, JSON arrays and Parquet; the first two also compressed (.zst, .gz)."""

from __future__ import annotations

import io
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from isentrope.errors import TaskError

SUFFIXES = (".jsonl", ".json", ".parquet")
_COMPRESSED = {".zst": "zstd", ".gz": "gzip"}

Record = dict[str, Any]


def is_record_file(path: Path) -> bool:
    return path.is_file() and plain_name(path).endswith(SUFFIXES)


def plain_name(path: Path) -> str:
    """The name in lower case, without the ending of its compression."""
    name = path.name.lower()
    return name[: -len(path.suffix)] if path.suffix.lower() in _COMPRESSED else name


def read_records(path: Path) -> Iterator[tuple[str, Record]]:
    """(where it stands, the record), one at a time; JSON lines and Parquet are never held whole."""
    try:
        yield from _parquet(path) if plain_name(path).endswith(".parquet") else _json(path)
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read {path}: {error}") from error


def _json(path: Path) -> Iterator[tuple[str, Record]]:
    with _text(path) as file:
        first = next((line for line in file if line.strip()), "")
        if not first.strip():
            raise TaskError(f"{path} is empty; expected one JSON object a line, or a JSON array of objects")
        record = _object(first)
        if record is not None and not isinstance(_inner(record), list):
            yield f"{path.name}, line 1", record
            yield from _lines(path, file)
            return
        whole = first + file.read()
    for number, record in enumerate(_members(path, whole), start=1):
        yield f"{path.name}, number {number}", _checked(record, f"{path.name}, number {number}")


def _lines(path: Path, file: TextIO) -> Iterator[tuple[str, Record]]:
    for number, line in enumerate(file, start=2):
        if line.strip():
            where = f"{path.name}, line {number}"
            try:
                yield where, _checked(json.loads(line), where)
            except (ValueError, RecursionError) as error:
                raise TaskError(f"{where}: not valid JSON ({error})") from error


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


def _object(line: str) -> Record | None:
    """The object that the line holds, or None if it is only the beginning of one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(Record, found) if isinstance(found, dict) else None


def _checked(record: Any, where: str) -> Record:
    if not isinstance(record, dict):
        raise TaskError(f"{where}: expected a JSON object, found a {type(record).__name__}")
    return cast(Record, record)


@contextmanager
def _text(path: Path) -> Generator[TextIO]:
    codec = _COMPRESSED.get(path.suffix.lower())
    if codec is None:
        with path.open(encoding="utf-8") as file:
            yield file
        return
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    with cast(Any, pa).input_stream(str(path), compression=codec) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8")


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
