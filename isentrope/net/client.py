"""HTTP client for one server: a deadline for the whole exchange, a limit to the answer's size, kept connections.

A socket's own time limit counts from one byte to the next, so a server that sends a header line now and then, or
"100 Continue" for ever, would never be late. Here connecting, sending and reading share one deadline.

Redirects are not followed: what is sent goes to the address that was given and nowhere else.
"""

from __future__ import annotations

import base64
import io
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from isentrope.config.validate import is_local

MAX_WORDS = 300  # characters of an error


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes  # empty if it is no success and there was no whole one

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300


class TooLate(Exception):
    """No whole answer came in time."""


class TooLarge(Exception):
    """The answer has more bytes than are read."""


class Unreachable(Exception):
    """The connection was refused or broke, or nothing could be sent. `reason` is what was raised."""

    def __init__(self, words: str, reason: Exception | None = None) -> None:
        super().__init__("".join(char if char.isprintable() else " " for char in words)[:MAX_WORDS])
        self.reason = reason


class Line:
    """The connection on which a thread waits for an answer; another thread may cut it."""

    def __init__(self) -> None:
        self.late = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def hold(self, connected: socket.socket | None) -> None:
        with self._lock:
            self._socket = connected
        if self.late:
            self.cut()

    def cut(self) -> None:
        self.late = True
        with self._lock:
            if self._socket is not None:
                try:
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # whoever reads from it reads its end
                except OSError:
                    pass  # it is closed already


class Client:
    """One address. Any thread may ask."""

    def __init__(self, url: str, max_bytes: int, headers: Mapping[str, str] | None = None, keep: bool = False) -> None:
        """With `keep` connections are used again and the environment's proxies are not; they never are on this machine,
        where they would be shown what stays here."""
        parts = urlsplit(url)
        self._url, self._max_bytes, self._keep = url.rstrip("/"), max_bytes, keep
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._proxy = None if keep or is_local(self._host) else _proxy(parts)
        self._context = ssl.create_default_context() if self._secure else None  # made once: it reads all certificates
        self._path = parts.path.rstrip("/")
        self._headers = {"User-Agent": "isentrope", **({} if keep else {"Connection": "close"}), **(headers or {})}
        if self._proxy is not None and not self._secure:
            self._path = self._url
            self._headers |= _proxy_headers(self._proxy)
        self._kept: list[HTTPConnection] = []
        self._lock = threading.Lock()

    def ask(self, path: str, data: bytes | None, seconds: float, line: Line | None = None, attempts: int = 1) -> Answer:
        """The server's answer, of any status: to a POST with `data`, else to a GET. A request whose connection broke is
        made again until there were so many attempts."""
        deadline, line = time.monotonic() + seconds, line or Line()
        attempt = 0
        while True:
            with self._lock:
                connection = self._kept.pop() if self._kept and attempt == 0 else None
            attempt += connection is None  # one that was kept may have been closed meanwhile: that does not count
            connection = connection or self._new_connection()
            try:
                return self._exchange(connection, path, data, deadline, line)
            except (OSError, HTTPException, ValueError) as error:
                connection.close()
                if line.late or isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                    raise TooLate(f"no answer from {self._url} within {seconds:g} s") from None
                hopeless = isinstance(error, ConnectionRefusedError | socket.gaierror | ValueError)
                if hopeless or attempt == attempts:
                    raise Unreachable(f"{self._url}: {type(error).__name__}: {error}", error) from None
            except BaseException:
                connection.close()  # what is left of the answer is not read
                raise

    def close(self) -> None:
        with self._lock:
            for connection in self._kept:
                connection.close()
            self._kept.clear()

    def _new_connection(self) -> HTTPConnection:
        host, port, proxy = self._host, self._port, self._proxy
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port or 80
        if self._context is None:
            return HTTPConnection(host, port)
        connection = HTTPSConnection(host, port, context=self._context)
        if proxy is not None:
            connection.set_tunnel(self._host, self._port, _proxy_headers(proxy))
        return connection

    def _exchange(
        self, connection: HTTPConnection, path: str, data: bytes | None, deadline: float, line: Line
    ) -> Answer:
        def timed(opened: socket.socket, debuglevel: int = 0, method: str | None = None) -> HTTPResponse:
            return HTTPResponse(cast("Any", _Reader(opened, deadline)), debuglevel, method)

        cast("Any", connection).response_class = timed
        connection.timeout = max(0.01, deadline - time.monotonic())
        if connection.sock is None:
            connection.connect()
        opened = cast("socket.socket", connection.sock)
        opened.settimeout(max(0.01, deadline - time.monotonic()))
        line.hold(opened)
        try:
            connection.request("GET" if data is None else "POST", self._path + path, data, self._headers)
            response = connection.getresponse()
            try:
                body = self._body(response)
            except (OSError, HTTPException, TooLarge):
                if 200 <= response.status < 300 or line.late:
                    raise
                body = b""  # the status says enough
                connection.close()
        finally:
            line.hold(None)
        if line.late:
            raise TimeoutError
        response.close()
        if self._keep and not response.will_close and connection.sock is not None:
            with self._lock:
                self._kept.append(connection)
        else:
            connection.close()
        return Answer(response.status, cast("Mapping[str, str]", response.headers), body)

    def _body(self, response: HTTPResponse) -> bytes:
        body, promised = bytearray(), response.length
        while piece := response.read1(64 * 1024):
            body += piece
            if len(body) > self._max_bytes:
                raise TooLarge(f"more than {self._max_bytes // 2**20} MiB")
        if promised is not None and len(body) < promised:
            raise IncompleteRead(bytes(body[:100]), promised - len(body))
        return bytes(body)


class _Reader(io.RawIOBase):
    """A socket from which a response is read until a deadline."""

    def __init__(self, opened: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = opened, deadline
        self._file = opened.makefile("rb", 0)  # which keeps the socket open until it is read

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _proxy(parts: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for an address."""
    named = getproxies().get(parts.scheme)
    if not named or proxy_bypass(parts.netloc):
        return None
    return urlsplit(named if "://" in named else f"http://{named}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
