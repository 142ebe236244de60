"""Requests to one task server: kept connections, time and size limits, retries.

A request is made again only if the connection broke. That is always safe: a start is named by its session and a step
by its number, so the server answers a repeated request as it did the first time and plays nothing twice.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from urllib.parse import urlsplit

from isentrope.config.validate import is_local
from isentrope.core.errors import ConfigError
from isentrope.worlds.pool.codec import MAX_MESSAGE, Table, pack, unpack
from isentrope.worlds.pool.sanitize import Garbage

ATTEMPTS = 3
MAX_WORDS = 300


class Unreachable(Exception):
    """The connection was refused or broke, again and again."""


class TooLate(Exception):
    """No whole answer came in time."""


class Refused(Exception):
    """The server answered that it will not."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Line:
    """What a thread is waiting for; another thread may cut it."""

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
                    self._socket.shutdown(socket.SHUT_RDWR)  # whoever reads from it reads its end
                except OSError:
                    pass  # it is closed already


class TaskServer:
    """One address. Any thread may ask."""

    def __init__(self, address: str, key: str = "") -> None:
        self.address = address
        self.live = 0  # episodes being played there; the fleet's to count
        self.down = ""  # why it is not used at present
        parts = urlsplit(address)
        self._secure, self._host = parts.scheme == "https", parts.hostname or ""
        self._port, self._path = parts.port, parts.path.rstrip("/")
        if key and not self._secure and not is_local(self._host):
            raise ConfigError(
                f"task.where = {address}: the key would go over the network for all to read; use https (a proxy in "
                "front of the server) or a tunnel to this machine, or leave task.key_env out"
            )
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._kept: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def ask(self, path: str, body: Table | None, seconds: float, line: Line | None = None) -> Table:
        """The server's answer, a JSON object. POST with a body, else GET."""
        deadline, line = time.monotonic() + seconds, line or Line()
        data = None if body is None else pack(body)
        attempt = 0
        while True:
            connection = self._kept_connection() if attempt == 0 else None
            attempt += connection is None  # one that was kept may have been closed meanwhile: that does not count
            connection = connection or self._new_connection()
            try:
                return self._once(connection, path, data, deadline, line)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if line.late or isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                    raise TooLate(f"no answer from {self.address} within {seconds:g} s") from None
                if isinstance(error, ConnectionRefusedError | socket.gaierror) or attempt == ATTEMPTS:
                    raise Unreachable(f"{self.address}: {_words(type(error).__name__, error)}") from None
            except BaseException:
                connection.close()  # what is left of the answer is not read
                raise

    def close(self) -> None:
        with self._lock:
            for connection in self._kept:
                connection.close()
            self._kept.clear()

    def _kept_connection(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._kept.pop() if self._kept else None

    def _new_connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port)

    def _once(
        self, connection: http.client.HTTPConnection, path: str, data: bytes | None, deadline: float, line: Line
    ) -> Table:
        connection.timeout = max(0.01, deadline - time.monotonic())
        if connection.sock is None:
            connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(max(0.01, deadline - time.monotonic()))
        line.hold(connection.sock)
        try:
            connection.request("GET" if data is None else "POST", self._path + path, data, self._headers)
            response = connection.getresponse()
            body = _read(response, deadline)
        finally:
            line.hold(None)
        if line.late:
            raise TimeoutError
        if response.status != 200:
            raise Refused(response.status, f"{self.address}: {_refusal(response.status, body)}")
        table = unpack(body)
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._kept.append(connection)
        return table


def _read(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body; it may neither be too large nor come too slowly."""
    body, promised = bytearray(), response.length
    while piece := response.read1(64 * 1024):
        body += piece
        if len(body) > MAX_MESSAGE:
            raise Garbage(f"the server's answer has more than {MAX_MESSAGE // 2**20} MiB")
        if time.monotonic() >= deadline:
            raise TimeoutError
    if promised is not None and len(body) < promised:
        raise http.client.IncompleteRead(bytes(body[:100]), promised - len(body))
    return bytes(body)


def _refusal(status: int, body: bytes) -> str:
    try:
        words = str(unpack(body).get("error", ""))
    except Garbage:
        words = ""
    return _words(f"status {status}", words)


def _words(name: str, what: object) -> str:
    text = "".join(char if char.isprintable() else " " for char in f"{name}: {what}")
    return text[:MAX_WORDS]
