"""A real HTTP server that does as it is told: answer, refuse, hang, hang up, send rubbish."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["_Handler"], None]


def completion(text: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"choices": [choice], "usage": usage} | more


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None, kind: str = "application/json") -> Act:
    """Send `body`: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def act(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return act


def refuse(status: int, message: str = "no", **headers: str) -> Act:
    return answer({"error": {"message": message}}, status, {k.replace("_", "-"): v for k, v in headers.items()})


def say(text: str) -> Act:
    return answer(completion(text))


def hang(handler: _Handler) -> None:
    handler.server_of_test.released.wait(20)


def drip(handler: _Handler) -> None:
    """A byte every now and then: no single wait is long, the whole is."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    while not handler.server_of_test.released.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def drip_headers(handler: _Handler) -> None:
    """A header line every now and then, for longer than anyone waits."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    _again_and_again(handler, b"X-More: yes\r\n")


def continue_on_and_on(handler: _Handler) -> None:
    _again_and_again(handler, b"HTTP/1.1 100 Continue\r\n\r\n")


def _again_and_again(handler: _Handler, data: bytes) -> None:
    """Until the client leaves; a client that does not is remembered."""
    for _ in range(90):
        if handler.server_of_test.released.wait(0.05):
            return
        handler.wfile.write(data)
    handler.server_of_test.outwaited = True


def reset(handler: _Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def cut_short(handler: _Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')


@dataclass
class Faulty:
    """Does the acts in turn, the last one for ever; keeps what it was sent."""

    acts: Sequence[Act]
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    outwaited: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, body: Any, headers: dict[str, str]) -> Act:
        with self.lock:
            number = len(self.bodies)
            self.bodies.append(body)
            self.headers.append(headers)
            self.times.append(time.monotonic())
        return self.acts[min(number, len(self.acts) - 1)]


class _Handler(BaseHTTPRequestHandler):
    server_of_test: Faulty
    asked: Any

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        test = self.server_of_test
        self.asked = json.loads(data) if data else None
        act = test.begin(self.asked, {k.lower(): v for k, v in self.headers.items()})
        try:
            act(self)
        except OSError:
            pass  # the client has left

    def log_message(self, format: str, *args: Any) -> None: ...


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that were reset are what these tests are about."""


@contextmanager
def faulty(*acts: Act) -> Generator[Faulty]:
    test = Faulty(acts)
    handler = type("Handler", (_Handler,), {"server_of_test": test})
    server = _Quiet(("127.0.0.1", 0), handler)
    test.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield test
    finally:
        test.released.set()
        server.shutdown()
        server.server_close()
