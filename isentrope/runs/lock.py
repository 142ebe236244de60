"""The lock of a run folder: one writer at a time. The lock dies with its process."""

from __future__ import annotations

import os
from io import TextIOWrapper
from pathlib import Path

from isentrope.core.errors import RunError, writing
from isentrope.core.limits import check_is_file, read_bounded
from isentrope.runs.layout import LOCK

Locks = set[tuple[int, int]]


def hold(path: Path, refused: str) -> TextIOWrapper:
    """Hold the lock file at `path` until the file that is given back is closed. If another process holds it, a RunError
    says `refused`, with that process in the place of {owner}."""
    try:
        import fcntl
    except ImportError as error:
        raise RunError(
            f"{path.parent} cannot be locked: this system has no file locks of POSIX. Train on Linux or macOS, on "
            "Windows within WSL 2; reading runs (report, doctor, watch, table) works here"
        ) from error
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        lock = os.fdopen(os.open(path, flags, 0o666), "r+")  # no link is followed: its target would be emptied
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read(100).strip() or "unknown"
        lock.close()
        raise RunError(refused.replace("{owner}", owner)) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def held_locks() -> Locks | None:
    """Device and number of every file that somebody on this machine holds; None where the system does not say.

    Trying the lock instead would hold it for a moment, in which a trainer could be refused its own folder.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    held: Locks = set()
    for line in lines:
        for part in line.split():
            pieces = part.split(":")
            if len(pieces) == 3 and pieces[2].isdigit():
                held.add((os.makedev(int(pieces[0], 16), int(pieces[1], 16)), int(pieces[2])))
    return held


def is_alive(run: Path, locks: Locks | None) -> bool:
    """Whether a process of this machine is writing to the run folder."""
    path = run / LOCK
    try:
        status = check_is_file(path)
        if locks is not None:
            return (status.st_dev, status.st_ino) in locks
        os.kill(int(read_bounded(path, 100)), 0)
    except (OSError, ValueError, OverflowError):
        return False
    return True
