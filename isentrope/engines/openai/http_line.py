"""Connections that can be cut when time is up.

A socket's own time limit counts from one byte to the next, so a server that sends a header line now and then, or
"100 Continue" for ever, would never be late. Here a timer ends the whole request.
"""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.request
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from typing import Any


class Line:
    """The connection of one request; `with` it, for at most so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.late = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Line:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def hold(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected
        if self.late:  # before it was connected
            self._cut()

    def _cut(self) -> None:
        self.late = True
        with self._lock:
            if self._socket is not None:
                try:
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # whoever reads from it reads its end
                except OSError:
                    pass  # it is closed already


class LineRequest(urllib.request.Request):
    def __init__(self, line: Line, url: str, data: bytes | None, headers: dict[str, str]) -> None:
        super().__init__(url, data, headers)
        self.line = line


class _Plain(HTTPConnection):
    def __init__(self, line: Line, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._line = line

    def connect(self) -> None:
        super().connect()
        self._line.hold(self.sock)


class _Secure(_Plain, HTTPSConnection):
    """The same over TLS: `super()` there is HTTPSConnection here."""


class LineHandler(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(partial(_Plain, req.line), req)


class SecureLineHandler(urllib.request.HTTPSHandler):
    def __init__(self) -> None:
        self._checks = ssl.create_default_context()  # made once: it reads all certificates of the system
        self._checks.set_alpn_protocols(["http/1.1"])
        super().__init__(context=self._checks)

    def https_open(self, req: Any) -> Any:
        return self.do_open(partial(_Secure, req.line), req, context=self._checks)
