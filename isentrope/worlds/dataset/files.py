"""Reads files of questions: JSONL, JSON, CSV, TSV and Parquet, also packed with gzip or zstandard.

Rows are dictionaries by column. A file may come from anywhere, so no more is read of it than the limits allow
(core/limits.py), and whatever is wrong with it is a TaskError that names the file, the line and what was expected.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from isentrope.core.errors import TaskError
from isentrope.core.limits import (
    DATA_BYTES,
    DATA_COLUMNS,
    DATA_ROW_BYTES,
    DATA_ROWS,
    Unreadable,
    check_depth,
    check_is_file,
    whole_number,
)
from isentrope.runs.parquet import Parquet
from isentrope.worlds.files import COMPRESSED, open_bytes

Row = dict[str, Any]
_KINDS = ".jsonl, .ndjson, .json, .csv, .tsv or .parquet"
_PIECE = 64 * 1024


def read_rows(name: str, setting: str) -> tuple[Row, ...]:
    """All rows of a file; `setting` names it in an error. A file that did not change is read once."""
    path = Path(name).expanduser()
    try:
        status = check_is_file(path, found=False)
    except FileNotFoundError:
        raise TaskError(f"{setting} = {name!r}: no such file (looked for {path.absolute()})") from None
    except IsADirectoryError:
        _is_folder(path, setting)
    except (OSError, ValueError) as error:
        if path.is_dir():
            _is_folder(path, setting)
        raise TaskError(f"{setting} = {name!r}: {error}; expected a file of questions, {_KINDS}") from None
    return _rows(path.absolute(), setting, status.st_mtime_ns, status.st_size)


def _is_folder(path: Path, setting: str) -> NoReturn:
    inside = sorted(entry.name for entry in path.iterdir() if _kind(entry) in _READERS)[:5]
    there = f"; it holds {', '.join(inside)}" if inside else ""
    raise TaskError(f"{setting} = {str(path)!r} is a folder, expected a file of questions, {_KINDS}{there}")


def _kind(path: Path) -> str:
    packed = path.suffix.lower() in COMPRESSED
    return (path.with_suffix("") if packed else path).suffix.lower()


@lru_cache(maxsize=8)
def _rows(path: Path, setting: str, changed: int, size: int) -> tuple[Row, ...]:
    read = _READERS.get(_kind(path))
    if read is None:
        raise TaskError(f"{setting} = {str(path)!r}: expected a file of questions, {_KINDS} (.gz and .zst too)")
    if size > DATA_BYTES:
        raise TaskError(f"{path.name} has {size:,} bytes; more than {DATA_BYTES:,} are not read: cut it into parts")
    rows: list[Row] = []
    try:
        for row in read(path):
            if len(rows) >= DATA_ROWS:
                raise TaskError(f"{path.name} has more than {DATA_ROWS:,} rows: cut it into parts")
            if len(row) > DATA_COLUMNS:
                raise TaskError(f"{path.name}, row {len(rows) + 1}: {len(row):,} columns; at most {DATA_COLUMNS}")
            rows.append(row)
    except UnicodeDecodeError as error:
        raise TaskError(f"{path.name} is not UTF-8 ({error.reason}); write it as UTF-8") from None
    except (OSError, Unreadable) as error:
        raise TaskError(f"{path.name} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not rows:
        raise TaskError(f"{path.name} has no rows: expected at least one question")
    return tuple(rows)


def _lines(file: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Lines by number, blank ones left out; no more is held than one of them may have."""
    total = number = 0
    rest = b""
    while True:
        piece = file.read(_PIECE)
        total += len(piece)
        if total > DATA_BYTES:
            raise TaskError(f"{name} unpacks to more than {DATA_BYTES:,} bytes: cut it into parts")
        *lines, rest = (rest + piece).split(b"\n") if piece else (rest, b"")
        for line in lines:
            number += 1
            _check_length(len(line), name, number)
            if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip():
                yield number, text
        _check_length(len(rest), name, number + 1)
        if not piece:
            return


def _check_length(length: int, name: str, number: int) -> None:
    if length > DATA_ROW_BYTES:
        raise TaskError(f"{name}, line {number}: more than {DATA_ROW_BYTES:,} bytes, which no question has")


def _json_lines(path: Path) -> Iterator[Row]:
    with open_bytes(path) as file:
        for number, line in _lines(file, path.name):
            yield _object(line, f"{path.name}, line {number}")


def _object(text: str, where: str) -> Row:
    found = _json(text, where)
    if not isinstance(found, dict):
        expected = '{"question": ..., "answer": ...}'
        raise TaskError(f"{where}: a {type(found).__name__}, expected an object such as {expected}")
    return cast("Row", found)


def _json(text: str, where: str) -> Any:
    try:
        found = json.loads(text, parse_int=whole_number)
        check_depth(found)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{where}: no JSON ({str(error)[:100]}): {text[:60]!r}") from None
    return found


def _json_list(path: Path) -> Iterator[Row]:
    """A file of one list; or, as many are, of lines in spite of its name."""
    with open_bytes(path) as file:
        first = file.read(_PIECE).lstrip()
    if not first.startswith(b"["):
        yield from _json_lines(path)
        return
    with open_bytes(path) as file:
        data = file.read(DATA_BYTES // 8 + 1)
    if len(data) > DATA_BYTES // 8:
        raise TaskError(f"{path.name}: a list of more than {DATA_BYTES // 8:,} bytes; write it as JSONL, a row a line")
    found = _json(data.decode("utf-8-sig"), path.name)
    for number, row in enumerate(cast("list[Any]", found), start=1):
        if not isinstance(row, dict):
            raise TaskError(f"{path.name}, entry {number}: a {type(row).__name__}, expected an object")
        yield cast("Row", row)


def _table(path: Path, delimiter: str) -> Iterator[Row]:
    """Values stay text. The first line names the columns."""
    with open_bytes(path) as file:
        reader = csv.reader((text for text in _raw_lines(file, path.name)), delimiter=delimiter, strict=True)
        try:
            names = next(reader, list[str]())
            if len(set(names)) < len(names) or not all(name.strip() for name in names):
                raise TaskError(f"{path.name}: its first line must name every column once, but it is {names!r:.200}")
            for values in reader:
                if not values:
                    continue
                if len(values) != len(names):
                    raise TaskError(
                        f"{path.name}, line {reader.line_num}: {len(values)} values for the {len(names)} columns "
                        f"{', '.join(names)[:100]}; put quotes around values with {delimiter!r} or line ends"
                    )
                yield dict(zip(names, values, strict=True))
        except csv.Error as error:
            raise TaskError(f"{path.name}, line {reader.line_num}: no CSV ({error})") from None


def _raw_lines(file: IO[bytes], name: str) -> Iterator[str]:
    """With their ends, since a value in quotes may go on in the next one."""
    total = number = 0
    while line := file.readline(DATA_ROW_BYTES + 1):
        number, total = number + 1, total + len(line)
        _check_length(len(line), name, number)
        if total > DATA_BYTES:
            raise TaskError(f"{name} unpacks to more than {DATA_BYTES:,} bytes: cut it into parts")
        yield line.decode("utf-8-sig" if number == 1 else "utf-8")


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    pa: Any = pyarrow
    try:
        with Parquet(path.open("rb"), DATA_ROWS) as file:
            file.check(file.names)
            columns = [file.column(name).to_pylist() for name in file.names]
            yield from (dict(zip(file.names, values, strict=True)) for values in zip(*columns, strict=True))
    except (pa.ArrowException, OSError, ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
        raise TaskError(f"{path.name} cannot be read as Parquet: {' '.join(str(error).split())[:200]}") from None


_READERS: dict[str, Callable[[Path], Iterable[Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_list,
    ".csv": lambda path: _table(path, ","),
    ".tsv": lambda path: _table(path, "\t"),
    ".parquet": _parquet,
}
