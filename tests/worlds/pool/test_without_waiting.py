"""Pools that are asked without waiting: nothing stalls behind a slow task, and the answers are those of `step`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.base import Result, TaskPool
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.threads import ThreadTasks
from tests.toys import ToyOptions, ToyWorld
from tests.worlds.pool.odd_worlds import HERE, OddWorld, Threaded

OPTIONS = {"naughty": True, "goal": 9}
WORLD = ToyWorld(ToyOptions(naughty=True, goal=9))
COUNT = 6


def starts(*slots: int) -> dict[int, object]:
    return {slot: WORLD.instance("train", 2 * slot) for slot in slots}


def workers(seconds: float = 20.0, number: int = 2) -> WorkerTasks:
    return WorkerTasks("tests.toys:ToyWorld", OPTIONS, COUNT, number, seconds)


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[str, TaskPool]]:
    with workers() as processes, ThreadTasks(Threaded(), COUNT, 4, 20.0) as threads:
        yield {"local": LocalTasks(OddWorld(), COUNT), "threads": threads, "processes": processes}


def receive_all(tasks: TaskPool) -> dict[int, Result]:
    found: dict[int, Result] = {}
    while tasks.waiting:
        more = tasks.receive()
        assert more
        assert not found.keys() & more.keys()
        found |= more
    assert tasks.receive() == {}
    return found


def plain(results: dict[int, Result]) -> dict[int, object]:
    """Without the process id that the toy tells."""
    return {slot: (r.view, r.reward, r.success, r.valid) if isinstance(r, Step) else r for slot, r in results.items()}


WORDS = ("add one", "take one", "look", "nonsense", "raise", "huge")
ROUNDS = st.lists(st.dictionaries(st.integers(0, COUNT - 1), st.sampled_from(WORDS), min_size=1), max_size=6)


@settings(max_examples=15, deadline=None)
@given(rounds=ROUNDS)
@pytest.mark.parametrize("where", ["local", "threads", "processes"])
def test_send_and_receive_give_what_step_gives(pools: dict[str, TaskPool], where: str, rounds: list[dict[int, str]]):
    tasks, reference = pools[where], LocalTasks(OddWorld(), COUNT)
    tasks.send_starts(starts(*range(COUNT)))  # type: ignore[arg-type]
    assert receive_all(tasks) == reference.start(starts(*range(COUNT)))  # type: ignore[arg-type]
    for actions in rounds:
        tasks.send(actions)
        assert plain(receive_all(tasks)) == plain({**reference.step(actions)})


def test_a_slow_worker_stalls_nobody_else() -> None:
    """Slot 0 hangs in one worker; those of the other take turn after turn meanwhile, and at last it is ended."""
    with workers(seconds=1.5) as tasks:
        tasks.start(starts(0, 1, 3))  # type: ignore[arg-type]
        tasks.send({0: "hang"})
        turns = {1: 0, 3: 0}
        tasks.send({1: "add one", 3: "add one"})
        while min(turns.values()) < 8:
            for slot, step in tasks.receive().items():
                assert slot != 0, "it was waited for"
                assert isinstance(step, Step)
                turns[slot] += 1
                if turns[slot] < 8:
                    tasks.send({slot: "add one"})
        assert tasks.waiting == 1
        assert tasks.receive(wait=False) == {}
        [(slot, late)] = tasks.receive().items()
        assert (slot, isinstance(late, Failure) and late.kind) == (0, "time_limit")


def test_a_slow_thread_stalls_nobody_else() -> None:
    world = Threaded()
    with ThreadTasks(world, 2, 2, 20.0) as tasks:
        tasks.start({slot: world.instance("train", 0) for slot in range(2)})
        tasks.send({0: "hang"})
        world.hangs.wait(20)
        for _ in range(5):
            tasks.send({1: "look"})
            assert list(tasks.receive()) == [1]
        assert tasks.receive(wait=False) == {}
        world.release.set()
        assert isinstance(tasks.receive()[0], Step)


def test_a_thread_that_hangs_is_late_and_its_slot_starts_again() -> None:
    world = Threaded()
    with ThreadTasks(world, 2, 2, 0.3) as tasks:
        tasks.start({slot: world.instance("train", 0) for slot in range(2)})
        tasks.send({0: "hang"})
        found = tasks.receive()[0]
        assert isinstance(found, Failure)
        assert found.kind == "time_limit"
        tasks.send_starts({0: world.instance("train", 0)})
        assert isinstance(tasks.receive()[0], View)
        world.release.set()


def test_the_first_without_an_answer_is_the_one_that_failed() -> None:
    """One worker has all slots, and several requests wait in its pipe when it exits in the middle of them."""
    with workers(number=1) as tasks:
        tasks.start(starts(*range(COUNT)))  # type: ignore[arg-type]
        tasks.step(dict.fromkeys(range(COUNT), "add one"))
        tasks.send({0: "add one", 1: "add one", 2: "exit", 3: "add one", 4: "add one"})
        found = receive_all(tasks)
        assert isinstance(found[2], Failure)
        assert found[2].kind == "worker_died"
        numbers = {slot: step.view.text for slot, step in found.items() if isinstance(step, Step)}
        assert numbers == dict.fromkeys((0, 1, 3, 4), "You see a number. The number is 2.")
        assert tasks.notes() == {"workers_replaced": 1.0, "replayed": 2.0}
        again = tasks.step({0: "add one", 5: "add one"})
        assert {s: r.view.text[-2:] for s, r in again.items() if isinstance(r, Step)} == {0: "3.", 5: "2."}


def test_a_worker_killed_while_a_busy_trainer_does_not_listen() -> None:
    """What it had answered by then counts."""
    with workers(number=1) as tasks:
        tasks.start(starts(0, 1, 2))  # type: ignore[arg-type]
        step = tasks.step({0: "look"})[0]
        assert isinstance(step, Step)
        tasks.send({0: "add one", 1: "add one", 2: "hang"})
        time.sleep(0.5)  # it has answered twice and hangs in the third
        os.kill(int(step.info["pid"]), signal.SIGKILL)
        found = receive_all(tasks)
        assert [type(found[slot]) for slot in range(3)] == [Step, Step, Failure]


def test_long_actions_and_long_answers_do_not_block_each_other() -> None:
    """More than any pipe holds, in both directions."""
    with WorkerTasks(f"{HERE}:OddWorld", {}, 160, 1, 20.0) as tasks:
        tasks.start({slot: WORLD.instance("train", 0) for slot in range(160)})
        words = {slot: "huge" if slot < 20 else "x" * 10_000 for slot in range(160)}
        tasks.send(words)
        time.sleep(0.3)
        found = receive_all(tasks)
        assert [len(found[slot].view.text) for slot in range(20)] == [100_000] * 20  # type: ignore[union-attr]
        assert all(isinstance(found[slot], Step) and not found[slot].valid for slot in range(20, 160))  # type: ignore[union-attr]


@pytest.mark.parametrize("where", ["local", "threads", "processes"])
def test_one_thing_at_a_time_and_a_new_start_forgets_the_old(pools: dict[str, TaskPool], where: str) -> None:
    tasks = pools[where]
    tasks.start(starts(0, 1))  # type: ignore[arg-type]
    tasks.send({0: "add one"})
    with pytest.raises(TaskError, match="slot 0 has not yet given its last answer"):
        tasks.send({0: "add one"})
    tasks.send_starts(starts(0))  # type: ignore[arg-type]
    [(slot, view)] = tasks.receive().items()
    assert (slot, isinstance(view, View)) == (0, True)
    assert tasks.waiting == 0


def test_step_leaves_what_others_have_under_way(pools: dict[str, TaskPool]) -> None:
    tasks = pools["processes"]
    tasks.start(starts(0, 1))  # type: ignore[arg-type]
    tasks.send({0: "add one"})
    assert list(tasks.step({1: "look"})) == [1]
    assert list(tasks.receive()) == [0]


def test_what_cannot_be_brought_back_is_told_at_once() -> None:
    """The new worker is up and has nothing to do when a conversation asks whose state fell with the old one."""
    with WorkerTasks(f"{HERE}:NotReplayable", {}, 2, 1, 20.0) as tasks:
        tasks.start(starts(0, 1))  # type: ignore[arg-type]
        assert isinstance(tasks.step({0: "exit"})[0], Failure)
        assert isinstance(tasks.start(starts(0))[0], View)  # type: ignore[arg-type]
        tasks.send({1: "look"})
        found = tasks.receive()[1]
        assert isinstance(found, Failure)
        assert (found.kind, tasks.waiting) == ("worker_died", 0)
        tasks.send({0: "look"})
        assert isinstance(tasks.receive()[0], Step)
