"""Retrieval over HTTP: our server as a process of its own, our client, and servers that misbehave."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from isentrope.config.schema import TaskSettings
from isentrope.core.errors import TaskError
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.search_qa.generated import library
from isentrope.worlds.search_qa.passages import Passage
from isentrope.worlds.search_qa.retrievers import Remote, over
from isentrope.worlds.search_qa.world import SearchQAOptions, SearchQAWorld

QUERIES = ["which river runs through the town", "Adela", "zebra", "\ud800 \x00", ""]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """`isentrope retrieve generated`, as a user starts it."""
    command = [sys.executable, "-m", "isentrope", "retrieve", "generated", "--port", "0", "--topk", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"400 passages at (http://127\.0\.0\.1:\d+)/retrieve, until interrupted \(Ctrl-C\)\n", line)
    assert found, line
    yield found[1]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0
    assert process.stdout.read() == "Stopped.\n"


def post(address: str, body: Any, path: str = "/retrieve", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, data, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_protocol(address: str) -> None:
    """What clients of Search-R1 send and read."""
    status, answer = post(address, {"queries": ["Adela river", "zebra"], "topk": 3, "return_scores": True})
    assert status == 200
    first, second = answer["result"]
    assert len(first) == 3
    assert second == []
    title, _, text = first[0]["document"]["contents"].partition("\n")
    assert title.startswith('"')
    assert text
    assert first[0]["score"] >= first[1]["score"] > 0
    assert set(first[0]) == {"document", "score"}
    status, answer = post(address, {"queries": ["Adela river"]})  # the server's own topk, and bare documents
    assert status == 200
    assert [set(document) for document in answer["result"][0]] == [{"id", "contents", "title", "text"}] * 2
    assert post(address, {"queries": ["Adela"], "topk": None})[0] == 200
    assert post(address, {"queries": []}) == (200, {"result": []})


def test_the_client_finds_what_the_index_finds(address: str) -> None:
    here = over(library(400).passages, "bm25")
    assert Remote(address).search(QUERIES[:3], 3) == here.search(QUERIES[:3], 3)
    assert Remote(f"{address}/retrieve/").search(QUERIES[3:], 3) == [[], []]


def test_the_world_over_http(address: str) -> None:
    world = SearchQAWorld(SearchQAOptions(retriever=address))
    assert world.threads > 1
    assert_conforms(world, games=3)
    here, there = SearchQAWorld().open(), world.open()
    for task in (here, there):
        task.start(world.instance("test", 0))
    assert here.step("search[Adela]") == there.step("search[Adela]")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "must be a JSON object"),
        ({}, 400, "queries"),
        ({"queries": "x"}, 400, "queries"),
        ({"queries": [1]}, 400, "queries"),
        ({"queries": ["x"] * 1025}, 400, "1024"),
        ({"queries": ["x" * 10_001]}, 400, "10000"),
        ({"queries": ["x"], "topk": 101}, 400, "topk"),
        ({"queries": ["x"], "topk": -1}, 400, "topk"),
        ({"queries": ["x"], "topk": "3"}, 400, "topk"),
        ({"queries": ["x"], "topk": True}, 400, "topk"),
    ],
)
def test_bad_requests_are_refused(address: str, body: Any, status: int, message: str) -> None:
    found, answer = post(address, body)
    assert found == status
    assert message in answer["error"]


def test_requests_from_elsewhere_are_refused(address: str) -> None:
    body = {"queries": ["x"]}
    assert post(address, body, Host="evil.example")[0] == 403
    assert post(address, body, **{"Content-Type": "text/plain"})[0] == 415
    assert post(address, b"", **{"Content-Length": str(2**40)})[0] == 413
    assert post(address, b"", **{"Content-Length": "9" * 5000})[0] == 413
    assert post(address, body, path="/other")[0] == 404
    assert post(address, body)[0] == 200, "it still answers"


def test_a_wrong_command(address: str) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "isentrope", "retrieve", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    taken = run("generated", "--port", address.rpartition(":")[2])
    assert taken.returncode == 2
    assert "Address already in use" in taken.stderr
    assert "no such file" in run("none.jsonl").stderr
    assert "expected one of bm25, dense" in run("generated", "--retriever", "magic").stderr


class Odd(BaseHTTPRequestHandler):
    """Answers each request with the next of the given answers; the last one again and again."""

    answers: list[tuple[int, bytes]]
    asked: int

    def do_POST(self) -> None:
        cls = type(self)
        status, body = cls.answers[min(cls.asked, len(cls.answers) - 1)]
        cls.asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def odd_server(*answers: tuple[int, bytes]) -> Iterator[tuple[str, Callable[[], int]]]:
    handler = type("Handler", (Odd,), {"answers": list(answers), "asked": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", lambda: handler.asked  # type: ignore[attr-defined]
        server.shutdown()


GOOD = json.dumps({"result": [[{"document": {"id": "1", "contents": '"T"\ntext'}, "score": 1.5}]]}).encode()


def test_failures_that_may_pass_are_tried_again() -> None:
    with odd_server((503, b"busy"), (500, b"oops"), (200, GOOD)) as (address, asked):
        (hits,) = Remote(address, retries=2).search(["x"], 3)
        assert hits[0].passage == Passage("1", "T", "text")
        assert asked() == 3
    with odd_server((503, b"busy")) as (address, asked):
        with pytest.raises(TaskError, match="it answered 503: busy"):
            Remote(address, retries=1).search(["x"], 3)
        assert asked() == 2


def test_failures_that_stay_are_not_tried_again() -> None:
    for status in (400, 404, 302):
        with odd_server((status, b"no")) as (address, asked):
            with pytest.raises(TaskError, match=f"it answered {status}: no"):
                Remote(address, retries=3).search(["x"], 3)
            assert asked() == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>", "did not answer in JSON"),
        (b"[" * 100_000, "did not answer in JSON"),
        (b"[]", "did not answer {"),
        (b'{"result": {}}', "did not answer {"),
        (b'{"result": [3]}', "did not answer {"),
        (b'{"result": []}', "0 results for 1 queries"),
        (b'{"result": [[3]]}', "a passage needs contents"),
        (b'{"result": [[{"document": "x"}]]}', "not a JSON object"),
        (b'{"result": [[{"document": {"id": 1}}]]}', "a passage needs contents"),
        (b" " * (16 * 2**20 + 1), "more than 16 MiB"),
    ],
)
def test_answers_that_are_none(answer: bytes, message: str) -> None:
    with odd_server((200, answer)) as (address, _), pytest.raises(TaskError, match=message):
        Remote(address).search(["x"], 3)


def test_other_forms_of_an_answer() -> None:
    documents = [{"title": "T", "text": "x"}, {"document": {"contents": "T\ny"}, "score": float("nan")}, {"text": "z"}]
    with odd_server((200, json.dumps({"result": [documents * 5]}).encode())) as (address, _):
        (hits,) = Remote(address).search(["x"], 3)
    assert [(hit.passage.title, hit.passage.text, hit.score) for hit in hits] == [
        ("T", "x", 0),
        ("T", "y", 0),
        ("", "z", 0),
    ]


def test_no_server_and_a_silent_one() -> None:
    with pytest.raises(TaskError, match=r"Is the server running\?"):
        Remote("http://127.0.0.1:1", retries=0).search(["x"], 3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TaskError, match="timed out"):
            Remote(address, timeout=0.2, retries=1).search(["x"], 3)


class Slow(Odd):
    """Sends an answer that never ends, or says nothing at all."""

    def do_POST(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.answers:
            self.send_response(200)
            self.end_headers()
        try:
            for _ in range(500):
                time.sleep(0.02)
                if self.answers:
                    self.wfile.write(b" ")
        except OSError:
            pass  # gone


@pytest.mark.parametrize("answers", [[], [(200, b"")]], ids=["silent", "without end"])
def test_the_time_limit_is_that_of_the_whole_search(answers: list[tuple[int, bytes]]) -> None:
    handler = type("Handler", (Slow,), {"answers": answers, "asked": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(TaskError, match="timed out"):
            Remote(f"http://127.0.0.1:{server.server_address[1]}", timeout=0.5, retries=3).search(["x"], 3)
        assert handler.asked == 1  # type: ignore[attr-defined]  # no time is left for another attempt
        server.shutdown()


def test_a_search_ends_before_its_step_does() -> None:
    assert SearchQAOptions().timeout < TaskSettings().step_seconds


@pytest.mark.parametrize(
    "address",
    ["magic", "ftp://x", "http://", "http://x:y", "http://user:pass@host", "http://host/?a=b", "http://x:0", ""],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(TaskError, match="expected bm25, dense, or an address"):
        SearchQAWorld(SearchQAOptions(retriever=address))
