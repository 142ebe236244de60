"""Whether other programs keep the cores busy.

Threads that compute together wait for the last of them, so one that finds no free core holds up all: small matrix
products on a CPU become many times slower. Linux tells it, other systems do not.
"""

from __future__ import annotations

import time
from pathlib import Path

CROWDED = 0.25  # seconds of waiting in a second; with free cores it is about 0.01
_TASKS = Path("/proc/self/task")


def waited(tasks: Path = _TASKS) -> float | None:
    """Seconds that the threads of this process were ready to run and had no core, all together; None: not told."""
    nanoseconds, told = 0, False
    for thread in tasks.glob("*/schedstat"):
        try:
            nanoseconds += int(thread.read_text().split()[1])  # computed, waited, slices of time
            told = True
        except (OSError, ValueError, IndexError):
            continue  # a thread that has just ended, or another kernel's form
    return nanoseconds / 1e9 if told else None


class Cores:
    """How long threads waited for a core, in seconds a second, from one look to the next."""

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._time, self._waited = time.perf_counter(), waited(tasks)

    def look(self) -> float | None:
        now, waits = time.perf_counter(), waited(self._tasks)
        before, self._time, since, self._waited = self._waited, now, now - self._time, waits
        if waits is None or before is None or since <= 0:
            return None
        return max(0.0, waits - before) / since  # threads that have ended take their count with them
