"""Checks whether other programs keep the CPU cores busy.

Threads that compute together wait for the last of them, so one that finds no free core holds up all: small matrix
products on a CPU become many times slower. Linux tells it, other systems do not.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from isentrope.loop.progress import Progress

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


class Crowd:
    """Measures in every step whether other programs keep the cores busy, and says it once."""

    def __init__(self, progress: Progress, device: torch.device, cores: Cores | None = None) -> None:
        self.progress, self.device, self.cores, self.advised = progress, device, cores or Cores(), False

    def begin(self) -> None:
        self.cores.look()  # what comes before a step is not part of it

    def look(self, step: int) -> dict[str, float]:
        waited = self.cores.look()
        if not self.advised and (advice := crowded(waited, self.device)):
            self.progress.say(f"step {step}: {advice}")
            self.advised = True
        return {} if waited is None else {"cores/waited": waited}


def crowded(waited: float | None, device: torch.device, threads: int | None = None) -> str:
    """Advice where other programs keep the cores busy that several threads compute on; empty if there is none."""
    threads = torch.get_num_threads() if threads is None else threads
    if waited is None or waited < CROWDED or device.type != "cpu" or threads == 1:
        return ""
    return (
        f"other programs keep the cores busy: {threads} threads waited for them for {waited:.1f} s in every second, "
        "and wait for each other. One thread alone is then often several times faster: stop with Ctrl-C and go on with "
        "--resume --set run.threads=1"
    )
