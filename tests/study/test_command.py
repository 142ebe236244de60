"""`isentrope study` as one uses it, with real runs: killed in the middle and gone on with, one cell broken."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.study.read import DONE, FAILED, UNFINISHED, read_study
from tests.builders.run_folders import whole_run

DEMO = Path(__file__).parents[2] / "recipes" / "demo.toml"
TINY = f"""
recipe = "{DEMO}"
seeds = 1
against = "grpo"
set = [
  "run.steps=6", "run.eval_every=0", "run.checkpoint_every=1", "rollout.groups=2", "rollout.group_size=2",
  "learn.mini_batches=1", "task.max_turns=4", "eval.games=4", "eval.splits=unseen", "instruments.probe_every=0",
]
[cells.grpo]
[cells.broken]
extends = "grpo"
set = ["policy.model=no-such-folder"]
"""


def study(*words: str) -> Result:
    """Where the process is not what is looked at: in this one, which has torch already."""
    return CliRunner().invoke(app, ["study", "tiny.toml", *words], env={"COLUMNS": "200"})


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"isentrope.study.child" in words and str(parent).encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(DEMO.parents[1]))  # for the runs, each of them a process
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.mark.slow(15)
def test_a_study_that_is_killed_goes_on_where_it_was(here: Path) -> None:
    folder = here / "runs" / "tiny"
    listed = study("--dry-run")
    assert listed.exit_code == 0, listed.stderr
    assert "2 runs, 0 of them done" in listed.stdout
    assert not folder.exists()

    command = [sys.executable, "-m", "isentrope", "study", "tiny.toml", "--only", "grpo"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    checkpoint = folder / "grpo" / "seed-0" / "checkpoints" / "step-000001"
    end = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert checkpoint.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    while _children(process.pid) and time.monotonic() < end:  # they die with it
        time.sleep(0.02)
    assert not _children(process.pid)
    assert {run.status for run in read_study(folder).cell("grpo")} == {UNFINISHED}

    went_on = study("-n", "2")
    assert went_on.exit_code == 1, went_on.output  # one failed
    data = read_study(folder)
    assert {run.cell: run.status for run in data.runs} == {"grpo": DONE, "broken": FAILED}
    assert "no-such-folder" in data.cell("broken")[0].reason
    assert data.cell("grpo")[0].series("entropy/token")[0] == (1, 2, 3, 4, 5, 6)
    assert not checkpoint.exists()  # metrics alone are kept

    again = study()
    assert again.exit_code == 1
    assert "1 done, 1 failed" in again.stdout
    tables = study("--tables")
    assert tables.exit_code == 0, tables.stderr
    assert "1 of 2 runs are done, in 1 of 2 cells; 1 failed" in tables.stdout
    assert (folder / "results" / "index.html").is_file()
    assert study("--compact", "docs").exit_code == 0
    told = tuple(replace(run, command="") for run in data.runs)  # which names places on this machine
    assert tuple(read_study(here / "docs").runs) == told


def test_a_study_whose_settings_changed_is_not_mixed(here: Path) -> None:
    whole_run(here / "runs" / "tiny", "grpo", 0, 0.5)
    refused = study()
    assert refused.exit_code == 2
    assert "was begun with other settings" in refused.stderr


def test_one_process_at_a_time_runs_a_study(here: Path) -> None:
    (here / "runs" / "tiny").mkdir(parents=True)
    with (here / "runs" / "tiny" / "study.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = study()
    assert refused.exit_code == 2
    assert "another process runs the study" in refused.stderr


def test_a_run_can_be_asked_to_end_though_its_study_was_started_in_the_background(tmp_path: Path) -> None:
    inside = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import os, sys; os.execv(sys.executable, {})"
    child = [sys.executable, "-m", "isentrope.study.child", str(os.getpid()), "play", "household"]
    with subprocess.Popen(
        [sys.executable, "-c", inside.format(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the game has begun, and waits for a command
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
