"""The queue with small programs in the place of runs: what is started when, and what is done about each end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.runs.log import last_records
from isentrope.study.jobs import Job
from isentrope.study.plan import log_file, note_file, read_note
from isentrope.study.queue import RUNNING, WAITING, Queue, Room, reason_of
from isentrope.study.read import DONE, FAILED

CONFIG = "[run]\nsteps = 2\nseed = 0\n"
STEPS = (
    "import json, pathlib, sys, time\n"
    "run = pathlib.Path(sys.argv[1]); run.mkdir(parents=True, exist_ok=True)\n"
    f"(run / 'config.toml').write_text({CONFIG!r})\n"
    "(run / 'checkpoints').mkdir(exist_ok=True)\n"
    "with (run / 'metrics.jsonl').open('a') as log:\n"
    "    for row in ({'step': 0, 'kind': 'eval'}, {'step': 1, 'kind': 'train'}, {'step': 2, 'kind': 'train'},\n"
    "                {'step': 2, 'kind': 'eval', 'eval/unseen/success': 0.5}):\n"
    "        log.write(json.dumps(row) + chr(10)); log.flush()\n"
)
SLEEP = "import time; time.sleep(60)\n"
FAIL = "import sys; print('no such thing: 7'); sys.exit(2)\n"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"


class Small(Queue):
    """A job's command is a program for Python."""

    def command(self, job: Job) -> list[str]:
        return [sys.executable, "-c", job.command[0], str(job.folder)]


def job(folder: Path, name: str, program: str, needs: str = "", steps: int = 2) -> Job:
    return Job(name, folder / name, (program,), steps, needs, (f"x={name}",))


def run(queue: Queue, seconds: float = 30.0) -> Queue:
    end = time.monotonic() + seconds
    while not queue.finished:
        assert time.monotonic() < end
        queue.turn()
        time.sleep(0.02)
    return queue


def states(queue: Queue) -> list[str]:
    return [entry.state for entry in queue.entries]


def queue_of(jobs: Sequence[Job], most: int = 2, keep: str = "all", retry: bool = False) -> Queue:
    return Small(jobs, Room(most), 1, keep, retry)


def test_all_are_run_and_a_failure_holds_nobody_up(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a", STEPS), job(tmp_path, "b", FAIL), job(tmp_path, "c", STEPS)]
    queue = run(queue_of(jobs))
    assert states(queue) == [DONE, FAILED, DONE]
    assert queue.entries[1].reason == "no such thing: 7"
    note = read_note(tmp_path / "b")
    assert note is not None
    assert note["reason"] == "no such thing: 7"
    assert queue.entries[0].progress.success == 0.5


def test_what_is_done_is_not_run_again_and_what_failed_only_when_asked(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a", STEPS), job(tmp_path, "b", FAIL)]
    run(queue_of(jobs))
    cured = [replace(one, command=(STEPS,)) for one in jobs]
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    assert states(run(queue_of(cured))) == [DONE, FAILED]
    assert states(run(queue_of(cured, retry=True))) == [DONE, DONE]
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before
    assert not note_file(tmp_path / "b").exists()


def test_a_failed_run_whose_settings_changed_is_run_again(tmp_path: Path) -> None:
    run(queue_of([job(tmp_path, "b", FAIL)]))
    changed = replace(job(tmp_path, "b", STEPS), settings=("x=other",))
    assert states(run(queue_of([changed]))) == [DONE]


def test_what_was_done_elsewhere_is_not_run_here(tmp_path: Path) -> None:
    queue = Small([job(tmp_path, "w", STEPS), job(tmp_path, "a", FAIL, needs="w")], Room(1), 1, "all", False, {"a"})
    assert states(run(queue)) == [DONE, DONE]
    assert not (tmp_path / "a").exists()


def test_a_warm_up_is_made_only_if_a_run_is_to_begin_from_it(tmp_path: Path) -> None:
    """Of two warm-ups the runs of one are all done elsewhere, or failed; a run is left of the other."""
    run(queue_of([job(tmp_path, "f", FAIL)]))
    jobs = [job(tmp_path, name, STEPS) for name in ("v", "w")]
    jobs += [job(tmp_path, "a", FAIL, needs="v"), job(tmp_path, "f", FAIL, needs="v")]
    jobs += [job(tmp_path, "b", FAIL, needs="w"), job(tmp_path, "c", STEPS, needs="w")]
    queue = run(Small(jobs, Room(1), 1, "all", False, {"a", "b"}))
    assert states(queue) == [DONE, DONE, DONE, FAILED, DONE, DONE]
    assert not (tmp_path / "v").exists()
    assert (tmp_path / "w").exists()


def test_no_more_at_a_time_than_asked(tmp_path: Path) -> None:
    queue = queue_of([job(tmp_path, name, SLEEP) for name in "abcd"], most=2)
    queue.turn()
    assert states(queue) == [RUNNING, RUNNING, WAITING, WAITING]
    queue.stop()
    assert states(queue) == [WAITING] * 4
    assert all(entry.process is None or entry.process.poll() is not None for entry in queue.entries)


def test_what_needs_a_warm_up_waits_for_it(tmp_path: Path) -> None:
    warm = job(tmp_path, "w", STEPS)
    queue = queue_of([warm, job(tmp_path, "a", STEPS, needs="w")])
    queue.turn()
    assert states(queue) == [RUNNING, WAITING]
    assert states(run(queue)) == [DONE, DONE]


def test_what_needs_a_failed_warm_up_fails_with_it(tmp_path: Path) -> None:
    queue = run(queue_of([job(tmp_path, "w", FAIL), job(tmp_path, "a", STEPS, needs="w"), job(tmp_path, "b", STEPS)]))
    assert states(queue) == [FAILED, FAILED, DONE]
    assert "w, which it begins from, failed" in queue.entries[1].reason


def test_a_killed_run_is_resumed_but_not_for_ever(tmp_path: Path) -> None:
    mark = "import pathlib, sys\nmark = pathlib.Path(sys.argv[1] + '.mark')\n"
    once = f"{mark}if not mark.exists():\n    mark.touch()\n    {KILLED}{STEPS}"
    queue = run(queue_of([job(tmp_path, "a", once), job(tmp_path, "b", KILLED)]))
    assert states(queue) == [DONE, FAILED]
    assert queue.entries[0].tries == 2
    assert queue.entries[1].tries == 3
    assert "SIGKILL" in queue.entries[1].reason


def test_a_run_without_memory_is_tried_again_with_fewer_beside_it(tmp_path: Path) -> None:
    full = "import sys; print('CUDA out of memory. Tried to allocate 7 GiB'); sys.exit(2)\n"
    mark = "import pathlib, sys\nmark = pathlib.Path(sys.argv[1] + '.mark')\n"
    once = f"{mark}if not mark.exists():\n    mark.touch()\n    {full}{STEPS}"
    wait = "import time; time.sleep(1)\n"
    queue = run(queue_of([job(tmp_path, "a", wait + STEPS), job(tmp_path, "b", once)], most=3))
    assert states(queue) == [DONE, DONE]
    assert queue.room.most == 1
    alone = run(queue_of([job(tmp_path, "c", full)]))
    assert states(alone) == [FAILED]  # there is nobody to blame
    assert alone.entries[0].tries == 1


def test_a_resumed_run_is_not_measured_before_it_learns(tmp_path: Path) -> None:
    run(queue_of([job(tmp_path, "a", STEPS)]))
    (tmp_path / "a" / "metrics.jsonl").write_text('{"step": 1, "kind": "train"}\n')
    queue = queue_of([job(tmp_path, "a", SLEEP)])
    queue.turn()
    entry = queue.entries[0]
    assert (entry.progress.step, entry.progress.has_learnt) == (1, False)
    queue.stop()


def test_a_run_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "a").mkdir()
    queue = queue_of([job(tmp_path, "a", STEPS)])
    with (tmp_path / "a" / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        queue.turn()
        assert states(queue) == [WAITING]
    assert states(run(queue)) == [DONE]


def test_a_finished_run_keeps_its_numbers_alone(tmp_path: Path) -> None:
    run(queue_of([job(tmp_path, "a", STEPS), job(tmp_path, "w", STEPS, steps=0)], keep="metrics"))
    assert not (tmp_path / "a" / "checkpoints").exists()
    assert (tmp_path / "a" / "metrics.jsonl").exists()
    assert (tmp_path / "w" / "checkpoints").exists()  # a warm-up is needed by others


def test_a_run_that_will_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.study.queue.GRACE", 0.5)
    deaf = "import pathlib, signal, sys, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    deaf += "pathlib.Path(sys.argv[1] + '.on').touch()\ntime.sleep(60)\n"
    queue = queue_of([job(tmp_path, "a", deaf)])
    queue.turn()
    while not (tmp_path / "a.on").exists():
        time.sleep(0.02)
    queue.stop()
    process = queue.entries[0].process
    assert process is not None
    assert process.returncode == -signal.SIGKILL


def test_a_gpu_is_filled_after_the_first_run_was_measured() -> None:
    """100 of 1000 MiB are taken; a run takes 100, 115 with a reserve: seven fit into 900 - 100."""
    used = [100.0]
    room = Room(16, lambda: (used[0], 1000.0))
    assert room.has_room(0, 0)
    used[0] = 150.0
    assert not room.has_room(1, 0)  # it is still loading
    used[0] = 200.0
    assert room.has_room(1, 1)
    assert room.each == 100.0
    assert room.has_room(5, 1)
    assert not room.has_room(6, 6)
    assert not Room(2, lambda: (0.0, 1e9)).has_room(2, 2)
    assert Room(3).has_room(2, 0)


def test_reasons_are_read_from_the_end_of_the_log(tmp_path: Path) -> None:
    log = log_file(tmp_path / "a")
    log.write_text("step 1\n╭─ Settings ───╮\n│ learn.lr = 7: │\n│ too \x1b[31mmuch │\n╰──────────────╯\n")
    assert reason_of(2, log) == "Settings: learn.lr = 7: too ⟨U+001B⟩[31mmuch"
    log.write_text("Traceback\n  File x\nValueError: three\n")
    assert reason_of(1, log) == "ValueError: three"
    assert "before its last step: ValueError" in reason_of(0, log)
    assert "exit status 5" in reason_of(5, tmp_path / "none")
    assert "SIGTERM" in reason_of(-15, log)


def test_a_log_that_is_being_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"step": 1}) + "\nnonsense\n" + json.dumps({"step": 2}) + '\n{"step": 3')
    assert [record["step"] for record in last_records(path)] == [1, 2]
    assert last_records(tmp_path / "none") == []
    path.write_text("".join(json.dumps({"step": n, "pad": "x" * 1000}) + "\n" for n in range(200)))
    assert last_records(path)[-1]["step"] == 199
    assert os.path.getsize(path) > 100_000
