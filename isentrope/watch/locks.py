"""Whether a trainer holds its run folder, without touching the lock."""

from __future__ import annotations

import os
from pathlib import Path


def held_locks() -> set[tuple[int, int]] | None:
    """Device and number of every file that somebody on this machine holds; None where the system does not say.

    Trying the lock instead would hold it for a moment, in which a trainer could be refused its own folder.
    """
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    held: set[tuple[int, int]] = set()
    for line in lines:
        for part in line.split():
            pieces = part.split(":")
            if len(pieces) == 3 and pieces[2].isdigit():
                held.add((os.makedev(int(pieces[0], 16), int(pieces[1], 16)), int(pieces[2])))
    return held


def is_held(path: Path, locks: set[tuple[int, int]] | None) -> bool:
    try:
        status = path.stat()
        if locks is not None:
            return (status.st_dev, status.st_ino) in locks
        os.kill(int(path.read_text()), 0)
    except (OSError, ValueError, OverflowError):
        return False
    return True
