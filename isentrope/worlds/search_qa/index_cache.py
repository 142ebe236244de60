"""Keeps passages and their index in memory-mapped files, built once for a corpus and shared by all processes."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import sys
import tempfile
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from isentrope.core.errors import TaskError
from isentrope.runs.atomic import flush_folder
from isentrope.worlds.search_qa.passages import Passage

_TEXT, _ENDS = "passages.jsonl", "ends.npy"


class PassageFile:
    """Passages by number, from a folder that `write` filled. They are not read into memory, however many there are."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / _ENDS, mmap_mode="r")
        with (folder / _TEXT).open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> Passage:
        begin = int(self._ends[number - 1]) if number else 0
        return Passage(*json.loads(self._text[begin : int(self._ends[number])]))


def write(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Write the passages as they pass through, so that one reading of the corpus serves for the index too."""
    ends, place = array("q"), 0
    with (folder / _TEXT).open("wb") as file:
        for passage in passages:
            place += file.write(json.dumps([passage.id, passage.title, passage.text]).encode() + b"\n")
            ends.append(place)
            yield passage
    np.save(folder / _ENDS, np.frombuffer(ends, dtype=np.int64))


def cache_folder(option: str) -> Path:
    """Where indexes are kept: the option, else `$ISENTROPE_CACHE`, else the system's folder for caches."""
    if option:
        return Path(option).expanduser()
    own = os.environ.get("ISENTROPE_CACHE")
    if own:
        return Path(own).expanduser() / "search"
    base = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "isentrope" / "search"


def key_of(corpus: Path, made_with: str) -> str:
    """A name for the index of this file as it is now: another size, time of change or maker gives another name."""
    stat = corpus.stat()
    what = json.dumps([str(corpus.resolve()), stat.st_size, stat.st_mtime_ns, made_with])
    stem = "".join(char if char.isalnum() or char in "-_" else "_" for char in corpus.name.split(".")[0])[:40]
    return f"{stem}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def built(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, filled by `build` unless it is there. Whoever comes while it is being built waits for it.

    It is filled under another name and then renamed, so that a build that was stopped leaves no half of an index.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_suffix(".lock")):
            if folder.is_dir():
                return folder
            for left in folder.parent.glob(f".{folder.name}-*"):  # by a build that was killed
                shutil.rmtree(left, ignore_errors=True)
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                build(draft)
                draft.chmod(0o755)
                flush_folder(draft)
                draft.rename(folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise TaskError(
            f"could not write the index {folder}: {error.strerror or error}; choose another folder with the option "
            "cache, or free some space"
        ) from error
    return folder


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    """Hold the lock file. Where the system has no such locks, two may build at the same time: the first one's stays."""
    with lock.open("w") as file:
        try:
            import fcntl
        except ImportError:
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
