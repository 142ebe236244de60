"""Reads logs that are text: trainer_state.json of transformers and TRL, JSONL (verl's file logger among them), CSV, and
what verl prints on the console."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError
from isentrope.core.limits import IMPORT_BYTES, LINE_BYTES, STATE_TEXT_BYTES, open_plain, parse_json, read_bounded
from isentrope.imports.series import Series

STEP_KEYS = ("step", "global_step", "train/global_step", "training/global_step", "_step", "Step", "iteration")
_NOT_NUMBERS = ("Wall time", "wall_time", "timestamp", "_timestamp", "_runtime")  # clocks
_DEEPEST = 8  # tables within a line
_LOOK = 65536  # characters that one record of trainer_state.json rarely needs
_CONSOLE = re.compile(rb"step:(\d{1,15}) - ")
_NUMPY = re.compile(r"np\.\w+\((.*)\)")


def read_trainer_state(path: Path, series: Series) -> None:
    """`log_history`, record by record, so that of a file that is cut what is whole counts."""
    text = read_bounded(path, STATE_TEXT_BYTES, found=False).decode("latin-1")  # a byte a character, whatever is in it
    start = re.search(r'"log_history"\s*:\s*\[', text)
    if start is None:
        raise RunError(f"{path} has no log_history; give a trainer_state.json of transformers or TRL")
    decoder, place = json.JSONDecoder(), start.end()
    while True:
        while text[place : place + 1] in (" ", "\n", "\r", "\t", ","):
            place += 1
        if text[place : place + 1] == "]":
            return
        record, length = _record(decoder, text, place)
        if record is None:
            series.cut = f"{path.name} is cut off or damaged after {place:,} bytes; what came before was read"
            return
        place += length
        _take({_utf8(key): value for key, value in record.items()}, series, "step")
        if series.full:
            return


def _record(decoder: json.JSONDecoder, text: str, place: int) -> tuple[dict[str, Any] | None, int]:
    for look in (_LOOK, LINE_BYTES):
        try:
            value, length = decoder.raw_decode(text[place : place + look])
        except (ValueError, RecursionError):
            continue
        return (cast("dict[str, Any]", value) if isinstance(value, dict) else None), length
    return None, 0


def _utf8(key: str) -> str:
    try:
        return key.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:  # it was escaped
        return key


def read_jsonl(path: Path, series: Series, step_key: str = "") -> None:
    """A line of JSON a step. verl's file logger has the numbers one table deeper: {"step": 3, "data": {...}}."""
    for line in _lines(path, series):
        try:
            record = parse_json(line)
        except ValueError:
            series.left_out("line", "not JSON")
            continue
        if not isinstance(record, dict):
            series.left_out("line", "not a table")
            continue
        known = cast("dict[str, Any]", record)
        data = known.get("data")
        if set(known) == {"step", "data"} and isinstance(data, dict):
            known = {**cast("dict[str, Any]", data), "step": known["step"]}
        _take(known, series, step_key or _step_key(known))
        if series.full:
            return


def read_console(path: Path, series: Series) -> None:
    """verl's console: `step:3 - actor/entropy:0.41 - ...`, with whatever the processes that print put before it."""
    for line in _lines(path, series):
        if (begin := _CONSOLE.search(line)) is None:
            continue
        for part in line[begin.end() :].decode("utf-8", "replace").split(" - "):
            key, _, value = part.strip().rpartition(":")
            number = _number(_NUMPY.sub(r"\1", value.strip()))
            if key and number is not None:
                series.add(int(begin[1]), key, number)


def is_console(path: Path) -> bool:
    """Whether a text begins as the output of verl may, within its first megabytes."""
    with open_plain(path, found=False) as file:
        return _CONSOLE.search(file.read(8 * LINE_BYTES)) is not None


def read_csv(path: Path, series: Series, step_key: str = "") -> None:
    """A row a step, with the names in the first row."""
    lines = (line.decode("utf-8-sig", "replace") for line in _lines(path, series))
    first = next(lines, "")
    between = max(",;\t", key=first.count)
    names = next(_rows(iter([first]), between), list[str]())
    step = step_key or next((key for key in STEP_KEYS if key in names), "")
    if step not in names:
        raise RunError(
            f"{path} has no column of steps: its columns are {', '.join(names[:8]) or 'none'}; "
            f"name the one with --step, or call it step"
        )
    for row in _rows(lines, between):
        if len(row) > len(names):
            series.left_out("row", "with more cells than the first")
            continue
        cells = {key: _number(cell) for key, cell in zip(names, row, strict=False)}
        _take({key: value for key, value in cells.items() if value is not None}, series, step)
        if series.full:
            return


def _rows(lines: Iterator[str], between: str) -> Iterator[list[str]]:
    """A line is a row: a quote that nobody closes must not take in the file."""
    for line in lines:
        try:
            yield from csv.reader([line], delimiter=between)
        except csv.Error:
            yield []


def _number(text: str) -> float | None:
    try:
        return float(text) if len(text) <= 400 else None
    except ValueError:
        return None


def _step_key(record: Mapping[str, Any]) -> str:
    return next((key for key in STEP_KEYS if key in record), STEP_KEYS[0])


def _take(record: Mapping[str, Any], series: Series, step_key: str) -> None:
    """The numbers of a record; of tables within it under names with a stroke between."""
    step = record.get(step_key)
    if isinstance(step, float) and step == step // 1 and abs(step) < 1 << 53:
        step = int(step)
    if type(step) is not int:
        series.left_out("record", f"without a whole number as {step_key}")
        return
    for key, value in _numbers(record):
        if key != step_key and key not in _NOT_NUMBERS:
            series.add(step, key, value)


def _numbers(record: Mapping[str, Any], above: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from _numbers(cast("dict[str, Any]", value), f"{above}{key}/", depth + 1)
        elif isinstance(value, int | float):
            yield above + key, _as_float(value)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of 400 digits
        return float("inf")


def _lines(path: Path, series: Series) -> Iterator[bytes]:
    """Lines that are not empty. One without an end counts like the others: who cut it left no JSON."""
    with open_plain(path, found=False) as file:
        size, read = file.seek(0, 2), 0
        file.seek(0)
        while line := file.readline(LINE_BYTES + 1):
            read += len(line)
            if len(line) > LINE_BYTES:
                series.left_out("line", f"longer than {LINE_BYTES:,} bytes")
                while line and not line.endswith(b"\n"):
                    line = file.readline(LINE_BYTES)
                    read += len(line)
                    if read > IMPORT_BYTES:
                        break
            elif line.strip():
                yield line.strip()
            if read > IMPORT_BYTES:
                series.cut = f"{path.name} has {size:,} bytes; only the first {IMPORT_BYTES:,} were read"
                return
