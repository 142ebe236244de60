"""What the processes of a box take together, read from /proc: no limit of the kernel's own sums that up per box."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from isentrope.tasks.code_repair.sandbox import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")


def passed_limit(pid: int, limits: Limits, folders: Sequence[str]) -> str:
    """`memory` or `files` if the box whose outermost process is `pid` takes more than it may; else nothing."""
    family = descendants(pid)
    if sum(_resident(member) for member in family) > limits.memory:
        return "memory"
    if family and _files_made(family[-1], folders) > limits.files:
        return "files"
    return ""


def descendants(pid: int) -> list[int]:
    """All processes below `pid`. Orphans of a box go to its first process, so none gets away."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    except OSError:
        pass  # it has ended meanwhile
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _files_made(pid: int, folders: Sequence[str]) -> int:
    """Files in the box's own folders, each a file system. The box cannot move them: its root is read-only.

    As a box is being set up its process still sees the machine's /tmp, which does not count.
    """
    made = 0
    for folder in folders:
        inside = f"/proc/{pid}/root{folder}"
        try:
            if not os.path.exists(folder) or os.stat(inside).st_dev != os.stat(folder).st_dev:
                room = os.statvfs(inside)
                made += room.f_files - room.f_ffree
        except OSError:
            continue  # not there yet, or not any more
    return made
