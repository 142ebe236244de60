"""Finds what a path holds, and reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from isentrope.core.errors import RunError
from isentrope.core.limits import IMPORT_FILES, check_is_file
from isentrope.core.text import count, listed
from isentrope.imports.lines import is_console, read_console, read_csv, read_jsonl, read_trainer_state
from isentrope.imports.series import Series
from isentrope.imports.tensorboard import is_event_file, read_event_files
from isentrope.imports.wandb import read_wandb

TRAINER_STATE = "trainer_state.json"
TITLES = {
    "tensorboard": "TensorBoard event files",
    "wandb": "a W&B offline run",
    "trainer_state": "trainer_state.json",
    "jsonl": "JSONL",
    "csv": "CSV",
    "console": "verl's console output",
}
_ENDINGS = {".wandb": "wandb", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv"}
_TEXTS = (".log", ".txt", ".out", "")
_LOOKED_AT = 20_000  # entries of a folder
_DEEPEST = 4  # folders within each other
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_SHOWN = 5


@dataclass(frozen=True)
class Source:
    kind: str  # one of TITLES
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()  # what else lay there

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    @property
    def words(self) -> str:
        """`runs/a/events.out... and 2 more (TensorBoard event files)`"""
        others = len(self.files) - 1
        return f"{self.files[0]}{f' and {others} more' if others else ''} ({self.title})"


def find(path: Path) -> Source:
    """What is to be read of a file or folder; a RunError where that cannot be told."""
    try:
        return _in_folder(path) if path.is_dir() else _of_file(path)
    except OSError as error:
        raise RunError(f"could not read {path}: {error.strerror or error}; give a log file, or its folder") from error


def read(source: Source, step_key: str = "") -> Series:
    """All numbers of it. What could not be read is in the series' `problems`; a RunError where nothing can be."""
    series = Series(restarts=source.kind == "tensorboard")
    first = source.files[0]
    try:
        if source.kind == "tensorboard":
            read_event_files(list(source.files), series)
        elif source.kind == "wandb":
            read_wandb(first, series, step_key)
        elif source.kind == "trainer_state":
            read_trainer_state(first, series)
        elif source.kind == "console":
            read_console(first, series)
        elif source.kind == "csv":
            read_csv(first, series, step_key)
        else:
            read_jsonl(first, series, step_key)
    except OSError as error:
        raise RunError(f"could not read {first}: {error.strerror or error}") from error
    if not series.numbers:
        why = f" ({'; '.join(series.problems[:3])})" if series.problems else ""
        raise RunError(f"{first} has no numbers that belong to a step{why}; it was read as {source.title}")
    return series


def _of_file(path: Path) -> Source:
    check_is_file(path, found=False)
    if is_event_file(path):
        return Source("tensorboard", (path,))
    if path.suffix == ".json":
        return Source("trainer_state", (path,))
    if path.suffix in _ENDINGS:
        return Source(_ENDINGS[path.suffix], (path,))
    if path.suffix in _TEXTS and is_console(path):
        return Source("console", (path,))
    raise RunError(
        f"{path} is no log that can be imported: expected events.out.tfevents.*, *.wandb, {TRAINER_STATE}, *.jsonl, "
        "*.csv, or the console output of verl (lines with `step:3 - actor/entropy:0.4`)"
    )


def _in_folder(folder: Path) -> Source:
    """The newest state of a trainer, else event files, else W&B's log, else the only JSONL or CSV that there is."""
    files = list(islice(_files(folder), _LOOKED_AT))
    states = sorted((path for path in files if path.name == TRAINER_STATE), key=_checkpoint)
    events = [path for path in files if is_event_file(path)]
    logs = [path for path in files if path.suffix == ".wandb"]
    others = [path for path in files if path.suffix in (".jsonl", ".ndjson", ".csv", ".tsv")]
    beside = [TITLES[kind] for kind, there in (("tensorboard", events), ("wandb", logs)) if there]
    if states:
        note = f"{listed(beside)} in the same folder may go further than the last checkpoint: name them to read those"
        return Source("trainer_state", (states[-1],), (note,) if beside else ())
    if events:
        return _events(folder, events)
    for kind, found in (("wandb", logs), ("", others)):
        if len(found) == 1:
            return Source(kind or _ENDINGS[found[0].suffix], (found[0],))
        if found:
            raise RunError(f"{folder} has {len(found)} logs; name the one to import: {_some(found)}")
    raise RunError(
        f"{folder} has no log that can be imported: neither event files of TensorBoard, nor *.wandb, {TRAINER_STATE}, "
        "*.jsonl or *.csv"
    )


def _events(folder: Path, events: list[Path]) -> Source:
    """Those of one folder: TensorBoard takes each folder for a run of its own."""
    folders = sorted({path.parent for path in events})
    if len(folders) > 1 and folder not in folders:
        raise RunError(f"{folder} has event files of {len(folders)} runs; name the one to import: {_some(folders)}")
    place = folder if folder in folders else folders[0]
    files = sorted((path for path in events if path.parent == place), key=_begun)
    note = (
        f"{count(len(folders) - 1, 'folder')} below with event files not read: TensorBoard takes those for other runs"
    )
    return Source("tensorboard", tuple(files), (note,) if len(folders) > 1 else ())


def _files(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Plain files, no links followed."""
    try:
        entries = sorted(islice(folder.iterdir(), IMPORT_FILES * 5))
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir() and depth < _DEEPEST:
            yield from _files(entry, depth + 1)


def _checkpoint(path: Path) -> tuple[int, str]:
    """By the step of its checkpoint; that of the whole run, which lies beside them, is the newest."""
    match = _CHECKPOINT.fullmatch(path.parent.name)
    return (int(match[1]) if match else 10**12, str(path))


def _begun(path: Path) -> tuple[int, str]:
    """By the second that stands in the name: events.out.tfevents.SECOND.HOST..."""
    match = re.search(r"tfevents\.(\d{1,15})", path.name)
    return (int(match[1]) if match else 0, path.name)


def _some(paths: list[Path]) -> str:
    return ", ".join(str(path) for path in paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
