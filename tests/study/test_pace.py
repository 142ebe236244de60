"""Time that is too short: which run is begun then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isentrope.study.jobs import Job
from isentrope.study.queue import RUNNING, WAITING, Progress, Queue, Room, could_end, seconds_left
from tests.study.test_queue import SLEEP, Small, states


def progress(folder: Path, name: str, steps: int, here: int = 0, pace: float = 0.0) -> Progress:
    """A run of which this process has done `here` steps of `pace` seconds."""
    made = Progress(Job(name, folder / name, (SLEEP,), steps))
    if here:
        made.step, made.began, made.looked = here, 100.0, 100.0 + pace * here
    return made


def test_the_pace_is_that_of_the_cell_or_else_of_all(tmp_path: Path) -> None:
    seen = [
        progress(tmp_path, "a/seed-0", 100, 100, 2.0),
        progress(tmp_path, "a/seed-1", 100, 20, 4.0),
        progress(tmp_path, "b/seed-0", 100, 50, 10.0),
        progress(tmp_path, "a/seed-2", 100, 9, 1000.0),  # too few steps to tell
        progress(tmp_path, "warmup/w", 0, 50, 1000.0),  # no training
    ]
    assert seconds_left(progress(tmp_path, "a/seed-3", 100), seen) == 300.0
    assert seconds_left(progress(tmp_path, "b/seed-1", 10), seen) == 100.0
    assert seconds_left(progress(tmp_path, "c/seed-0", 100), seen) == 400.0  # of 2, 4 and 10
    assert seconds_left(progress(tmp_path, "c/seed-0", 100), [], 1.5) == 150.0
    assert seconds_left(progress(tmp_path, "c/seed-0", 100), []) == 0.0
    begun = progress(tmp_path, "a/seed-4", 100)
    begun.step = 90  # it goes on from there
    assert seconds_left(begun, seen) == 30.0


def test_a_run_that_ended_keeps_its_pace(tmp_path: Path) -> None:
    """What it took does not grow with the time since then."""
    assert progress(tmp_path, "a/seed-0", 100, 100, 2.0).seconds_per_step == 2.0
    assert progress(tmp_path, "a/seed-0", 100).seconds_per_step is None


def test_a_resumed_run_goes_on_from_its_checkpoint_and_not_from_the_end_of_its_log(tmp_path: Path) -> None:
    """Killed at step 39 with a checkpoint of step 20: the steps up to 39 are done again, and take their time."""

    def write_steps(last: int) -> None:
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"step": n}) + "\n" for n in range(1, last + 1)))

    write_steps(39)
    resumed = Progress(Job("a/seed-0", tmp_path, (SLEEP,), 100))
    resumed.begin()
    assert (resumed.steps_here, resumed.has_learnt) == (0, False)
    write_steps(20)  # what the run does first
    resumed.look()
    write_steps(30)
    resumed.look()
    assert (resumed.steps_here, resumed.has_learnt) == (10, True)
    resumed.looked = resumed.began + 20.0
    assert resumed.seconds_per_step == 2.0


@pytest.mark.parametrize(("left", "enough"), [(91.0, True), (89.0, False)])
def test_only_what_is_clearly_too_long_is_put_off(tmp_path: Path, left: float, enough: bool) -> None:
    assert could_end(progress(tmp_path, "a/seed-0", 100), [], 1.0, left) is enough


def queue_of(folder: Path, *steps: int, most: int = 1, pace: float = 1.0) -> tuple[Queue, list[str]]:
    jobs = [Job(f"c{n}/seed-0", folder / f"c{n}" / "seed-0", (SLEEP,), many) for n, many in enumerate(steps)]
    queue, told = Small(jobs, Room(most), 1, "all", pace=pace), list[str]()
    queue.say = told.append
    return queue, told


def test_a_shorter_run_goes_first_when_the_first_could_not_end(tmp_path: Path) -> None:
    queue, told = queue_of(tmp_path, 400, 400, 100, 100, most=2)
    queue.turn(left=200.0)
    queue.stop()
    assert [entry.tries for entry in queue.entries] == [0, 0, 1, 1]
    assert told == ["put off: c0/seed-0 and 1 more cannot end in the 3 min left; shorter runs go first"]


@pytest.mark.parametrize(
    ("left", "pace", "steps"),
    [
        (500.0, 1.0, (400, 100)),  # there is time
        (50.0, 1.0, (400, 100)),  # neither could end: a checkpoint of the first is better than nothing
        (200.0, 0.0, (400, 100)),  # nothing is known yet
        (float("inf"), 1.0, (400, 100)),  # no budget
        (50.0, 1.0, (0, 100)),  # a warm-up, which has no steps, comes first
    ],
)
def test_else_the_order_stays(tmp_path: Path, left: float, pace: float, steps: tuple[int, int]) -> None:
    queue, told = queue_of(tmp_path, *steps, pace=pace)
    queue.turn(left=left)
    assert states(queue) == [RUNNING, WAITING]
    queue.stop()
    assert told == []
