"""Tasks behind HTTP, against real servers in processes of their own: killed, stopped, restarted, refusing."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from isentrope.core.errors import ConfigError, TaskError
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.pool import remote
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import LocalTasks, open_tasks
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.threads import ThreadTasks
from isentrope.worlds.registry import make_world
from tests.worlds.pool.task_servers import OPTIONS, WORLD, BreakingProxy, Served
from tests.worlds.pool.test_pool import gone


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served("--sessions", "8", "--set", "task.step_seconds=2") as server:
        yield server


def connect(where: str, seconds: float = 5.0, count: int = 4) -> tuple[RemoteWorld, ThreadTasks]:
    world = RemoteWorld(WORLD, OPTIONS, where, seconds)
    tasks = open_tasks(WORLD, OPTIONS, count, 0, seconds, where, world)
    assert isinstance(tasks, ThreadTasks)
    return world, tasks


def games(world: RemoteWorld, *slots: int) -> dict[int, Instance]:
    return {slot: world.instance("train", 2 * slot) for slot in slots}


def kinds(results: dict[int, Any]) -> list[str]:
    return [result.kind if isinstance(result, Failure) else type(result).__name__ for result in results.values()]


def until(holds: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        time.sleep(0.05)


def test_the_same_results_as_here(served: Served) -> None:
    world, tasks = connect(served.address)
    local = LocalTasks(make_world(WORLD, OPTIONS), 4)
    assert world.splits() == ("train", "seen")
    assert (world.size("train"), world.size("seen"), world.kinds) == (None, 10, ("even", "odd"))
    assert world.instance("seen", 9) == make_world(WORLD, OPTIONS).instance("seen", 9)
    start = games(world, 0, 1, 2, 3)
    assert tasks.start(start) == local.start(start)
    for action in ("look", "add one", "no such thing", "huge", "ünïcode 日本", *["add one"] * 9):
        ours, theirs = local.step(dict.fromkeys((3, 0), action)), tasks.step(dict.fromkeys((3, 0), action))
        assert list(theirs) == [3, 0]
        assert plain(ours) == plain(theirs)
    raised = tasks.start(start) and tasks.step({0: "raise", 1: "add one"})
    assert kinds(raised) == ["task_error", "Step"]
    assert isinstance(raised[0], Failure)
    assert "ValueError: boom" in raised[0].detail
    tasks.close()


def plain(results: dict[int, Step | Failure]) -> dict[int, object]:
    """The toy tells its process, and a server is named in what it reports."""
    return {
        slot: replace(result, info={}) if isinstance(result, Step) else result.kind for slot, result in results.items()
    }


@pytest.mark.slow(4)
def test_a_remote_world_keeps_the_contract() -> None:
    with Served(world="household", sets=("task.options.rooms=small",)) as server:
        world = RemoteWorld("household", {"rooms": "small"}, server.address, 10.0)
        assert_conforms(world, games=1)
        world.close()


def test_a_task_that_hangs_on_the_server(served: Served) -> None:
    """The server says so itself, is not taken for lost, and plays on."""
    world, tasks = connect(served.address, seconds=2.0)
    tasks.start(games(world, 0, 1))
    assert kinds(tasks.step({0: "hang", 1: "add one"})) == ["time_limit", "Step"]
    assert tasks.notes() == {}
    assert kinds(tasks.step({1: "add one"})) == ["Step"]
    assert kinds(tasks.start(games(world, 0))) == ["View"]
    tasks.close()


def test_a_server_killed_in_the_middle_and_started_again() -> None:
    with Served() as first, Served() as second:
        world, tasks = connect(f"{first.address},{second.address}")
        assert kinds(tasks.start(games(world, 0, 1, 2, 3))) == ["View"] * 4
        assert [server.live for server in world.fleet.servers] == [2, 2]
        first.kill()
        steps = tasks.step(dict.fromkeys(range(4), "add one"))
        assert sorted(kinds(steps)) == ["Step", "Step", "worker_died", "worker_died"]
        assert tasks.notes() == {"servers_lost": 1.0}
        lost = [slot for slot, step in steps.items() if isinstance(step, Failure)]
        assert kinds(tasks.start(games(world, *lost))) == ["View", "View"]  # on the one that is left
        assert [server.live for server in world.fleet.servers] == [0, 4]
        second.kill()
        assert kinds(tasks.step(dict.fromkeys(range(4), "look"))) == ["worker_died"] * 4
        with Served(port=first.port):
            until(lambda: not world.fleet.servers[0].down)
            assert kinds(tasks.start(games(world, 0, 1))) == ["View"] * 2
            assert kinds(tasks.step({0: "look", 1: "look"})) == ["Step"] * 2
            tasks.close()


def test_no_server_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GRACE", 0.2)
    with Served() as server:
        world, tasks = connect(server.address, seconds=0.5)
        instance = games(world, 0)
        server.kill()
        [view] = tasks.start(instance).values()
        assert isinstance(view, Failure)
        assert view.kind == "worker_died"
        assert "no task server is there" in view.detail
        assert server.address in view.detail
        tasks.close()


def test_a_server_that_is_stopped_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GRACE", 0.2)
    with Served() as first, Served() as second:
        world, tasks = connect(f"{first.address},{second.address}", seconds=1.0)
        tasks.start(games(world, 0, 1))
        first.stop()
        assert sorted(kinds(tasks.step({0: "add one", 1: "add one"}))) == ["Step", "time_limit"]
        assert kinds(tasks.start(games(world, 2, 3))) == ["View"] * 2
        assert world.fleet.servers[0].down
        first.go_on()
        until(lambda: not world.fleet.servers[0].down)
        before = world.fleet.servers[0].live
        assert kinds(tasks.start(games(world, 0, 1, 2, 3))) == ["View"] * 4
        assert world.fleet.servers[0].live > before
        tasks.close()


@pytest.mark.parametrize("lost_answers", [1, 2])
def test_a_step_whose_answer_was_lost_is_not_played_twice(served: Served, lost_answers: int) -> None:
    proxy = BreakingProxy(served.port)
    world, tasks = connect(proxy.address)
    proxy.break_next = lost_answers
    [view] = tasks.start(games(world, 0)).values()
    assert isinstance(view, View)
    for turn in range(3):
        proxy.break_next = lost_answers
        [step] = tasks.step({0: "add one"}).values()
        assert isinstance(step, Step)
        assert step.view.text.endswith(f"The number is {turn + 1}.")
    assert proxy.broken == 4 * lost_answers
    proxy.break_next = 5
    assert kinds(tasks.step({0: "add one"})) == ["worker_died"]  # not again and again
    tasks.close()
    proxy.close()


def ask(server: Served, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    return response.status, found


def test_the_protocol_by_hand(served: Served) -> None:
    session = "0123456789abcdef" * 2
    start = {"session": session, "split": "train", "index": 0}
    status, first = ask(served, "POST", "/v1/start", start)
    assert (status, first["view"]["goal"]) == (200, "reach 9")
    assert ask(served, "POST", "/v1/start", start) == (200, first)
    assert ask(served, "POST", "/v1/start", start | {"index": 1})[0] == 409
    one = {"session": session, "number": 1, "action": "add one"}
    status, step = ask(served, "POST", "/v1/step", one)
    assert (status, step["step"]["view"]["text"]) == (200, "You see a number. The number is 1.")
    assert ask(served, "POST", "/v1/step", one) == (200, step)  # the recorded answer
    assert ask(served, "POST", "/v1/step", one | {"action": "look"})[0] == 409  # another step of the same number
    assert ask(served, "POST", "/v1/step", one | {"number": 3})[0] == 409
    assert ask(served, "POST", "/v1/step", one | {"number": 2})[1]["step"]["view"]["text"].endswith("is 2.")
    assert ask(served, "POST", "/v1/close", {"session": session}) == (200, {"closed": True})
    assert ask(served, "POST", "/v1/close", {"session": session}) == (200, {"closed": False})
    assert ask(served, "POST", "/v1/step", one | {"number": 3})[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/v1/nothing", None, {}, 404),
        ("POST", "/v1/nothing", {}, {}, 404),
        ("GET", "/v1/world", None, {"Host": "evil.example"}, 403),
        ("GET", "/v1/instances?split=train&first=0&count=9999", None, {}, 400),
        ("GET", "/v1/instances?split=nowhere&first=0&count=1", None, {}, 400),
        ("GET", "/v1/instances?split=seen&first=5&count=9", None, {}, 400),
        ("GET", "/v1/instances?split=train&first=-1&count=1", None, {}, 400),
        ("POST", "/v1/start", b"not json", {}, 400),
        ("POST", "/v1/start", b"[" * 100_000, {}, 400),
        ("POST", "/v1/start", b"\xff\xfe", {}, 400),
        ("POST", "/v1/start", {}, {"Content-Type": "text/plain"}, 415),
        ("POST", "/v1/start", b" " * (2**20 + 1), {}, 413),
        ("POST", "/v1/start", {"session": "x", "split": "train", "index": 0}, {}, 400),
        ("POST", "/v1/start", {"session": "a" * 32, "split": 5, "index": 0}, {}, 400),
        ("POST", "/v1/start", {"session": "a" * 32, "split": "train", "index": True}, {}, 400),
        ("POST", "/v1/start", {"session": "a" * 32, "split": "seen", "index": 10**30}, {}, 400),
        ("POST", "/v1/step", {"session": ["a"], "number": 1, "action": "look"}, {}, 404),
        ("POST", "/v1/close", {"session": 5}, {}, 200),
    ],
)
def test_requests_that_are_refused(
    served: Served, method: str, path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    assert ask(served, method, path, body, **headers)[0] == status
    assert ask(served, "GET", "/v1/world")[0] == 200  # and it goes on


def test_sessions_are_bounded_and_idle_ones_dropped() -> None:
    with Served("--sessions", "3", "--idle", "1") as server:
        world, tasks = connect(server.address, count=8)
        found = kinds(tasks.start(games(world, *range(5))))
        assert sorted(found) == ["View"] * 3 + ["task_error"] * 2
        playing = [slot for slot, kind in enumerate(found) if kind == "View"]
        until(lambda: kinds(tasks.start(games(world, 5, 6, 7))) == ["View"] * 3)
        assert kinds(tasks.step(dict.fromkeys(playing, "look"))) == ["worker_died"] * 3
        tasks.close()


def test_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_KEY", "open-sesame")
    with Served("--key-env", "TASK_KEY") as server:
        assert ask(server, "GET", "/v1/world")[0] == 401
        assert ask(server, "GET", "/v1/world", Authorization="Bearer open-sesam")[0] == 401
        with pytest.raises(TaskError, match=r"no task server answers.*401"):
            RemoteWorld(WORLD, OPTIONS, server.address, 5.0)
        world = RemoteWorld(WORLD, OPTIONS, server.address, 5.0, "TASK_KEY")
        assert world.instance("train", 3).kind == "odd"
        world.close()
    with pytest.raises(ConfigError, match="for all to read"):
        RemoteWorld(WORLD, OPTIONS, "http://example.com:1", 5.0, "TASK_KEY")
    with pytest.raises(ConfigError, match=r"task\.key_env"):
        RemoteWorld(WORLD, OPTIONS, server.address, 5.0, "NO_SUCH_KEY")


def test_what_is_served_must_be_what_the_run_records(served: Served) -> None:
    with pytest.raises(TaskError, match=r"task server serves tests\.toys:ToyWorld"):
        RemoteWorld("household", {}, served.address, 5.0)
    with pytest.raises(TaskError, match=r"task.options.goal = 3 here, but 9 on the task server"):
        RemoteWorld(WORLD, {"naughty": True}, served.address, 5.0)
    with pytest.raises(TaskError, match=r"no task server answers.*serve-task"):
        RemoteWorld(WORLD, OPTIONS, "http://127.0.0.1:9", 5.0)
    with (
        Served(sets=("task.options.goal=5",)) as other,
        pytest.raises(TaskError, match="do not serve the same world"),
    ):
        RemoteWorld(WORLD, OPTIONS, f"{served.address},{other.address}", 5.0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_takes_its_workers_along(how: signal.Signals) -> None:
    with Served("--set", "task.workers=2") as server:
        world, tasks = connect(server.address)
        tasks.start(games(world, 0, 1))
        steps = tasks.step({0: "look", 1: "look"})
        workers = {int(step.info["pid"]) for step in steps.values() if isinstance(step, Step)}
        assert len(workers) == 2
        assert server.process.pid not in workers
        server.process.send_signal(how)
        assert all(gone(pid) for pid in workers)
        server.process.wait(20)
        tasks.close()
