"""A task server that sends rubbish, against the real client: over real sockets, byte for byte."""

from __future__ import annotations

import json

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool import remote
from isentrope.worlds.pool.codec import pack
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import open_tasks
from isentrope.worlds.pool.remote import RemoteWorld
from tests.worlds.pool.task_servers import DESCRIPTION, OPTIONS, VIEW, WORLD, body, raw_server, usual


def step_with(**changes: object) -> bytes:
    step = {"view": VIEW, "reward": 0.5, "terminated": False, "truncated": False, "success": False, "valid": True}
    return body(json.dumps({"step": step | {"info": {}} | changes}).encode())


RUBBISH = {
    "not UTF-8": (body(b'{"step": "\xff\xfe"}'), "garbage"),
    "not JSON": (body(b"<html>hello</html>"), "garbage"),
    "cut JSON": (body(b'{"step": {"view": {"text": "hel'), "garbage"),
    "deep JSON": (body(b"[" * 200_000), "garbage"),
    "not an object": (body(b"[1, 2]"), "garbage"),
    "empty": (body(b""), "garbage"),
    "10 MB": (step_with(view=VIEW | {"text": "x" * 10_000_000}), "garbage"),
    "NaN": (step_with(reward=float("nan")), "garbage"),
    "infinite": (step_with(reward="inf"), "garbage"),
    "endless number": (body(b'{"step": {"view": {"text": "a", "admissible": null}, "reward": 1e999}}'), "garbage"),
    "text for a flag": (step_with(terminated="false"), "garbage"),
    "number for text": (step_with(view=VIEW | {"text": 5}), "garbage"),
    "actions not a list": (step_with(view=VIEW | {"admissible": "look"}), "garbage"),
    "unknown field": (step_with(weight=3), "garbage"),
    "no view": (body(pack({"step": {"reward": 1.0}})), "garbage"),
    "a view for a step": (body(pack({"view": VIEW})), "garbage"),
    "unknown failure": (body(pack({"failure": {"kind": "tired", "detail": ""}})), "garbage"),
    "known failure": (body(pack({"failure": {"kind": "time_limit", "detail": "slow"}})), "time_limit"),
    "not HTTP": (b"\x00\x01\x02 what?\r\n\r\n", "worker_died"),
    "cut body": (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", "worker_died"),
    "hangs up": (b"", "worker_died"),
    "long header": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "worker_died"),
    "redirect": (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "task_error"),
    "error": (body(b'{"error": "on fire \x1b[31m"}', "500 Oh"), "task_error"),
    "unknown session": (body(b'{"error": "who?"}', "404 Not Found"), "worker_died"),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_becomes_a_failure_of_its_episode(name: str) -> None:
    answer, kind = RUBBISH[name]
    with raw_server(lambda path: answer if path == "/v1/step" else usual(path)) as address:
        world = RemoteWorld(WORLD, OPTIONS, address, 5.0)
        tasks = open_tasks(WORLD, OPTIONS, 1, 0, 5.0, address, world)
        assert isinstance(tasks.start({0: world.instance("train", 0)})[0], View)
        [step] = tasks.step({0: "look"}).values()
        assert isinstance(step, Failure)
        assert step.kind == kind
        assert len(step.detail) <= 500
        assert step.detail.isprintable()
        assert isinstance(tasks.step({0: "look"})[0], Failure)  # its episode is over
        tasks.close()


def test_long_text_from_a_server_is_cut() -> None:
    huge = step_with(view=VIEW | {"text": "x" * 5_000_000, "admissible": [f"go {n}" for n in range(100_000)]})
    with raw_server(lambda path: huge if path == "/v1/step" else usual(path)) as address:
        world = RemoteWorld(WORLD, OPTIONS, address, 5.0)
        tasks = open_tasks(WORLD, OPTIONS, 1, 0, 5.0, address, world)
        tasks.start({0: world.instance("train", 0)})
        [step] = tasks.step({0: "look"}).values()
        assert isinstance(step, Step)
        assert step.view.mended == ("text_cut", "actions_cut")
        tasks.close()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_an_answer_that_drips(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then, in a header or in the body: no single wait is long, the whole would never end."""
    monkeypatch.setattr(remote, "GRACE", 0.2)
    with raw_server(lambda path: head if path == "/v1/step" else usual(path), drip="/v1/step") as address:
        world = RemoteWorld(WORLD, OPTIONS, address, 0.5)
        tasks = open_tasks(WORLD, OPTIONS, 1, 0, 0.5, address, world)
        tasks.start({0: world.instance("train", 0)})
        [step] = tasks.step({0: "look"}).values()
        assert isinstance(step, Failure)
        assert step.kind == "time_limit"
        tasks.close()


@pytest.mark.parametrize(
    "description",
    [
        b"hello",
        pack({}),
        pack(DESCRIPTION | {"protocol": 2}),
        pack(DESCRIPTION | {"kinds": "even"}),
        pack(DESCRIPTION | {"splits": {"train": -1}}),
        pack(DESCRIPTION | {"splits": ["train"]}),
        pack(DESCRIPTION | {"options": None}),
        pack(DESCRIPTION | {"name": 5}),
    ],
)
def test_a_description_that_is_none(description: bytes) -> None:
    with raw_server(lambda path: body(description)) as address, pytest.raises(TaskError, match="no task server"):
        RemoteWorld(WORLD, OPTIONS, address, 5.0)


def test_instances_that_were_not_asked_for() -> None:
    wrong = body(pack({"instances": [{"world": "toy", "split": "train", "index": 7, "kind": "odd"}]}))
    with raw_server(lambda path: wrong if path.startswith("/v1/instances") else usual(path)) as address:
        world = RemoteWorld(WORLD, OPTIONS, address, 5.0)
        with pytest.raises(TaskError, match="gave others"):
            world.instance("train", 0)
        world.close()
