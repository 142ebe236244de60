"""The number of runs that the device holds at a time.

On the CPU one for each core. On a GPU the first run is started alone; what it takes once it learns tells how many more
have room, up to one for each core, since every run needs one for its tasks and its bookkeeping.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

_FILLED = 0.9  # share of the memory that is given out
_SPARE = 1.15  # runs grow: episodes get longer


@dataclass
class Room:
    """Whether one more run may be started. `most` is a limit that somebody asked for or the number of cores."""

    most: int
    memory: Callable[[], tuple[float, float] | None] | None = None  # used and total, in MiB; None: not asked
    each: float = 0.0  # MiB of a run; 0: not known yet

    def __post_init__(self) -> None:
        seen = self.memory() if self.memory else None
        self._before = seen[0] if seen else 0.0

    def has_room(self, running: int, learning: int) -> bool:
        """`running` runs are under way, `learning` of them have done a step."""
        if running == 0:
            return True
        if running >= self.most:
            return False
        if self.memory is None:
            return True
        if not self.each and (learning < running or not self._measure(running)):
            return False
        seen = self.memory()
        return seen is not None and self._before + (running + 1) * self.each * _SPARE <= _FILLED * seen[1]

    def _measure(self, running: int) -> bool:
        seen = self.memory() if self.memory else None
        if seen is not None:
            self.each = max(1.0, (seen[0] - self._before) / running)
        return seen is not None


def room_for(device: str, asked: int, cores: int) -> Room:
    if asked:
        return Room(asked)
    on_gpu = device.startswith("cuda") or (device == "auto" and gpu_memory() is not None)
    return Room(cores, gpu_memory) if on_gpu else Room(cores)


def gpu_memory() -> tuple[float, float] | None:
    """MiB in use and in all, of the first GPU; None where there is none to ask."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
        used, total = told.splitlines()[0].split(",")
        return float(used), float(total)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
