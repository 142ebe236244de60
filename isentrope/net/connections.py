"""The connections of a server, and who has to leave when there are too many: those that wait for their clients.

A connection waits while its client has not sent a whole request, asks nothing more, or does not read its answer. Such
clients cost nothing to be, so thousands may come. Each kind of waiting has its time. Beyond the number of connections
that is allowed the one that waits longest is closed first, so who sends a request in one go is served, however many do
not. What is being answered is never closed for others.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from isentrope.net.head import problem_of_head

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

MAX_HEAD = 64 * 1024  # bytes of a request's line and headers
MAX_UNSENT = 256 * 2**20  # bytes of answers that clients do not read, all of them together
GRACE = 0.5  # seconds for which a connection may wait, however many others come
ROOM = 2  # times as many connections as are allowed may be there, while none of them waited that long
_FILES_KEPT = 128  # open files that are not for connections
_PIECE = 64 * 1024  # bytes of an answer that are sent at once; the next ones when they are read
_KERNEL = 128 * 1024  # bytes that the system keeps for a client that does not read; it would take megabytes
_PER_BYTE = 16  # bytes in chunks for one byte of a body: lengths, extensions and what follows the last chunk


@dataclass(frozen=True)
class Limits:
    body: int = 4 * 2**20  # bytes of a request, or of one message of a WebSocket
    connections: int = 2048  # that stay; beyond them those that wait longest for their clients are closed
    head_seconds: float = 20.0  # for a request's line and headers to come, all of them
    read_seconds: float = 60.0  # for its body to come, for an answer to be read on, and for the next request to begin
    answer_seconds: float = 1800.0  # for an answer to be made and sent
    stop_seconds: int = 5  # that requests under way have after the end was asked for


class Crowd:
    """The connections of a server that wait for their clients, in the order in which they began to."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._waiting: dict[Connection, None] = {}
        self._unread: dict[Connection, int] = {}  # bytes of answers that wait to be read, at first

    def join(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._waiting[connection] = None

    def leave(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def hold(self, connection: Connection, unsent: int) -> None:
        """An answer waits to be read; the oldest of them are dropped where they are too many bytes together."""
        self._unread[connection] = unsent
        while sum(self._unread.values()) > MAX_UNSENT and len(self._unread) > 1:
            oldest = next(iter(self._unread))
            del self._unread[oldest]
            oldest.drop()

    def release(self, connection: Connection) -> None:
        self._unread.pop(connection, None)

    def admit(self, count: int) -> bool:
        """Whether one more may stay, which makes `count` of them: others that waited longer leave for it."""
        if count <= self._most:
            return True
        self._thin(count)
        return count <= min(ROOM * self.limits.connections, _files())

    def look(self, count: int) -> None:
        """Once a second: closes those whose time is over, and those that are too many."""
        for connection in [one for one in self._waiting if one.overdue()]:
            connection.drop()
        self._thin(count)

    @property
    def _most(self) -> int:
        return min(self.limits.connections, _files())

    def _thin(self, count: int) -> None:
        for connection in list(islice(self._waiting, max(0, count - self._most))):
            if connection.waited() < GRACE:
                break
            connection.drop()


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with what its crowd has to know and with a check of every head."""

    def __init__(self, *arguments: Any, crowd: Crowd, websockets: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._crowd, self._limits, self._websockets = crowd, crowd.limits, websockets
        self._application, self.app = self.app, self._in_pieces
        self._since, self._unsent = self.loop.time(), 0
        self._begun = self._in_head = self._broken = False  # a request has begun; it is its head; it cannot be read
        self._served = False  # it had an answer
        self._head_bytes = self._sent_bytes = self._body_bytes = 0
        self._wrong = (0, "")

    # -- waiting

    @property
    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _note(self) -> None:
        """Join the crowd anew, or leave it."""
        incomplete = self._begun and not self._in_head and not self.pipeline
        if not self._answering or incomplete or self.flow.write_paused:
            self._since = self.loop.time()
            self._crowd.join(self)
        else:
            self._crowd.leave(self)

    def waited(self) -> float:
        return self.loop.time() - self._since

    def overdue(self) -> bool:
        if self.flow.write_paused:
            return self.waited() > self._limits.read_seconds
        head = self._in_head or not (self._begun or self._served)
        spare = 2.0 if self._answering else 0.0  # whoever reads the body answers first that it did not come
        return self.waited() > (self._limits.head_seconds if head else self._limits.read_seconds + spare)

    def drop(self) -> None:
        self._crowd.leave(self)
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # nobody reads it
        else:
            self.transport.close()

    async def _in_pieces(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, whose answers wait here for being read, whole, and not copied in buffers."""

        async def sending(message: Message) -> None:
            body, more = message.get("body", b""), message.get("more_body", False)
            if len(body) <= _PIECE:
                return await send(message)
            for end in range(_PIECE, len(body) + _PIECE, _PIECE):
                self._unsent = len(body) - end
                piece = bytes(memoryview(body)[end - _PIECE : end])
                await send({**message, "body": piece, "more_body": more or end < len(body)})
            self._unsent = 0

        await self._application(scope, receive, sending)

    # -- what happens to it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL)
        super().connection_made(cast("asyncio.Transport", _Joined(transport, self.loop)))
        if self._crowd.admit(len(self.connections)):
            self._note()
        else:
            self._refuse(503, "there are too many connections; ask again in a moment")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._crowd.leave(self)
        self._crowd.release(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note()
        self._crowd.hold(self, max(0, self._unsent) + self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._crowd.release(self)
        self._note()

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return  # earlier requests are being answered
        in_body = self._begun and not self._in_head
        super().data_received(data)
        if self._broken or self.transport.is_closing():
            return
        if in_body:
            self._sent_bytes += len(data)
            if self._begun and self._sent_bytes > _PER_BYTE * self._body_bytes + MAX_HEAD:
                self._refuse(400, "the chunks of the request have more about them than in them")
        elif self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self._refuse_head()

    def handle_websocket_upgrade(self) -> None:
        self._crowd.leave(self)
        super().handle_websocket_upgrade()

    # -- what the parser says

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = self._in_head = True
        self._head_bytes = self._sent_bytes = self._body_bytes = 0
        if not self._answering:
            self._note()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what follows the last chunk are no headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        parser: Any = self.parser  # without one there were no headers
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD:
            self._wrong = (431, _LONG_HEAD)
        elif problem := problem_of_head(self.url, self.headers, parser.get_http_version()):
            self._wrong = (400, problem)
        elif self._should_upgrade() and (parser.get_method() != b"GET" or _has_body(self.headers)):
            self._wrong = (400, "a WebSocket begins with GET and without a body")
        if self._wrong[0]:
            raise ValueError(self._wrong[1])
        super().on_headers_complete()
        self._note()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._begun = False
        if self._answering:
            self._note()

    def on_response_complete(self) -> None:
        self._served = True
        super().on_response_complete()
        if self._broken and not self.pipeline:
            self.transport.close()
        self._note()

    def _should_upgrade(self) -> bool:
        return self._websockets and super()._should_upgrade()

    # -- what is wrong

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP, or none that is taken here."""
        if self._wrong[0]:
            self._refuse(*self._wrong)
        elif self._in_head and self._head_bytes > MAX_HEAD:
            self._refuse_head()
        elif "Content-Length overflow" in str(error := sys.exc_info()[1]):
            self._refuse(413, "the request is too long")
        else:
            self._refuse(400, f"this is no HTTP request that can be read: {error}")

    def _refuse_head(self) -> None:
        self._refuse(431, _LONG_HEAD)

    def _refuse(self, status: int, words: str) -> None:
        """Ends the connection with a refusal, unless it would be taken for the answer to an earlier request."""
        self._broken = True
        cycle: Any = self.cycle
        if self._answering:
            own = self._begun and not self._in_head and not self.pipeline and not self._wrong[0]
            if not own:  # those before get their answers first
                return
            cycle.disconnected = True  # nobody waits for what it would say
            if cycle.response_started:
                self.transport.close()
                return
        body = json.dumps({"error": words})
        self.transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()
        self._note()


_LONG_HEAD = f"the headers of the request have more than {MAX_HEAD // 1024} KiB"


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


class _Joined:
    """A transport that sends what is written in one go, a response's headers and body, as one packet."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) >= _PIECE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():  # the client may have gone meanwhile
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def allow_files(wanted: int) -> None:
    """Raises this process's own limit of open files, which is 1,024 on most machines, as far as it may."""
    try:
        import resource
    except ImportError:  # there is no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _files() -> int:
    """Connections for which there are files."""
    try:
        import resource
    except ImportError:
        return 1 << 20
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(1, soft - _FILES_KEPT)
