"""Serves an ASGI application at an address, by uvicorn.

Limits hold for every connection, whatever the application (connections.py), and for the end: how long requests that are
under way hold it up. Limits of single requests are in app.py.
"""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import uvicorn

from isentrope.core.errors import ConfigError
from isentrope.net.connections import ROOM, Connection, Crowd, Limits, allow_files

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp

LOG = logging.getLogger("isentrope")
BACKLOG = 4096  # connections that wait to be accepted


class Server:
    """Listens from when it is made, so that who comes early waits; answers in `run` or in `background`."""

    def __init__(
        self, app: ASGIApp, host: str, port: int | range, limits: Limits | None = None,
        each_second: Callable[[], None] | None = None, websockets: bool = False,
    ) -> None:  # fmt: skip
        """`websockets`: whether the application takes them; else they are answered as requests."""

        async def notify() -> None:
            crowd.look(len(self._server.server_state.connections))
            if each_second is not None:
                each_second()

        limits = limits or Limits()
        crowd, self._files = Crowd(limits), ROOM * limits.connections + 1024
        self._socket = listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app, http=cast("type[asyncio.Protocol]", partial(Connection, crowd=crowd, websockets=websockets)),
            backlog=BACKLOG, ws="auto" if websockets else "none", ws_max_size=limits.body,
            server_header=False, proxy_headers=False,
            timeout_keep_alive=int(limits.read_seconds) + 1, timeout_graceful_shutdown=limits.stop_seconds,
            callback_notify=notify, timeout_notify=0,
            log_config=None, log_level="error", access_log=False,  # what clients send is not ours to write down
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def run(self) -> None:
        """Until SIGINT, which becomes a KeyboardInterrupt, or SIGTERM, which becomes a SystemExit."""
        allow_files(self._files)
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
