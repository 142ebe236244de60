"""Where the tasks of a world are played: in this process, in its threads, in worker processes.

`task.where` says it for a run; a world says with `prefers` and `threads` (contract.py) what suits it. Addresses of task
servers are read in config/validate.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from isentrope.config.validate import is_remote
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import World

MOST_THREADS = 256


@dataclass(frozen=True)
class Place:
    """Worker processes, or threads of this process; neither: this thread."""

    workers: int = 0
    threads: int = 0


def place_of(where: str, workers: int, world: World) -> Place:
    """What the user asks for comes first, then what the world prefers."""
    here = Place(threads=_threads(world))
    if is_remote(where) or where == "local":
        return here
    asked = Place(workers=workers or cores())
    if where == "processes":
        return asked
    prefers = getattr(world, "prefers", "local")
    if prefers not in ("local", "processes"):
        raise TaskError(f"the world {world.name} prefers {prefers!r}, expected local or processes")
    return asked if workers or prefers == "processes" else here


def _threads(world: World) -> int:
    found = getattr(world, "threads", 0)
    if not isinstance(found, int) or not 0 <= found <= MOST_THREADS:
        raise TaskError(f"the world {world.name} has threads = {found!r}, expected 0 to {MOST_THREADS}")
    return found


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
