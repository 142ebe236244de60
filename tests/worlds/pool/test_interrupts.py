"""Ctrl-C while tasks are played in threads, tasks that raise what Ctrl-C raises, and signals without a name."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.threads import DeadlineThreads, Job, Late, ThreadTasks
from tests.worlds.pool.odd_worlds import HERE, Abrupt, Threaded

RAISED = Failure("task_error", "KeyboardInterrupt: ")
NOT_THERE = Failure("task_error", "TaskError: step before start")


def interrupt_main() -> None:
    """As Ctrl-C does it: a signal that wakes the main thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_what_was_not_begun_when_ctrl_c_came_is_not_played() -> None:
    team, release, played = DeadlineThreads(1), threading.Event(), list[int]()

    def first() -> None:
        time.sleep(0.05)  # until the other thread waits
        interrupt_main()
        release.wait(60)

    rest = {n: Job(lambda n=n: played.append(n)) for n in range(1, 6)}
    with pytest.raises(KeyboardInterrupt):
        team.run({0: Job(first), **rest}, 60)
    assert team.run({0: Job(lambda: "next")}, 20) == {0: "next"}  # not behind the first, which still hangs
    release.set()
    assert team.run({0: Job(lambda: "last")}, 20) == {0: "last"}
    assert played == []
    team.close()


def test_jobs_have_so_much_time_altogether() -> None:
    team, release = DeadlineThreads(1), threading.Event()
    found = team.run({n: Job(lambda: release.wait(60)) for n in range(3)}, 0.4, altogether=0.2)
    assert [isinstance(late, Late) and late.begun for late in found.values()] == [True, False, False]
    release.set()
    team.close()


def test_closing_does_not_wait_for_a_task_that_hangs() -> None:
    """Nor does it touch that task: its own thread closes it, once it comes back."""
    world = Threaded()
    tasks = ThreadTasks(world, 3, 1, 60.0)
    tasks.start({slot: world.instance("train", 0) for slot in range(3)})

    def ctrl_c() -> None:
        world.hangs.wait(20)
        time.sleep(0.05)
        interrupt_main()

    threading.Thread(target=ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        tasks.step(dict.fromkeys(range(3), "hang"))
    tasks.close()
    assert (world.closed_tasks, world.closed) == (2, ["world"])
    world.release.set()
    end = time.monotonic() + 20
    while world.closed_tasks < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert world.closed_tasks == 3


def test_a_task_that_interrupts_in_a_thread_has_failed() -> None:
    world = Abrupt()
    with ThreadTasks(world, 2, 2, 20.0) as tasks:
        tasks.start({slot: world.instance("train", 0) for slot in range(2)})
        assert tasks.step({0: "interrupt"}) == {0: RAISED}
        assert tasks.step({0: "look"}) == {0: NOT_THERE}  # the task was dropped
        assert isinstance(tasks.step({1: "look"})[1], Step)


def test_in_the_main_thread_it_cannot_be_told_from_ctrl_c() -> None:
    world = Abrupt()
    tasks = LocalTasks(world, 1)
    tasks.start({0: world.instance("train", 0)})
    with pytest.raises(KeyboardInterrupt):
        tasks.step({0: "interrupt"})
    assert tasks.step({0: "look"}) == {0: NOT_THERE}
    tasks.close()


def test_interrupts_and_nameless_signals_in_a_worker_process() -> None:
    world = Abrupt()
    with WorkerTasks(f"{HERE}:Abrupt", {}, 2, 1, 20.0) as tasks:
        tasks.start({slot: world.instance("train", 0) for slot in range(2)})
        assert tasks.step({0: "interrupt"}) == {0: RAISED}
        assert tasks.notes() == {}  # its worker goes on
        [step] = tasks.step({1: f"signal {signal.SIGRTMIN + 6}"}).values()
        assert step == Failure("worker_died", f"the worker was ended by signal {signal.SIGRTMIN + 6}")
        assert isinstance(tasks.start({0: world.instance("train", 0)})[0], View)
