"""Facts about processes: how many cores this one may use, and the name of a signal that ended another."""

from __future__ import annotations

import os
import signal


def usable_cores() -> int:
    """Cores that this process may run on: fewer than the machine has where a container or a scheduler limits it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real-time use have no names
        return f"signal {number}"
