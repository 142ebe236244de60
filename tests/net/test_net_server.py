"""The server under all servers: what it does to those who are too many, too slow, too long, or not from here."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from isentrope.core.errors import ConfigError
from isentrope.net.app import Door, Guarded, Refusal, json_app, json_object, path_of
from isentrope.net.connections import GRACE, MAX_HEAD, ROOM
from isentrope.net.server import Limits, Server, listen

LIMITS = Limits(body=1000, connections=4, head_seconds=0.5, read_seconds=0.5, answer_seconds=2.0, stop_seconds=1)

PATIENT = replace(LIMITS, head_seconds=20.0, read_seconds=20.0)
LARGE = 2**21


async def answer(request: Request) -> Any:
    path = path_of(request)
    if path == "/body":
        return await json_object(request)
    if path == "/raw":
        return {"bytes": len(await request.body())}
    if path == "/slow":
        await asyncio.sleep(30)
    if path == "/soon":
        await asyncio.sleep(0.3)
        return Response("soon")
    if path == "/large":
        return Response(b"x" * LARGE)
    if path == "/broken":
        raise KeyError("secret")
    if path == "/refused":
        raise Refusal("come back later", 429)
    if path == "/stream":
        return StreamingResponse(pieces(), media_type="text/event-stream")
    return {"path": path}


async def pieces() -> AsyncIterator[str]:
    for number in range(3):
        yield f"data: {number}\n\n"
        await asyncio.sleep(0.01)


@contextmanager
def serving(limits: Limits = LIMITS, door: Door | None = None) -> Iterator[Server]:
    app = Guarded(json_app(answer), door or Door(), limits)
    with Server(app, "127.0.0.1", 0, limits) as server, server.background():
        yield server


def ask(server: Server, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    sent = {"Content-Type": "application/json", **headers}
    connection.request("GET" if body is None else "POST", path, body, sent)
    response = connection.getresponse()
    got = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return got


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    got = b""
    try:
        while piece := connection.recv(65536):
            got += piece
    except ConnectionResetError:
        pass
    return got


def raw(server: Server, *pieces_sent: bytes, pause: float = 0.0) -> bytes:
    """What comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        for piece in pieces_sent:
            try:
                connection.sendall(piece)
            except OSError:
                break  # closed already
            time.sleep(pause)
        return read_all(connection)


def status_of(answered: bytes) -> int:
    return int(answered.split(b" ", 2)[1]) if answered else 0


def test_answers_errors_and_streams() -> None:
    with serving() as server:
        status, headers, body = ask(server, "/body/", b'{"a": 1}')
        assert (status, headers["content-type"], json.loads(body)) == (200, "application/json", {"a": 1})
        assert "server" not in headers
        status, headers, body = ask(server, "/broken")
        assert (status, json.loads(body)) == (500, {"error": "the server failed: KeyError"})
        assert headers["connection"] == "close"
        status, headers, body = ask(server, "/refused")
        assert (status, headers["retry-after"], json.loads(body)) == (429, "1", {"error": "come back later"})
        status, headers, body = ask(server, "/stream")
        assert (status, body) == (200, b"data: 0\n\ndata: 1\n\ndata: 2\n\n")
        assert "text/event-stream" in headers["content-type"]


def test_an_answer_that_takes_too_long() -> None:
    with serving() as server:
        status, _, body = ask(server, "/slow")
    assert (status, json.loads(body)) == (500, {"error": "the server failed: TimeoutError"})


def test_bodies_that_are_too_long_whatever_is_said_of_them() -> None:
    with serving() as server:
        assert ask(server, "/body", b" " * 1001)[0] == 413
        assert ask(server, "/body", b"{}", **{"Content-Length": "1" + "0" * 15})[0] == 413  # and nothing comes
        assert ask(server, "/body", b"{}", **{"Content-Length": "9" * 5000})[0] == 413
        assert ask(server, "/body", b"{}", **{"Content-Length": "-1"})[0] == 400
        start = b"POST /raw HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"258\r\n" + b"x" * 600 + b"\r\n"
        assert raw(server, start + 2 * chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
        chunked = start.replace(b"/raw", b"/body").replace(b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n")
        assert b" 411 " in raw(server, chunked + b"2\r\n{}\r\n0\r\n\r\n").splitlines()[0]
        assert ask(server, "/body", b"{}")[0] == 200


def test_who_is_silent_or_slow_is_left() -> None:
    with serving() as server:
        began = time.monotonic()
        assert raw(server) == b""
        assert raw(server, *[b"GET /x HTTP/1.1\r\n", *[b"A: b\r\n"] * 30], pause=0.05) == b""  # never a whole head
        head = b"POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n"
        assert raw(server, head + b"{").startswith(b"HTTP/1.1 408")
        kept = b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        assert raw(server, kept).startswith(b"HTTP/1.1 200")  # and closed, as nothing else was asked
        assert time.monotonic() - began < 15


def test_heads_that_are_too_long_or_none() -> None:
    with serving(PATIENT) as server:
        start = b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        assert status_of(raw(server, start + b"A: " + b"x" * (MAX_HEAD + 10))) == 431
        assert status_of(raw(server, start + b"A: b\r\n" * (MAX_HEAD // 6) + b"\r\n")) == 431  # a whole one
        assert status_of(raw(server, b"GET /" + b"x" * MAX_HEAD + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")) in (
            400,
            431,
        )
        assert status_of(raw(server, b"rubbish\r\n\r\n")) == 400
        assert ask(server, "/x")[0] == 200


def test_silent_connections_make_room_for_those_that_ask() -> None:
    with serving(PATIENT) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        time.sleep(1.5 * GRACE)
        assert ask(server, "/x")[0] == 200
        assert read_all(held[0]) == b""  # who waited longest has left for it
        for connection in held:
            connection.close()


def test_requests_that_are_answered_are_not_closed_for_others() -> None:
    with serving(replace(PATIENT, answer_seconds=60.0)) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4 * ROOM)]
        for connection in held:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(1.5 * GRACE)
        assert ask(server, "/x")[0] == 503  # at once, as nobody here waits for a client
        for connection in held:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):  # it is still open, and has no answer
                connection.recv(1)
            connection.close()


def test_an_answer_that_nobody_reads() -> None:
    with serving() as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(4 * LIMITS.read_seconds + 1.5)
        assert len(read_all(deaf)) < LARGE  # it was cut off
        assert len(ask(server, "/large")[2]) == LARGE


def test_answers_that_nobody_reads_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.net.connections.MAX_UNSENT", 2 * LARGE)
    with serving(replace(PATIENT, connections=20)) as server:
        deaf = [socket.socket() for _ in range(8)]
        for connection in deaf:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            time.sleep(0.05)
        got = [len(read_all(connection)) for connection in deaf]
        assert max(got[:4]) < LARGE < got[-1]
        for connection in deaf:
            connection.close()


def test_chunks_that_are_nearly_nothing() -> None:
    start = b"POST /raw HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(PATIENT) as server:
        end = b"0\r\nA: " + b"x" * 2**19
        assert status_of(raw(server, start + b"2\r\n{}\r\n", end)) == 400  # what follows the last chunk has no end
        assert status_of(raw(server, start + b"2;a=" + b"x" * 2**19 + b"\r\n{}\r\n0\r\n\r\n")) == 400
        small = b"".join(b"1;a\r\nx\r\n" for _ in range(900)) + b"0\r\n\r\n"
        assert status_of(raw(server, start.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + small)) == 200


def test_a_refusal_is_no_answer_to_the_request_before() -> None:
    with serving(replace(PATIENT, answer_seconds=60.0)) as server:
        first = b"GET /soon HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        got = raw(server, first + b"rubbish\r\n\r\n")
        assert status_of(got) == 200
        assert got.endswith(b"soon")
        assert got.count(b"HTTP/1.1") == 1


def test_nobody_makes_a_websocket_of_what_has_none(capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        for more in (key, b"", b"Content-Length: 2\r\n"):
            method = b"POST" if b"Length" in more else b"GET"
            got = raw(server, method + b" /x HTTP/1.1\r\nHost: 127.0.0.1\r\n" + upgrade + more + b"\r\n{}")
            assert status_of(got) in (200, 400)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("door", "headers", "status"),
    [
        (Door(), {}, 200),
        (Door(), {"Host": "evil.example"}, 403),
        (Door(), {"Host": "localhost:1", "Origin": "http://localhost:3000"}, 200),
        (Door(), {"Origin": "https://evil.example"}, 403),
        (Door(), {"Origin": "null"}, 403),
        (Door(local=False), {"Host": "games.example"}, 200),
        (Door(local=False), {"Host": "games.example:80", "Origin": "http://games.example"}, 200),
        (Door(local=False), {"Host": "games.example", "Origin": "http://evil.example"}, 403),
        (Door("sesame"), {}, 401),
        (Door("sesame"), {"Authorization": "Bearer sesam"}, 401),
        (Door("sesame"), {"Authorization": "Bearer sesame", "Host": "any.example"}, 200),
    ],
)
def test_the_door(door: Door, headers: dict[str, str], status: int) -> None:
    assert "sesame" not in repr(door)
    with serving(door=door) as server:
        got, sent, _ = ask(server, "/x", **headers)
        assert got == status
        assert (sent.get("www-authenticate") == "Bearer") == (status == 401)


def test_the_end_does_not_wait_for_ever() -> None:
    limits = replace(LIMITS, answer_seconds=60.0)
    got: list[Any] = []
    with serving(limits) as server:
        asking = threading.Thread(target=lambda: got.append(ask(server, "/slow")))
        asking.start()
        time.sleep(0.5)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    asking.join()
    assert (got[0][0], json.loads(got[0][2])) == (503, {"error": "the server is stopping"})


def test_an_address_that_cannot_be_had() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match=r"cannot serve at 127\.0\.0\.1:\d+: .*use"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="cannot serve at"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(ConfigError, match="cannot serve at"):
        listen("a" * 70 + ".example", 0)


def test_of_a_range_the_first_free_port_is_taken_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with listen("127.0.0.1", range(port, port + 50)) as other:
            assert port < other.getsockname()[1] < port + 50
        assert f"port {port} is in use" in caplog.text
        with pytest.raises(ConfigError, match="cannot serve at"):
            listen("127.0.0.1", range(port, port + 1))
        with pytest.raises(ConfigError, match="cannot serve at"):
            listen("no.such.host.invalid", range(port, port + 50))
