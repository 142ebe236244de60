"""Child processes of ours: how they are started, and how they end with whatever they have started themselves.

A child leads a process group of its own and ends with its parent, however that one ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing import connection, parent_process
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import cast

from isentrope.core.signals import leave_to_the_parent

_starting = threading.Lock()  # a task server starts its workers in threads


@contextmanager
def another_main() -> Generator[None]:
    """A new process begins by importing the script that was started, which trains again if it is not guarded by
    `if __name__ == "__main__"`. A child needs nothing of it, unless it is where a class of its is."""
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def begin_child() -> None:
    """What a child does first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle: it closes the pipe
    leave_to_the_parent()
    os.setpgid(0, 0)  # a group of its own: whatever is started here (a JVM, a shell) ends with this process
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Work that hangs never comes back to read the pipe, so somebody else has to see that the trainer died."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        end_own_group()


def end_own_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def end_child(process: BaseProcess, patience: float = 0.0) -> None:
    """Wait so many seconds for it to leave by itself, then kill it and whatever it has started."""
    process.join(patience)
    # it may be gone, with all it had started; or it had not come so far as to have a group
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(cast("int", process.pid), signal.SIGKILL)
    if process.is_alive():
        process.kill()
        process.join()
