"""Runs a module of ours in a process of its own, with limits of time, memory and output: work on what is not trusted,
or that would leave a long-lived process larger than it was."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from isentrope.sandbox.base import Limits, Outcome
from isentrope.sandbox.limits import run_bounded

START = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


def run_module(module: str, told: bytes, limits: Limits) -> Outcome:
    """`told` is what the module's `main` reads; what it writes is the outcome's output."""
    command = [sys.executable, "-P", "-c", START.format(path=import_path(), module=module)]
    return run_bounded(command, told, limits, partial(_watch, limits.memory))


def import_path() -> list[str]:
    """Where packages are. The current folder is none of it: somebody may work in the folder of a stranger."""
    here, own = Path.cwd(), Path(__file__).parents[2]
    places = [Path(place or ".").absolute() for place in sys.path]
    return [str(own), *(str(place) for place in places if place != here and place.parent != here)]


def _watch(memory: int, process: int) -> str:
    """Linux alone says here what a process takes; elsewhere its own limits hold."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return "memory" if pages * os.sysconf("SC_PAGE_SIZE") > memory else ""
    return ""
