"""Indexes on disk: built once for each corpus file, complete or not there at all, shared by every process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from isentrope.disk import flush_folder
from isentrope.errors import TaskError


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
