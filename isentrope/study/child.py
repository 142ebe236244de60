"""Starts one run of a study in a process of its own, which ends when the study does.

    python -m isentrope.study.child PID train RECIPE --out FOLDER

A study that is killed must not leave runs behind: they would hold their folders, and the study could not go on. Linux
tells a process when its parent has died; elsewhere the run goes on, and the study that is started again waits for it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            sys.exit(1)


def obey() -> None:
    """A study that a script starts in the background ignores SIGINT, and so would its runs, whom it asks so to end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    obey()
    sys.argv = ["isentrope", *sys.argv[2:]]
    runpy.run_module("isentrope", run_name="__main__", alter_sys=True)
