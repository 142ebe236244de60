"""What is known to work on systems without POSIX (docs/systems.md): every module can be imported there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_POSIX = """
import importlib.util, os, pkgutil, signal, sys
import multiprocessing.connection, subprocess
import pyarrow.parquet, scipy.stats, torch, torch.utils.tensorboard, transformers, uvicorn
for name in "fcntl grp posix pty pwd readline resource termios tty".split():
    sys.modules[name] = None
for name in "fork geteuid getpgid getpgrp getuid killpg mkfifo nice sched_getaffinity setsid statvfs waitid".split():
    delattr(os, name)
for name in "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 alarm setitimer".split():
    delattr(signal, name)
import isentrope
left_out = ["isentrope.__main__", "isentrope.worlds.code_repair.inside"]  # scripts
if importlib.util.find_spec("trl") is None:
    names = "base", "instruments", "looking", "trainer", "worlds"
    left_out += [f"isentrope.plugins.trl.{name}" for name in names]
if importlib.util.find_spec("verl") is None:
    left_out += ["isentrope.plugins.verl.loss", "isentrope.plugins.verl.trainer"]
names = [module.name for module in pkgutil.walk_packages(isentrope.__path__, "isentrope.")]
for name in names:
    if name not in left_out:
        importlib.import_module(name)
from pathlib import Path
from isentrope.core.errors import RunError
from isentrope.runs.lock import hold
try:
    hold(Path(sys.argv[1]) / "run.lock", "taken by {owner}")
except RunError as error:
    print(len(names), error)
"""


@pytest.mark.slow(6)
def test_all_modules_can_be_imported_and_a_run_is_refused_in_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_POSIX, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    count, _, words = done.stdout.partition(" ")
    assert int(count) > 300
    assert "WSL" in words
