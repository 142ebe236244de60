"""Finding runs, telling which belong together, and whether they are at work."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from isentrope.watch.events import alarms_of, phases_of
from isentrope.watch.runs import Run, Runs, held_locks
from tests.watch.make_runs import make_watched


def small(path: Path, seed: int = 0, lr: str = "1e-6", steps: int = 2, done: int = 2) -> Path:
    path.mkdir(parents=True)
    (path / "config.toml").write_text(f"[run]\nseed = {seed}\nsteps = {steps}\n[learn]\nlr = {lr}\n")
    lines = [f'{{"step": {step}, "kind": "train", "success/all": 0.5}}\n' for step in range(1, done + 1)]
    (path / "metrics.jsonl").write_text("".join(lines))
    return path


def read(path: Path) -> Run:
    run = Run(path, path.name)
    run.refresh()
    return run


def old(path: Path) -> Path:
    long_ago = time.time() - 9999
    for file in path.iterdir():
        os.utime(file, (long_ago, long_ago))
    return path


def test_runs_are_found_below_the_folders_and_new_ones_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path / "a" / "grpo")
    small(tmp_path / "a" / "grpo" / "warmup")
    small(tmp_path / "b")
    (tmp_path / "a" / "grpo" / "checkpoints" / "config.toml").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "metrics.jsonl").touch()
    runs = Runs([tmp_path])
    assert [run.name for run in runs.refresh()] == ["a/grpo", "a/grpo/warmup", "b"]
    monkeypatch.setattr("isentrope.watch.runs._LOOK_AGAIN", 0.0)
    small(tmp_path / "c")
    assert [run.name for run in runs.refresh()] == ["a/grpo", "a/grpo/warmup", "b", "c"]
    assert [run.name for run in Runs([tmp_path / "b", tmp_path / "a"]).refresh()] == ["a/grpo", "a/grpo/warmup", "b"]


def test_a_run_named_twice_is_one_run(tmp_path: Path) -> None:
    small(tmp_path / "a")
    assert len(Runs([tmp_path, tmp_path / "a", tmp_path / "a" / ".." / "a"]).refresh()) == 1


def test_runs_that_differ_by_the_seed_belong_together(tmp_path: Path) -> None:
    a, b, c = (
        read(small(tmp_path / name, seed, lr))
        for name, seed, lr in (("a", 0, "1e-6"), ("b", 1, "1e-6"), ("c", 0, "2e-6"))
    )
    assert a.group == b.group
    assert a.group != c.group
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare2").mkdir()
    assert read(tmp_path / "bare").group != read(tmp_path / "bare2").group


def test_status(tmp_path: Path) -> None:
    now = time.time()
    finished, stopped = read(old(small(tmp_path / "f"))), read(old(small(tmp_path / "s", steps=9)))
    writing = read(small(tmp_path / "w", steps=9))
    (tmp_path / "e").mkdir()
    assert finished.status(held_locks(), now) == "finished"
    assert stopped.status(held_locks(), now) == "stopped"
    assert writing.status(held_locks(), now) == "running"
    assert read(tmp_path / "e").status(held_locks(), now) == "empty"


def test_a_held_lock_means_running_and_looking_does_not_take_it(tmp_path: Path) -> None:
    run = read(old(small(tmp_path / "r", steps=9)))
    lock = tmp_path / "r" / "run.lock"
    with lock.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(str(os.getpid()))
        held.flush()
        assert run.status(held_locks(), time.time() - 9900) == "running"
        assert run.status(held_locks(), time.time()) == "stalled"
        assert run.status(None, time.time() - 9900) == "running"  # without /proc/locks: is its process alive?
    assert run.status(held_locks(), time.time()) == "stopped"


def test_what_is_missing_or_broken_is_said(tmp_path: Path) -> None:
    run = tmp_path / "r"
    run.mkdir()
    assert read(run).problems() == []  # not read through Runs yet
    made = Runs([run])
    (run / "run.json").write_text("{")
    (run / "config.toml").write_text("a = [")
    (run / "metrics.jsonl").write_text("nonsense\n")
    problems = made.refresh()[0].problems()
    assert any(text.startswith("config.toml could not be read") for text in problems)
    assert "metrics.jsonl: 1 line is no record" in problems
    assert made.refresh()[0].kind == "train"


def test_reading_many_runs_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for number in range(5):
        small(tmp_path / f"r{number}")
    runs = Runs([tmp_path])
    assert [bool(run.read_at) for run in runs.refresh(seconds=-1)] == [True, False, False, False, False]
    for _ in range(4):
        found = runs.refresh(seconds=-1)
    assert all(run.columns.rows == 2 for run in found)


def test_phases_and_alarms_come_from_the_events(tmp_path: Path) -> None:
    run = read(make_watched(tmp_path / "r"))
    assert phases_of(run) == [(0, 41, "descent"), (41, 62, "eruption"), (62, 100, "subsidence")]
    (alarm,) = alarms_of(run)
    assert (alarm["step"], alarm["name"]) == (44, "eruption")
    assert alarm["text"].startswith("Entropy rose from 0.34")


def test_a_run_begins_with_a_descent(tmp_path: Path) -> None:
    """The trainer records changes only."""
    run = small(tmp_path / "r", done=9)
    (run / "events.jsonl").write_text('{"step": 4, "kind": "phase", "name": "eruption", "text": ""}\n')
    assert phases_of(read(run)) == [(0, 4, "descent"), (4, 9, "eruption")]


def test_without_events_the_metrics_tell(tmp_path: Path) -> None:
    run = small(tmp_path / "r")
    phases = [0, 0, 1, 1, 2, 0]
    lines = [
        f'{{"step": {step}, "kind": "train", "phase": {phase}, "alarm/collapse": {int(step == 3)}}}\n'
        for step, phase in enumerate(phases)
    ]
    (run / "metrics.jsonl").write_text("".join(lines))
    made = read(run)
    assert phases_of(made) == [(0, 2, "descent"), (2, 4, "eruption"), (4, 5, "subsidence"), (5, 5, "descent")]
    assert [(alarm["step"], alarm["name"]) for alarm in alarms_of(made)] == [(3, "collapse")]
    assert phases_of(read(small(tmp_path / "none"))) == []


def test_events_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    run = small(tmp_path / "r")
    (run / "events.jsonl").write_text(
        '{"step": 1, "kind": "phase", "name": "volcano"}\n{"step": 1, "kind": "alarm", "text": {"a": 1}}\n7\n'
    )
    made = read(run)
    assert phases_of(made) == []
    assert alarms_of(made) == [{"step": 1, "name": "", "text": "", "remedy": ""}]
