"""Finding runs, telling which belong together, and whether they are at work."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from isentrope.report import story
from isentrope.report.groups import grouped
from isentrope.runs import folder
from isentrope.runs.lock import held_locks
from isentrope.watch.answers import alarms_of, phases_of
from isentrope.watch.runs import Run, Runs
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


def test_runs_are_listed_as_people_count(tmp_path: Path) -> None:
    for name in ("s10", "s9", "s9b", "10x2", "10x10", "a"):
        small(tmp_path / name)
    assert [run.name for run in Runs([tmp_path]).refresh()] == ["10x2", "10x10", "a", "s9", "s9b", "s10"]


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


def test_settings_that_say_where_a_run_ran_do_not_part_its_seeds(tmp_path: Path) -> None:
    """As in a comparison by `isentrope report`."""
    a, b = (small(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 1)))
    config = (b / "config.toml").read_text().replace("[run]\n", '[run]\ntrack = "wandb"\nstore_episodes = 5\n')
    (b / "config.toml").write_text(config)
    assert read(a).group == read(b).group
    assert len(grouped([folder.Run.open(a), folder.Run.open(b)])) == 1


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
    assert "metrics.jsonl: one damaged line left out" in problems
    assert made.refresh()[0].kind == "train"


def test_a_run_that_stopped_before_its_first_row_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    event = {"step": 0, "kind": "stop", "name": "ConfigError", "text": "52 prompt tokens leave no room", "remedy": ""}
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    assert Runs([folder]).refresh()[0].problems() == ["The run stopped: 52 prompt tokens leave no room"]


def test_reading_many_runs_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for number in range(5):
        small(tmp_path / f"r{number}")
        os.utime(tmp_path / f"r{number}" / "metrics.jsonl", (0, 1e9 - abs(number - 3)))
    runs = Runs([tmp_path])
    assert [bool(run.read_at) for run in runs.refresh(seconds=-1)] == [False, False, False, True, False]  # the newest
    for _ in range(4):
        found = runs.refresh(seconds=-1)
    assert all(run.columns.rows == 2 for run in found)


def test_few_records_of_a_long_log_are_held_at_once(tmp_path: Path) -> None:
    """What is held for a moment is kept by the allocator, for each thread, and more of it the longer the log is."""
    numbers = ", ".join(f'"a/{n}": 0.{n}1' for n in range(90))
    log = "".join(f'{{"step": {step}, "kind": "train", {numbers}}}\n' for step in range(2000))
    (tmp_path / "metrics.jsonl").write_text(log)
    run = Run(tmp_path, "run")
    tracemalloc.start()
    run.refresh()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run.columns.rows == 2000
    assert peak < 8e6  # the columns have 0.8 MB; all records at once had 16 MB


def test_one_thread_reads_the_logs_whoever_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path / "a")
    readers: set[int] = set()
    monkeypatch.setattr(Run, "refresh", lambda run: readers.add(threading.get_ident()))
    runs = Runs([tmp_path])
    askers = [threading.Thread(target=runs.refresh) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(readers) == 1


@pytest.mark.parametrize("events", [True, False])
def test_phases_are_dated_as_in_the_report_also_while_the_run_grows(tmp_path: Path, events: bool) -> None:
    """Not where the trainer noticed them (41 and 62 in these events), and likewise for runs without events."""
    path = make_watched(tmp_path / "r", events=events)
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("")
    run = read(path)
    for since, until in ((0, 20), (20, 60), (60, len(lines))):
        with (path / "metrics.jsonl").open("a") as file:
            file.writelines(lines[since:until])
        run.refresh()
        if events and until < len(lines):  # the events are all there, from the beginning
            continue
        wanted = [(shade.first, shade.name) for shade in story.phases_of(folder.Run.open(path))]
        found = phases_of(run)
        assert [(first, name) for first, _, name in found] == wanted
        assert [last for _, last, _ in found] == [*(first for first, _, _ in found[1:]), run.columns.last_step]
    assert [name for _, name in wanted] == ["descent", "eruption", "subsidence"]
    assert wanted[1][0] == pytest.approx(46, abs=3)


def test_a_run_written_anew_gets_its_phases_anew(tmp_path: Path) -> None:
    path = make_watched(tmp_path / "r", events=False)
    run = read(path)
    assert len(phases_of(run)) == 3
    (path / "new").write_text("".join((path / "metrics.jsonl").read_text().splitlines(keepends=True)[:20]))
    (path / "new").replace(path / "metrics.jsonl")
    run.refresh()
    assert [name for _, _, name in phases_of(run)] == ["descent"]


def test_alarms_come_from_the_events(tmp_path: Path) -> None:
    run = read(make_watched(tmp_path / "r"))
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
