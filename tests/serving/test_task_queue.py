"""Requests that wait for their turn on a task server, sessions that are closed meanwhile, and the world made here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from isentrope.config.schema import TaskSettings
from isentrope.net.app import Refusal
from isentrope.serving import tasks as task_server
from isentrope.serving.tasks import Desk, Sessions, running
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool import remote
from isentrope.worlds.pool.codec import pack
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import open_tasks
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.threads import ThreadTasks
from tests.worlds.pool.odd_worlds import HERE, OneAtATime
from tests.worlds.pool.task_servers import OPTIONS, WORLD, body, raw_server, usual

NAME = f"{HERE}:OneAtATime"
SETTINGS = TaskSettings(world=NAME, step_seconds=60.0)
A, B, C = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture(autouse=True)
def held() -> Iterator[threading.Event]:
    OneAtATime.release.clear()
    OneAtATime.hangs.clear()
    OneAtATime.made = OneAtATime.closed = 0
    yield OneAtATime.release
    OneAtATime.release.set()


@pytest.fixture
def address(held: threading.Event) -> Iterator[str]:
    with running(SETTINGS, port=0) as server, server.background():
        yield server.address
        held.set()


def connect(address: str, seconds: float) -> ThreadTasks:
    world = RemoteWorld(NAME, {}, address, seconds)
    tasks = open_tasks(NAME, {}, 2, 0, seconds, address, world)
    assert isinstance(tasks, ThreadTasks)
    assert isinstance(tasks.start({0: world.instance("train", 0)})[0], View)
    return tasks


def test_waiting_for_its_turn_does_not_count(
    address: str, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trainer's step keeps the server busy for longer than another trainer waits for an answer."""
    monkeypatch.setattr(remote, "GRACE", 0.5)
    monkeypatch.setattr(task_server, "HOLD_SECONDS", 0.1)
    slow, quick = connect(address, 60.0), connect(address, 0.5)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(slow.step, {0: "hang"})
        assert OneAtATime.hangs.wait(20)
        threading.Timer(2.5, held.set).start()
        assert isinstance(quick.step({0: "add one"})[0], Step)
        assert isinstance(first.result()[0], Step)
    assert quick.notes() == slow.notes() == {}
    quick.close()
    slow.close()


def test_a_turn_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MOST_TURNS", 0.1)
    queued = body(pack({"queued": True}))
    with raw_server(lambda path: queued if path == "/v1/step" else usual(path)) as address:
        world = RemoteWorld(WORLD, OPTIONS, address, 2.0)
        tasks = open_tasks(WORLD, OPTIONS, 1, 0, 2.0, address, world)
        tasks.start({0: world.instance("train", 0)})
        [step] = tasks.step({0: "look"}).values()
        assert isinstance(step, Failure)
        assert step.kind == "time_limit"
        assert "its turn did not come" in step.detail
        tasks.close()


@pytest.fixture
def desk(held: threading.Event) -> Iterator[Desk]:
    made = Desk(SETTINGS, 2)
    yield made
    held.set()
    made.close()


def start(sessions: Sessions, *request: Any) -> Any:
    return asyncio.run(sessions.start(*request))


def step(sessions: Sessions, *request: Any) -> Any:
    return asyncio.run(sessions.step(*request))


def test_what_waits_for_its_turn_is_not_played_after_its_session_was_closed(
    desk: Desk, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_server, "HOLD_SECONDS", 0.2)
    sessions = Sessions(desk, 2, 600)
    start(sessions, A, "train", 0)
    start(sessions, B, "train", 0)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(step, sessions, A, 1, "hang")
        assert OneAtATime.hangs.wait(20)
        assert step(sessions, B, 1, "add one") == {"queued": True}  # the same turn, not another
        assert sessions.close(B) == {"closed": True}
        assert start(sessions, C, "train", 0) == {"queued": True}  # in the slot that B had
        with pytest.raises(Refusal) as refused:
            step(sessions, B, 1, "add one")
        assert refused.value.status == 404
        held.set()
        first.result()
    assert "view" in start(sessions, C, "train", 0)
    assert step(sessions, C, 1, "look")["step"]["view"]["text"].endswith("The number is 0.")


def test_a_step_that_came_before_its_session_was_closed_is_not_played_in_anothers(desk: Desk) -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Paused(Sessions):
        """The thread of one request is held up between finding its session and playing."""

        def _once(self, *arguments: Any) -> Any:
            if "add one" in arguments:
                reached.set()
                go_on.wait(60)
            return super()._once(*arguments)

    sessions = Paused(desk, 1, 600)
    start(sessions, A, "train", 0)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(step, sessions, A, 1, "add one")
        reached.wait(20)
        sessions.close(A)
        start(sessions, B, "train", 0)
        go_on.set()
        with pytest.raises(Refusal) as refused:
            late.result()
    assert refused.value.status == 404
    assert step(sessions, B, 1, "look")["step"]["view"]["text"].endswith("The number is 0.")


def test_the_world_is_made_here_once_for_its_expert_and_closed(address: str) -> None:
    served = OneAtATime.made
    world = RemoteWorld(NAME, {}, address, 5.0)
    assert all(world.expert(seed) is not None for seed in range(3))
    assert OneAtATime.made == served + 1
    world.close()
    world.close()
    assert OneAtATime.closed == 1
