"""Facts about processes and their machine: usable cores, processor, memory, and the name of a signal."""

from __future__ import annotations

import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

_GIB = 2.0**30
_STATUS = Path("/proc/self/status")


def usable_cores() -> int:
    """Cores that this process may run on: fewer than the machine has where a container or a scheduler limits it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def memory_gib() -> float | None:
    """Main memory of the machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    except (AttributeError, OSError, ValueError):
        return None


def memory_metrics(status: Path = _STATUS) -> dict[str, float]:
    """The most memory that this process has held so far: main memory (Linux), and GPU memory if torch uses a GPU."""
    found: dict[str, float] = {}
    try:  # not getrusage, which begins with the memory of the process that started this one
        peak = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        found["memory/peak"] = int(peak) * 1024 / _GIB
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        found["memory/gpu"] = torch.cuda.max_memory_allocated() / _GIB
    return found


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real-time use have no names
        return f"signal {number}"
