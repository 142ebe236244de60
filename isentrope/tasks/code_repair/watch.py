"""What the processes of a box take together, read from /proc: no limit of the kernel's own sums that up per box."""

from __future__ import annotations

import os
from pathlib import Path

from isentrope.tasks.code_repair.sandbox import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")


def passed_limit(pid: int, limits: Limits, work: str) -> str:
    """`memory` or `files` if the box whose outermost process is `pid` takes more than it may; else nothing."""
    family = descendants(pid)
    if sum(_resident(member) for member in family) > limits.memory:
        return "memory"
    if family and _files_made(family[-1], work) > limits.files:
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


def _files_made(pid: int, work: str) -> int:
    """Files in the box's work folder, a file system of its own. The box cannot move it: its root is read-only."""
    try:
        room = os.statvfs(f"/proc/{pid}/root{work}")
    except OSError:
        return 0
    return room.f_files - room.f_ffree
