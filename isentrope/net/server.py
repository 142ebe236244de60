"""Serves an ASGI application at an address, by uvicorn.

Limits hold for every connection, whatever the application: how many there are, how long they may be silent, and how
long requests that are under way hold up the end. Limits of single requests are in app.py.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from isentrope.core.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    try:  # the compiled one takes a fraction of the time
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol

LOG = logging.getLogger("isentrope")
BACKLOG = 1024  # connections that wait to be accepted
MAX_HEAD = 64 * 1024  # bytes of a request's line and headers
_LONG_LENGTH = re.compile(rb"content-length:[ \t]*[0-9]{20}", re.IGNORECASE)  # more than parsers take


@dataclass(frozen=True)
class Limits:
    body: int = 4 * 2**20  # bytes of a request, or of one message of a WebSocket
    connections: int = 512  # at a time, so also requests at a time; others are closed as they come
    read_seconds: float = 60.0  # for a request's headers to come, counted from the last answer, and for its body
    answer_seconds: float = 1800.0  # for an answer to be made and sent
    stop_seconds: int = 5  # that requests under way have after the end was asked for


class Server:
    """Listens from when it is made, so that who comes early waits; answers in `run` or in `background`."""

    def __init__(
        self, app: ASGIApp, host: str, port: int | range, limits: Limits | None = None,
        each_second: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        async def notify() -> None:
            if each_second is not None:
                each_second()

        limits = limits or Limits()
        self._socket = listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app, http=cast("type[asyncio.Protocol]", partial(_Connection, limits=limits)),
            h11_max_incomplete_event_size=MAX_HEAD, ws_max_size=limits.body, server_header=False, proxy_headers=False,
            timeout_keep_alive=int(limits.read_seconds) + 1, timeout_graceful_shutdown=limits.stop_seconds,
            callback_notify=notify if each_second else None, timeout_notify=0,
            log_config=None, log_level="error", access_log=False,  # what clients send is not ours to write down
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def run(self) -> None:
        """Until SIGINT, which becomes a KeyboardInterrupt, or SIGTERM, which becomes a SystemExit."""
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            self._server.run(sockets=[self._socket])
        finally:
            signal.signal(signal.SIGTERM, before)

    def run_until_interrupted(self, what: str) -> None:
        """Says on standard output what runs, and that it was stopped."""
        print(f"{what}, until interrupted (Ctrl-C)", flush=True)
        try:
            self.run()
        except KeyboardInterrupt:
            print("Stopped.", flush=True)

    @contextmanager
    def background(self) -> Generator[Server]:
        """Answers in a thread for as long as the context lasts."""
        thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def listen(host: str, port: int | range) -> socket.socket:
    """A listening socket; at any free port for port 0, at the first free one of a range."""
    if isinstance(port, range):
        return _first_free(host, port)
    opened, error = _opened(host, port)
    if opened is None:
        raise _refused(host, port, error)
    return opened


def _first_free(host: str, ports: range) -> socket.socket:
    error: Exception | None = None
    for port in ports:
        opened, error = _opened(host, port)
        if opened is not None:
            if port != ports[0]:
                LOG.warning(f"port {ports[0]} is in use, so this is at port {port}; --port names one")
            return opened
        if getattr(error, "errno", None) != errno.EADDRINUSE:
            break
    raise _refused(host, ports[0], error)


def _opened(host: str, port: int) -> tuple[socket.socket | None, Exception | None]:
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        opened.close()
        return None, error
    return opened, None


def _refused(host: str, port: int, error: Exception | None) -> ConfigError:
    why = getattr(error, "strerror", None) or error
    return ConfigError(f"cannot serve at {host}:{port}: {why}; choose another --port (0: any free one) or --host")


class _Connection(Protocol):
    """uvicorn's connection, closed at once if there are too many and later if no request comes."""

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._silent_since, self._head_bytes, self._latest = self.loop.time(), 0, b""
        self._check: asyncio.TimerHandle | None = None

    @property
    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Joined(transport, self.loop)))
        if len(self.connections) > self._limits.connections:
            transport.close()
        else:
            self._close_if_silent()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._check is not None:
            self._check.cancel()

    def data_received(self, data: bytes) -> None:
        self._latest = data
        super().data_received(data)
        if not self._answering:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
                self._refuse(431, f"the headers of the request have more than {MAX_HEAD // 1024} KiB")

    def on_response_complete(self) -> None:
        self._silent_since, self._head_bytes = self.loop.time(), 0
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP; the parser's own error says what is wrong with it."""
        if "Content-Length" not in str(sys.exc_info()[1]):
            self._refuse(400, msg)
        elif _LONG_LENGTH.search(self._latest):
            self._refuse(413, "the request is too long")
        else:
            self._refuse(411, "the request must have a Content-Length")

    def _refuse(self, status: int, words: str) -> None:
        body = json.dumps({"error": words})
        self.transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()

    def _close_if_silent(self) -> None:
        """One timer for each connection, and not one for each request."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # closed, or a WebSocket by now
        since = self.loop.time() if self._answering else self._silent_since
        left = since + self._limits.read_seconds - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._check = self.loop.call_later(left, self._close_if_silent)


class _Joined:
    """A transport that sends what is written in one go, a response's headers and body, as one packet."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
