from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.core.errors import ConfigError, TaskError
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks, open_tasks
from isentrope.worlds.pool.processes import Request, WorkerTasks
from isentrope.worlds.registry import make_world
from tests.worlds.pool import odd_worlds

WORLD = "tests.toys:ToyWorld"
NAUGHTY = {"naughty": True, "goal": 5}


def instances(*slots: int, index: int = 0):
    world = make_world(WORLD, NAUGHTY)
    return {slot: world.instance("train", index + slot) for slot in slots}


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerTasks]:
    """Four slots in two workers: slots 0 and 2 live in one, 1 and 3 in the other."""
    with WorkerTasks(WORLD, NAUGHTY, count=4, workers=2, step_seconds=1.0) as tasks:
        yield tasks


def pids(tasks: WorkerTasks | LocalTasks, *slots: int) -> list[int]:
    steps = tasks.step(dict.fromkeys(slots, "look"))
    return [int(step.info["pid"]) for step in steps.values() if isinstance(step, Step)]


def number(step: Step | View | Failure) -> int:
    """The number that the toy has counted to."""
    assert isinstance(step, Step)
    return int(step.view.text.rpartition(" ")[2].rstrip("."))


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether the process ends within so many seconds; a zombie whose threads are all gone counts as ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1:
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def test_workers_give_the_same_results_as_local_tasks(shared: WorkerTasks) -> None:
    local = LocalTasks(make_world(WORLD, NAUGHTY), 4)
    plays = ["look", "add one", "no such thing", "raise", "add one", "huge", *["add one"] * 4]
    assert local.start(instances(0, 1, 2, 3)) == shared.start(instances(0, 1, 2, 3))
    for action in plays:
        ours, theirs = (tasks.step(dict.fromkeys((3, 0, 1), action)) for tasks in (local, shared))
        assert list(theirs) == [3, 0, 1]
        assert _comparable(ours) == _comparable(theirs)


def _comparable(results: dict[int, Step | Failure]) -> dict[int, object]:
    """The toy reports the process it runs in: everything else must agree."""
    return {
        slot: replace(result, info={**result.info, "pid": 0.0}) if isinstance(result, Step) else result
        for slot, result in results.items()
    }


@pytest.mark.parametrize("where", ["local", "workers"])
def test_a_task_that_raises_fails_alone_and_can_start_again(where: str, shared: WorkerTasks) -> None:
    tasks = shared if where == "workers" else LocalTasks(make_world(WORLD, NAUGHTY), 4)
    tasks.start(instances(0, 1, 2))
    steps = tasks.step({0: "raise", 1: "quit", 2: "add one"})
    assert isinstance(steps[0], Failure)
    assert steps[0].kind == "task_error"
    assert steps[0].detail.startswith("ValueError: boom")
    assert len(steps[0].detail) == 500
    assert isinstance(steps[1], Failure)
    assert isinstance(steps[2], Step)
    assert tasks.step({0: "look"})[0] == Failure("task_error", "TaskError: step before start")
    assert isinstance(tasks.start(instances(0))[0], View)
    assert isinstance(tasks.step({0: "look"})[0], Step)
    failed = tasks.start({3: make_world(WORLD, NAUGHTY).instance("train", 667)})[3]
    assert failed == Failure("task_error", "RuntimeError: cannot start this one")


def test_a_huge_observation_is_cut(shared: WorkerTasks) -> None:
    shared.start(instances(0))
    step = shared.step({0: "huge"})[0]
    assert isinstance(step, Step)
    assert len(step.view.text) == 100_000


@pytest.mark.parametrize(("action", "kind"), [("hang", "time_limit"), ("exit", "worker_died")])
def test_a_worker_that_hangs_or_exits_is_replaced(shared: WorkerTasks, action: str, kind: str) -> None:
    shared.start(instances(0, 1, 2, 3))
    shared.step({2: "add one", 3: "add one"})
    (old,) = pids(shared, 0)
    began = time.monotonic()
    steps = shared.step({0: action, 1: "look", 3: "look"})
    assert time.monotonic() - began < 5
    assert isinstance(steps[0], Failure)
    assert steps[0].kind == kind
    assert isinstance(steps[1], Step)
    assert isinstance(steps[3], Step)
    assert gone(old)
    assert number(shared.step({2: "add one"})[2]) == 2  # 2 lived in the same worker: it was brought back
    assert isinstance(shared.step({0: "look"})[0], Failure)  # but its own episode is over
    assert all(isinstance(view, View) for view in shared.start(instances(0, 2)).values())
    assert pids(shared, 0) == pids(shared, 2) != [old]


def test_slots_waiting_behind_one_that_hangs(shared: WorkerTasks) -> None:
    """They are played on in the next worker, from where they were."""
    shared.start(instances(0, 2))
    for turn in range(2):
        assert number(shared.step({2: "add one", 0: "look"})[2]) == turn + 1
    steps = shared.step({0: "hang", 2: "add one"})
    assert isinstance(steps[0], Failure)
    assert number(steps[2]) == 3
    shared.start(instances(0))
    shared.notes()
    steps = shared.step({2: "add one", 0: "exit"})
    assert number(steps[2]) == 4  # its answer came before the fall
    assert shared.notes() == {"workers_replaced": 1.0}
    assert number(shared.step({2: "add one"})[2]) == 5
    assert shared.notes() == {"replayed": 1.0}
    assert shared.notes() == {}


@pytest.mark.parametrize(("world", "words"), [("SaysWhoItIs", "went differently"), ("NotReplayable", "lost with its")])
def test_an_episode_that_cannot_be_brought_back_is_lost(world: str, words: str) -> None:
    with WorkerTasks(f"{odd_worlds.HERE}:{world}", {}, count=2, workers=1, step_seconds=5) as tasks:
        tasks.start(instances(0, 1))
        steps = tasks.step({0: "look", 1: "exit"})
        assert isinstance(steps[0], Step)
        lost = tasks.step({0: "look"})[0]
        assert isinstance(lost, Failure)
        assert lost.kind == "worker_died"
        assert words in lost.detail
        assert isinstance(tasks.start(instances(0))[0], View)
        assert isinstance(tasks.step({0: "look"})[0], Step)


def test_a_replay_that_hangs_costs_its_own_episode_only(shared: WorkerTasks) -> None:
    """Slot 0 hangs whenever it comes to `hang`; here its life is made up so that a replay meets that."""
    shared.start(instances(0, 2))
    shared.step({2: "add one"})
    worker = shared._workers[0]
    worker._replays[0].requests.append(Request("step", 0, "hang", 0))
    (old,) = pids(shared, 2)
    os.kill(old, signal.SIGKILL)
    assert gone(old)
    steps = shared.step({0: "look", 2: "add one"})
    assert isinstance(steps[0], Failure)
    assert steps[0].kind == "worker_died"
    assert "playing it again failed" in steps[0].detail
    assert number(steps[2]) == 2


def test_a_start_that_kills_its_worker_does_not_stop_the_next(shared: WorkerTasks) -> None:
    world = make_world(WORLD, NAUGHTY)
    views = shared.start({0: world.instance("train", 666), 2: world.instance("train", 2)})
    assert isinstance(views[0], Failure)
    assert views[0].kind == "worker_died"
    assert "exit code 3" in views[0].detail
    assert isinstance(views[2], View)
    assert isinstance(shared.step({2: "look"})[2], Step)


def test_a_worker_killed_while_idle(shared: WorkerTasks) -> None:
    shared.start(instances(0, 1, 2))
    (old,) = pids(shared, 0)
    os.kill(old, signal.SIGKILL)
    assert gone(old)
    steps = shared.step({0: "add one", 1: "look"})
    assert number(steps[0]) == 1
    assert isinstance(steps[1], Step)
    assert "SIGKILL" in shared._workers[0].epitaph
    shared.start(instances(0))
    (new,) = pids(shared, 0)
    os.kill(new, signal.SIGKILL)
    assert gone(new)
    assert isinstance(shared.start(instances(0))[0], View)  # a start does not even notice


def test_closing_leaves_no_process_and_is_final() -> None:
    tasks = WorkerTasks(WORLD, NAUGHTY, count=2, workers=2, step_seconds=5)
    tasks.start(instances(0, 1))
    workers = pids(tasks, 0, 1)
    assert len(set(workers)) == 2
    tasks.close()
    tasks.close()
    assert all(gone(pid) for pid in workers)
    with pytest.raises(TaskError, match="closed"):
        tasks.start(instances(0))


def test_closing_ends_a_worker_that_does_not_listen() -> None:
    tasks = WorkerTasks(WORLD, NAUGHTY, count=1, workers=1, step_seconds=5)
    tasks.start(instances(0))
    (worker,) = pids(tasks, 0)
    os.kill(worker, signal.SIGSTOP)
    tasks.close()
    assert gone(worker)


def test_ctrl_c_is_left_to_the_trainer(shared: WorkerTasks) -> None:
    shared.start(instances(0))
    (worker,) = pids(shared, 0)
    os.kill(worker, signal.SIGINT)
    time.sleep(0.1)
    assert pids(shared, 0) == [worker]


def test_misuse_is_refused(shared: WorkerTasks) -> None:
    with pytest.raises(TaskError, match="no slot 4"):
        shared.start(instances(4))
    with pytest.raises(ConfigError, match=r"task\.options\.goal"):
        WorkerTasks(WORLD, {"goal": 0}, count=1, workers=1, step_seconds=5)
    assert isinstance(open_tasks(WORLD, {}, count=1, workers=0, step_seconds=5), LocalTasks)


TRAINER = """
import sys, time
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.registry import make_world
if __name__ == "__main__":
    tasks = WorkerTasks("tests.toys:ToyWorld", {"naughty": True}, count=2, workers=2, step_seconds=100)
    world = make_world("tests.toys:ToyWorld", {})
    tasks.start({slot: world.instance("train", slot) for slot in (0, 1)})
    for slot in (0, 1):
        print(int(tasks.step({slot: "look"})[slot].info["pid"]), flush=True)
    tasks.step({0: "hang"})
"""


def test_no_worker_outlives_a_killed_trainer(tmp_path: Path) -> None:
    """One worker is idle when the trainer dies, the other hangs in a task."""
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment) as trainer:
        assert trainer.stdout is not None
        workers = [int(trainer.stdout.readline()) for _ in range(2)]
        time.sleep(0.2)
        trainer.kill()
        trainer.wait()
        assert all(gone(pid) for pid in workers)


def test_a_worker_takes_along_what_it_has_started() -> None:
    """A program that a world has started ends with its worker: at the close, and when the worker is killed."""
    with WorkerTasks(f"{odd_worlds.HERE}:Grandchildren", {}, count=2, workers=2, step_seconds=1) as tasks:
        tasks.start(instances(0, 1))
        steps = tasks.step({0: "look", 1: "look"})
        children = [int(step.info["child"]) for step in steps.values() if isinstance(step, Step)]
        assert len(children) == 2
        assert isinstance(tasks.step({0: "hang"})[0], Failure)
        assert gone(children[0])
        assert Path(f"/proc/{children[1]}").exists()
    assert gone(children[1])


def test_workers_come_up_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TRAINER", str(os.getpid()))
    options = {"notes": str(tmp_path / "notes"), "seconds": 1.0}
    with WorkerTasks(f"{odd_worlds.HERE}:SlowToMake", options, count=4, workers=4, step_seconds=30):
        lines = (tmp_path / "notes").read_text().splitlines()
    spans = [tuple(map(float, line.split())) for line in lines]
    assert len(spans) == 4
    assert max(began for began, _ in spans) < min(ended for _, ended in spans)  # all four at once


def test_worlds_are_closed(tmp_path: Path) -> None:
    options = {"notes": str(tmp_path / "notes")}
    with WorkerTasks(f"{odd_worlds.HERE}:ClosesInWorker", options, count=2, workers=2, step_seconds=30):
        pass
    closed = {line.split()[1] for line in (tmp_path / "notes").read_text().splitlines()}
    assert len(closed) == 3  # in each worker, and the trainer's own
    assert str(os.getpid()) in closed


def test_workers_do_not_import_torch() -> None:
    code = "import sys, isentrope.worlds.pool.processes; print('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
