from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from isentrope.core.errors import ConfigError, TaskError
from isentrope.net.server import Server
from isentrope.worlds.adapters.openenv import ActionForm, OpenEnvOptions, OpenEnvWorld
from isentrope.worlds.adapters.openenv_server import make_app, open_server
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

openenv = pytest.importorskip("openenv.core", reason="needs pip install 'isentrope[openenv]'")


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The application at a free port of this machine."""
    with Server(app, "127.0.0.1", 0, websockets=True) as server, server.background():
        yield server.address


def foreign_app() -> Any:
    """An environment as somebody else would write it: count to a number that the seed gives. No splits, no text."""
    from openenv.core.env_server import Environment, create_fastapi_app
    from openenv.core.env_server.types import Action, Observation, State

    class Add(Action):
        amount: int

    class Count(Observation):
        count: int = 0
        wanted: int = 0
        legal_actions: list[int] | None = None

    class Counting(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
            self.count, self.wanted = 0, (seed or 0) % 5 + 2
            return self.seen()

        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            if action.amount > 100:
                raise ValueError("too much")
            self.count += action.amount
            return self.seen(reward=1.0 if self.count == self.wanted else 0.0, done=self.count >= self.wanted)

        def seen(self, **more: Any) -> Any:
            return Count(count=self.count, wanted=self.wanted, legal_actions=[1, 2], **more)

        @property
        def state(self) -> Any:
            return State()

    return create_fastapi_app(Counting, Add, Count, max_concurrent_envs=16)


@pytest.fixture(scope="module")
def household() -> Iterator[str]:
    with served(make_app(HouseholdWorld(HouseholdOptions(rooms="small")), 16)) as url:
        yield url


@pytest.fixture(scope="module")
def foreign() -> Iterator[str]:
    with served(foreign_app()) as url:
        yield url


def test_our_world_behind_their_protocol_plays_as_it_does_here(household: str) -> None:
    near, far = HouseholdWorld(HouseholdOptions(rooms="small")), OpenEnvWorld(OpenEnvOptions(url=household))
    assert far.splits() == ("train", "seen", "unseen")
    here, there = near.open(), far.open()
    for index in range(3):
        instance = near.instance("unseen", index)
        view = here.start(instance)
        assert there.start(far.instance("unseen", index)) == view
        expert = near.expert(0)
        expert.start(view, instance)
        for _ in range(50):
            action = expert.act(view).action
            step, other = here.step(action), there.step(action)
            view = step.view
            assert (other.view, other.reward, other.terminated, other.success, other.valid) == (
                (step.view, step.reward, step.terminated, step.success, step.valid)
            )
            if step.terminated:
                break
        assert step.success
    there.close()


def test_it_conforms(household: str, foreign: str) -> None:
    assert_conforms(OpenEnvWorld(OpenEnvOptions(url=household)), games=1, max_turns=10)
    assert_conforms(OpenEnvWorld(OpenEnvOptions(url=foreign)), games=1, max_turns=10)


def test_their_own_client_plays_our_world(household: str) -> None:
    with openenv.GenericEnvClient(base_url=household).sync() as client:
        result = client.reset(split="seen", index=2)
        assert not result.done
        assert "go to" in " ".join(result.observation["admissible"])
        result = client.step({"text": result.observation["admissible"][0]})
        assert result.observation["valid"]
        assert client.state()["step_count"] == 1
        first = client.reset(seed=7).observation
        assert client.reset(seed=7).observation == first


def test_a_foreign_environment(foreign: str) -> None:
    """Seeds instead of splits, numbers instead of text, fields instead of sentences."""
    world = OpenEnvWorld(OpenEnvOptions(url=foreign))
    assert (world.action.field, world.action.kind) == ("amount", "integer")
    task = world.open()
    view = task.start(world.instance("train", 1))  # wanted: 1 % 5 + 2
    assert (view.text, view.admissible) == ("count: 0\nwanted: 3", ("1", "2"))
    assert "whole number" in view.rules
    refused = task.step("two")
    assert not refused.valid
    assert not task.step("101").valid  # the environment itself raises
    assert task.step("1").view.text == "count: 1\nwanted: 3"
    step = task.step("2")
    assert (step.reward, step.terminated, step.success) == (1.0, True, True)
    task.start(world.instance("train", 1))
    step = task.step("50")
    assert (step.reward, step.terminated, step.success) == (0.0, True, False)
    task.close()


@pytest.mark.parametrize(
    ("form", "text", "payload"),
    [
        (ActionForm("text", "string"), "go\ud800", {"text": "go?"}),
        (ActionForm("n", "integer"), " 3 ", {"n": 3}),
        (ActionForm("n", "integer"), "3.5", None),
        (ActionForm("n", "integer"), "true", None),
        (ActionForm("x", "number"), "3", {"x": 3}),
        (ActionForm("b", "boolean"), "true", {"b": True}),
        (ActionForm("", "object"), '{"a": 1, "b": [2]}', {"a": 1, "b": [2]}),
        (ActionForm("", "object"), "[1]", None),
        (ActionForm("", "object"), "[" * 100_000, None),
    ],
)
def test_from_text_to_an_action(form: ActionForm, text: str, payload: dict[str, Any] | None) -> None:
    assert form.payload(text) == payload


def test_what_is_refused(foreign: str) -> None:
    with pytest.raises(TaskError, match="no OpenEnv server answers"):
        OpenEnvWorld(OpenEnvOptions(url="http://127.0.0.1:9"))
    with pytest.raises(TaskError, match="begins with http"):
        OpenEnvWorld(OpenEnvOptions(url="file:///etc/passwd"))
    with pytest.raises(TaskError, match="has amount"):
        OpenEnvWorld(OpenEnvOptions(url=foreign, field="text"))
    world = OpenEnvWorld(OpenEnvOptions(url=foreign, text="colour"))
    with pytest.raises(TaskError, match=r"observations have .*count"):
        world.open().start(world.instance("train", 0))


@pytest.mark.parametrize(
    ("headers", "to_others", "status"),
    [
        ({}, False, 200),
        ({"Origin": "http://localhost:3000"}, False, 200),
        ({"Origin": "https://evil.example"}, False, 403),
        ({"Origin": "null"}, False, 403),
        ({"Host": "evil.example"}, False, 403),
        ({"Host": "evil.example", "Origin": "https://evil.example"}, False, 403),
        ({"Host": "[", "Origin": "http://["}, False, 403),
        ({"Host": "games.example"}, True, 200),
        ({"Host": "games.example:8000", "Origin": "http://games.example:8000"}, True, 200),
        ({"Host": "games.example", "Origin": "https://evil.example"}, True, 403),
        ({"Host": "games.example", "Origin": "null"}, True, 403),
    ],
)
def test_web_pages_from_elsewhere_are_refused(headers: dict[str, str], to_others: bool, status: int) -> None:
    from starlette.testclient import TestClient
    from starlette.websockets import WebSocketDisconnect

    app = make_app(HouseholdWorld(HouseholdOptions(rooms="small")), 4, to_others)
    client, address = TestClient(app, base_url="http://127.0.0.1:8000"), "ws://127.0.0.1:8000/ws"
    assert client.get("/health", headers=headers).status_code == status
    if status == 200:
        with client.websocket_connect(address, headers=headers) as socket:
            socket.send_json({"type": "reset", "data": {"seed": 1}})
            assert "You are in" in socket.receive_text()
    else:
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(address, headers=headers):
            pass


def test_it_is_not_opened_to_others_by_accident() -> None:
    world = HouseholdWorld(HouseholdOptions(rooms="small"))
    for host in ("0.0.0.0", "::", "", "192.168.1.5"):
        with pytest.raises(ConfigError, match="OpenEnv has no key"):
            open_server(world, host, 0, 4)
    open_server(world, "0.0.0.0", 0, 4, to_others=True).close()
    for host in ("127.0.0.1", "localhost"):
        open_server(world, host, 0, 4).close()
    command = [sys.executable, "-m", "isentrope", "serve-openenv", "household", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--to-others" in done.stderr


@pytest.mark.slow(6)
def test_the_command_serves() -> None:
    command = [sys.executable, "-u", "-m", "isentrope", "serve-openenv", "household", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("household at http://127.0.0.1:")
            world = OpenEnvWorld(OpenEnvOptions(url=line.split(" ")[2]))
            task = world.open()
            assert task.start(world.instance("train", 0)).goal
            task.close()
        finally:
            process.terminate()
