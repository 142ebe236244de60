"""Tasks in threads, and the choice of where tasks are played."""

from __future__ import annotations

import threading
import time

import pytest

from isentrope.config.load import config_from_table
from isentrope.config.validate import addresses, where_problem
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.process import usable_cores
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool import threads
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks, Placement, choose_placement, open_tasks
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.threads import DeadlineThreads, Job, Late, ThreadTasks
from tests.worlds.pool.odd_worlds import HERE, NotReplayable, PrefersNonsense, PrefersProcesses, Threaded


def begin(world: Threaded, count: int, seconds: float = 20.0) -> ThreadTasks:
    tasks = ThreadTasks(world, count, world.threads, seconds)
    views = tasks.start({slot: world.instance("train", 2 * slot) for slot in range(count)})
    assert all(isinstance(view, View) for view in views.values())
    return tasks


def test_so_many_tasks_step_side_by_side() -> None:
    """Each waits for three others: it can only end if four are played at once. Twelve are, in three rounds."""
    tasks = begin(Threaded(), 12)
    steps = tasks.step(dict.fromkeys(range(12), "wait"))
    assert list(steps) == list(range(12))
    assert all(isinstance(step, Step) for step in steps.values())
    tasks.close()


def test_the_same_results_as_without_threads() -> None:
    world = Threaded()
    tasks, local = begin(world, 3), LocalTasks(world, 3)
    local.start({slot: world.instance("train", 2 * slot) for slot in range(3)})
    for action in ("look", "add one", "nonsense", "raise", "add one", "huge"):
        assert tasks.step({2: action, 0: action}) == local.step({2: action, 0: action})
    tasks.close()


def test_a_thread_that_hangs_is_left_behind_and_its_slot_can_start_again() -> None:
    world = Threaded()
    tasks = begin(world, 6, seconds=0.3)
    steps = tasks.step({0: "hang", 1: "add one", 2: "hang", 3: "add one", 4: "add one", 5: "add one"})
    kinds = {slot: step.kind for slot, step in steps.items() if isinstance(step, Failure)}
    assert kinds == {0: "time_limit", 2: "time_limit"}
    assert tasks.notes() == {"threads_left": 2.0}
    assert tasks.notes() == {}
    again = tasks.step({0: "look", 1: "look"})
    assert again[0] == Failure("task_error", "TaskError: step before start")
    assert isinstance(again[1], Step)
    assert isinstance(tasks.start({0: world.instance("train", 0)})[0], View)
    before = world.closed_tasks
    world.release.set()  # the two come back, close the tasks that nobody has any more, and leave
    end = time.monotonic() + 10
    while world.closed_tasks < before + 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert world.closed_tasks == before + 2
    assert isinstance(tasks.step({0: "look"})[0], Step)  # the new task was not touched by it
    tasks.close()
    assert world.closed == ["world"]


def test_threads_that_never_come_back_are_not_collected_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_STUCK", 3)
    world = Threaded()
    tasks = begin(world, 8, seconds=0.2)
    before = threading.active_count()
    steps = tasks.step(dict.fromkeys(range(8), "hang"))
    assert all(isinstance(step, Failure) and step.kind == "time_limit" for step in steps.values())
    views = tasks.start({slot: world.instance("train", 0) for slot in range(8)})
    assert all(isinstance(view, Failure) and "processes" in view.detail for view in views.values())
    assert threading.active_count() <= before + 3 + 8  # those stuck, and those that were to cut them
    world.release.set()
    end = time.monotonic() + 10
    while time.monotonic() < end and isinstance(tasks.start({0: world.instance("train", 0)})[0], Failure):
        time.sleep(0.05)
    assert isinstance(tasks.step({0: "look"})[0], Step)  # they came back, so there are threads again
    tasks.close()


def test_a_task_that_was_not_begun_keeps_its_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is not forgotten, but closed with the pool."""
    monkeypatch.setattr(threads, "MAX_STUCK", 1)
    world = Threaded()
    tasks = ThreadTasks(world, 4, 1, 0.3)
    tasks.start({slot: world.instance("train", 0) for slot in range(4)})
    steps = tasks.step({0: "hang", 1: "look", 2: "look", 3: "look"})
    assert ["not begun" in step.detail for step in steps.values() if isinstance(step, Failure)] == [False] + [True] * 3
    world.release.set()
    end = time.monotonic() + 20
    while world.closed_tasks < 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert world.closed_tasks == 1
    tasks.close()
    assert world.closed_tasks == 4


def test_a_crew_serves_several_callers_at_once() -> None:
    team, results = DeadlineThreads(4), dict[int, dict[int, int | Late]]()

    def call(caller: int) -> None:
        results[caller] = team.run({n: Job(lambda n=n: 100 * caller + n) for n in range(50)}, 10)

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == {caller: {n: 100 * caller + n for n in range(50)} for caller in range(8)}
    team.close()


def test_where_tasks_are_played() -> None:
    plain, threaded, processes = NotReplayable(), Threaded(), PrefersProcesses()
    assert choose_placement("auto", 0, plain) == Placement()
    assert choose_placement("auto", 3, plain) == Placement(workers=3)
    assert choose_placement("auto", 0, threaded) == Placement(threads=4)
    assert choose_placement("auto", 0, processes) == Placement(workers=usable_cores())
    assert choose_placement("auto", 5, threaded) == Placement(workers=5)
    assert choose_placement("local", 0, processes) == Placement()
    assert choose_placement("processes", 0, plain) == Placement(workers=usable_cores())
    assert choose_placement("processes", 7, threaded) == Placement(workers=7)
    with pytest.raises(TaskError, match="prefers 'the moon'"):
        choose_placement("auto", 0, PrefersNonsense())


@pytest.mark.parametrize(
    ("world", "where", "workers", "kind"),
    [
        ("NotReplayable", "auto", 0, LocalTasks),
        ("Threaded", "auto", 0, ThreadTasks),
        ("PrefersProcesses", "local", 0, LocalTasks),
        ("Threaded", "processes", 1, WorkerTasks),
    ],
)
def test_the_pool_that_is_opened(world: str, where: str, workers: int, kind: type) -> None:
    with open_tasks(f"{HERE}:{world}", {}, 2, workers, 5, where) as tasks:
        assert isinstance(tasks, kind)


@pytest.mark.parametrize(
    ("where", "workers", "words"),
    [
        ("local", 2, "in both"),
        ("nowhere", 0, "expected auto, local, processes"),
        ("http://a:1", 2, "its own workers"),
        ("http://a:1, ftp://b", 0, "'ftp://b' is not an address"),
        ("http://a:99999999", 0, "is not an address"),
        ("http://", 0, "is not an address"),
        ("http://user:secret@a:1", 0, "user name"),
        ("http://a:1?key=secret", 0, "query"),
    ],
)
def test_settings_that_cannot_be(where: str, workers: int, words: str) -> None:
    problem = where_problem(where, workers)
    assert problem is not None
    assert words in problem
    assert "secret" not in problem
    with pytest.raises(ConfigError):
        config_from_table({"task": {"where": where, "workers": workers}})


def test_settings_that_can_be() -> None:
    for where in ("auto", "local", "processes", "http://127.0.0.1:8100", "http://a:1,https://b/x/ , http://a:1"):
        assert where_problem(where, 0) is None
    assert addresses("http://a:1,https://b/x/ , http://a:1") == ("http://a:1", "https://b/x")
