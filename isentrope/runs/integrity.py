"""Notices damage: the SHA-256 of what was written, compared with what is there.

    checkpoints/step-000012/sha256.json   of each file of the checkpoint, and of the run's logs as far as they had come
    reference/sha256.json                 of each file of the reference
    config.toml run.json best.json        each its own, in its last line or under the key "sha256"

Episodes and scores carry their own too (runs/episodes.py). What an older version wrote has none and is taken as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

from isentrope.core.errors import RunError
from isentrope.core.limits import INDEX_BYTES, LOG_BYTES, SETTINGS_BYTES, check_is_file, read_bounded, read_json
from isentrope.runs.layout import EVENTS, METRICS, SETTINGS, SUMS, TOKENS, checkpoint_step

KEY = "sha256"
_LOGS = (METRICS, EVENTS, TOKENS)  # of which a checkpoint says what they held; what the clock said differs every time
_SHOWN = 12  # digits of a sum in a message
_LAST_LINE = re.compile(r"# SHA-256 of the lines above: ([0-9a-f]{64})\n?")


# -- folders


def write_sums(folder: Path, step: int | None = None, run: Path | None = None) -> None:
    """Record the sums of the folder's files in it, and with `run` those of the run's logs by now."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    record: dict[str, Any] = {"files": {path.relative_to(folder).as_posix(): _entry(path) for path in paths}}
    if step is not None:
        record |= {"step": step}
    if run is not None:
        record |= {"logs": {name: _entry(run / name) for name in _LOGS if (run / name).is_file()}}
    (folder / SUMS).write_text(json.dumps(with_sum(record), indent=1) + "\n")


def folder_damage(folder: Path, below: str = "") -> str:
    """What is wrong with a checkpoint or a reference, in words; empty if nothing is, or nothing was recorded. `below`:
    of the files whose names begin so alone."""
    try:
        record = _read_sums(folder)
        if record is None:
            return ""
        step = record.get("step")
        if step is not None and step != checkpoint_step(folder.name):
            return f"it is a checkpoint of step {step}, from another folder"
        files: dict[str, Any] = record["files"]
        told = (_told(folder / name, name, entry) for name, entry in files.items() if name.startswith(below))
        return next((problem for problem in told if problem), "")
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        return f"{SUMS} cannot be read ({_in_a_line(error)})"


def log_damage(run: Path, checkpoint: Path) -> str:
    """What is wrong with the run's logs up to a sound checkpoint, in words; empty if nothing is."""
    try:
        record = _read_sums(checkpoint) or {}
        logs: dict[str, Any] = record.get("logs", {})
        grow = (name for name in logs if name in _LOGS and name != TOKENS)
        told = (_told(run / name, name, logs[name], as_prefix=True) for name in grow)
        return next((problem for problem in told if problem), "")
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        return f"{checkpoint / SUMS} cannot be read ({_in_a_line(error)})"


def texts_damage(run: Path, checkpoint: Path) -> str:
    """As `log_damage`, of what tokens read as: for readers alone, since every run that goes on writes that anew."""
    try:
        logs: dict[str, Any] = (_read_sums(checkpoint) or {}).get("logs", {})
        return _told(run / TOKENS, TOKENS, logs[TOKENS]) if TOKENS in logs else ""
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return ""  # `log_damage` says it


def _read_sums(folder: Path) -> dict[str, Any] | None:
    try:
        record = cast("dict[str, Any]", read_json(folder / SUMS, INDEX_BYTES))
    except FileNotFoundError:
        return None
    if KEY not in record:
        raise ValueError("it does not end as it was written")
    return without_sum(record)


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, KEY: hashlib.file_digest(file, KEY).hexdigest()}


def _told(path: Path, name: str, entry: Mapping[str, Any], as_prefix: bool = False) -> str:
    """What is wrong with a file; `as_prefix`: it may have become longer since."""
    size, expected = int(entry["bytes"]), str(entry[KEY])
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts:
        raise ValueError(f"{name!r:.60} is no file of this folder")
    if not path.is_file():
        return f"{name} is missing"
    now = check_is_file(path).st_size
    if as_prefix and now > LOG_BYTES:
        return ""  # no reader reads it
    if now < size or (now > size and not as_prefix):
        return f"{name} has {now:,} bytes, {size:,} were written"
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = size
        while left and (data := file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
    if digest.hexdigest() == expected:
        return ""
    part = f" in its first {size:,} bytes" if now > size else ""
    sums = f"SHA-256 {digest.hexdigest()[:_SHOWN]}…, expected {expected[:_SHOWN]}…"
    return f"{name} has other content than was written{part} ({sums})"


# -- single files


def sealed(text: str) -> str:
    """Lines with a last one that is a comment and holds their sum."""
    return f"{text}# SHA-256 of the lines above: {hashlib.sha256(text.encode()).hexdigest()}\n"


def check_settings(path: Path) -> None:
    """Stop if the settings that a run recorded are not those that it wrote."""
    try:
        text = read_bounded(path, SETTINGS_BYTES).decode("utf-8")
    except (OSError, ValueError):
        return  # who reads it says so
    above, _, last = text.rstrip("\n").rpartition("\n")
    match = _LAST_LINE.fullmatch(last)
    if match and hashlib.sha256(f"{above}\n".encode()).hexdigest() != match[1]:
        raise RunError(
            f"{path} is not as the run wrote it: its SHA-256 is not the one in its last line. If you changed it, "
            "delete that line (--set changes a setting of a run that goes on, without that). If not, it is damaged: "
            f"put it back from a copy; every checkpoint has one, {SETTINGS}"
        )


def with_sum(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of a JSON file with their sum among them."""
    plain = {key: value for key, value in entries.items() if key != KEY}
    return {**plain, KEY: _sum_of(plain)}


def without_sum(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries alone; ValueError if they do not fit their sum."""
    plain = {key: value for key, value in entries.items() if key != KEY}
    if KEY in entries and entries[KEY] != _sum_of(plain):
        raise ValueError("its content does not fit its SHA-256")
    return plain


def _sum_of(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
