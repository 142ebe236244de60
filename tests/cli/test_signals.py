"""Signals as a terminal, SLURM or docker send them: what a real process says, its status, and that nobody is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.core.signals import Interrupted
from isentrope.loop.train import train
from tests.builders.toy_runs import WARM_MODEL, toy_config

SETTINGS = (
    "task.world=tests.toys:ToyWorld", "task.max_turns=4", "agent.prompt=brief", "agent.max_response=10",
    "agent.max_context=400", f"policy.model={WARM_MODEL}", "run.threads=1", "run.device=cpu", "rollout.groups=2",
    "rollout.group_size=3", "learn.mini_batches=2", "eval.splits=['seen']", "eval.games=6", "run.checkpoint_every=1000",
)  # fmt: skip
SETS = [word for setting in SETTINGS for word in ("--set", setting)]


@contextmanager
def started(*arguments: str, here: Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, of which nobody may be left."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "isentrope", *arguments]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, start_new_session=True, cwd=here, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()  # else a failure would wait for it for ever


def wait_for(process: subprocess.Popen[str], path: Path, lines: int = 1) -> None:
    while not path.is_file() or path.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def of_session(number: int) -> list[str]:
    """The processes of a session that are still there, in words."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == number and fields[0] != "Z":
                found.append((path.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.slow(8)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc who is still there")
def test_a_run_with_workers_saves_and_says_how_it_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "first"
    words = ("train", "--out", "runs/first", *SETS, "--set", "task.workers=1", "--set", "run.steps=5000")
    with started(*words, here=tmp_path) as process:
        wait_for(process, run / "metrics.jsonl", lines=4)
        os.killpg(process.pid, signal.SIGUSR1)  # as SLURM signals all processes of a job
        said, told = process.communicate(timeout=120)
        assert process.returncode == 143, told
    last = max(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))
    assert last >= 2
    assert f"stopped by SIGUSR1: runs/first, it goes on from the checkpoint of step {last}" in said
    assert told.splitlines()[-1].startswith("to go on: ")
    assert told.splitlines()[-1].endswith("--set task.workers=1 --set run.steps=5000 --resume")
    assert "isentrope train --out runs/first --set task.world=tests.toys:ToyWorld" in told
    assert "Traceback" not in said + told
    for _ in range(100):  # a worker that was told to go needs a moment
        if not (left := of_session(process.pid)):
            break
        time.sleep(0.1)
    assert left == []


@pytest.mark.slow(6)
@pytest.mark.skipif(sys.platform != "linux", reason="runs of a study die with it on Linux alone")
def test_a_study_passes_it_on(tmp_path: Path) -> None:
    settings = [*SETTINGS, "run.steps=5000"]
    (tmp_path / "s.toml").write_text(f'name = "s"\nseeds = 1\nsplit = "seen"\nset = {settings!r}\n[cells.one]\n')
    run = tmp_path / "runs" / "s" / "one" / "seed-0"
    with started("study", "s.toml", here=tmp_path) as process:
        try:
            wait_for(process, run / "metrics.jsonl", lines=4)
        finally:
            process.terminate()
        said, told = process.communicate(timeout=120)
        assert process.returncode == 143, told
    assert "to go on: " in said + told
    assert list((run / "checkpoints").glob("step-*"))
    assert "Traceback" not in said + told + (run.parent / "seed-0.log").read_text()


def test_the_words_to_go_on_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(*_: object, **__: object) -> None:
        raise Interrupted(signal.SIGHUP)

    monkeypatch.setattr("isentrope.loop.train.train", asked)
    words = ["train", "demo", "--out", str(tmp_path / "a b"), "--set", "run.steps=3", "--trust"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 143
    assert done.stderr.splitlines()[-1].endswith(
        f"train demo --out '{tmp_path}/a b' --set run.steps=3 --trust --resume"
    )


def test_from_step_needs_resume(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "demo", "--out", str(tmp_path / "a"), "--from-step", "3"])
    assert done.exit_code == 2
    assert "add --resume" in done.stderr


def test_a_second_signal_ends_at_once() -> None:
    """What the process is doing then is not waited for, and nothing is said."""
    code = """
import os, signal, sys, time
from isentrope.core.signals import second_interrupt_ends_at_once
from isentrope.loop.stop import Stop
if sys.argv[1] == "SIGINT":
    second_interrupt_ends_at_once()
number = signal.Signals[sys.argv[1]]
try:
    with Stop(1000) as stop, stop.waits():
        os.kill(os.getpid(), number)
        time.sleep(1.1)
        os.kill(os.getpid(), number)
        time.sleep(100)
except KeyboardInterrupt:
    os.kill(os.getpid(), number)
    time.sleep(100)
"""
    for name, status in (("SIGTERM", 143), ("SIGINT", 130)):
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, ""), name


def test_in_a_thread_signals_stay_the_programs(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)]
    within: list[object] = []

    def run() -> None:
        train(toy_config(WARM_MODEL, "run.steps=1", "run.eval_every=0"), tmp_path / "a", quiet=True)
        within.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert within == before
    assert (tmp_path / "a" / "checkpoints" / "step-000001").is_dir()
