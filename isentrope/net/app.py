"""Middleware of every HTTP application: who may ask, limits of a request, and error answers.

`Guarded` stands before any ASGI application. `json_app` makes one of a function that takes a request and gives data.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isentrope.config.validate import is_local
from isentrope.net.keys import host_of
from isentrope.net.server import Limits

SKIPPED = 16 * 2**20  # bytes of a body that is too long, which are read and dropped
SKIP_SECONDS = 2.0  # for which they are
WITHOUT_KEY = "without a key only names of this machine are answered to, as http://127.0.0.1"
_ALWAYS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}


class Refusal(Exception):
    """A request that is not carried out: why, and the status that says so."""

    def __init__(self, message: str, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message, self.status = message, status
        self.headers = {"Connection": "close", **_ALWAYS.get(status, {}), **(headers or {})}


@dataclass(frozen=True)
class Door:
    """Who may ask. With a key: whoever sends it. Without: programs, but not the web pages that a browser has open.

    A web page can ask any address, and can give its own name the address of this machine. A browser says in `Origin`
    where the page comes from and in `Host` which name it used; both must be names of this machine. A server that is
    open to others cannot know its names, so there pages must come from the server itself.
    """

    key: str = field(default="", repr=False)
    local: bool = True  # whether only this machine can reach the server
    words: str = "only names of this machine are answered to, as http://127.0.0.1"

    def __call__(self, scope: Scope) -> Refusal | None:
        if self.key:
            sent = b"".join(headers_of(scope, b"authorization"))
            fits = hmac.compare_digest(sent, f"Bearer {self.key}".encode())
            return None if fits else Refusal("a key is needed: Authorization: Bearer KEY", 401)
        asked = tuple(headers_of(scope, b"host")), tuple(headers_of(scope, b"origin"))
        return None if _may_enter(*asked, self.local) else Refusal(self.words, 403)


@lru_cache(1024)
def _may_enter(hosts: tuple[bytes, ...], origins: tuple[bytes, ...], local: bool) -> bool:
    if len(hosts) > 1 or len(origins) > 1:
        return False
    host = host_of("//" + b"".join(hosts).decode("latin-1"))
    pages = [host_of(origin.decode("latin-1")) for origin in origins]
    if not local:
        return all(page == host != "" for page in pages)
    return is_local(host) and all(map(is_local, pages))


class Guarded:
    """An application with a door, limits, and answers to whatever is refused or goes wrong."""

    def __init__(
        self, app: ASGIApp, door: Callable[[Scope], Refusal | None], limits: Limits,
        error: Callable[[Refusal], Any] = lambda refusal: {"error": refusal.message},
        failed: str = "the server failed", headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`error` makes the body of a refusal, data or text; `headers` are those of every answer that does
        not have them of its own."""
        self._app, self._door, self._limits, self._error, self._failed = app, door, limits, error, failed
        self._headers = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif self._door(scope) is None:
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # before it was accepted: status 403

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                if self._headers:
                    own = list(message.get("headers", []))  # of a page with a policy of its own
                    named = {name.lower() for name, _ in own}
                    message["headers"] = [*own, *(one for one in self._headers if one[0] not in named)]
            await send(message)

        try:
            refusal = self._door(scope)
            if refusal is None:
                await _check_length(scope, receive, self._limits.body)
                async with asyncio.timeout(self._limits.answer_seconds):
                    await self._app(scope, _limited(receive, self._limits), sending)
        except Refusal as error:
            refusal = error
        except asyncio.CancelledError:
            refusal = Refusal("the server is stopping", 503)
        except Exception as error:
            if begun:
                raise
            refusal = Refusal(f"{self._failed}: {type(error).__name__}", 500)
        if refusal is not None and not begun:
            body = self._error(refusal)
            plain = isinstance(body, str)
            kind = "text/plain" if plain else "application/json"
            response = Response(body if plain else json.dumps(body), refusal.status, refusal.headers, kind)
            await response(scope, receive, sending)


def json_app(answer: Callable[[Request], Awaitable[Any]], encode: Callable[[Any], bytes | str] = json.dumps) -> ASGIApp:
    """An application of a function whose result is data, which is sent as JSON, or a response, e.g. a stream."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        result = await answer(Request(scope, receive))
        response = result if isinstance(result, Response) else Response(encode(result), media_type="application/json")
        await response(scope, receive, send)

    return app


def path_of(request: Request) -> str:
    return str(request.scope["path"]).rstrip("/")


async def json_bytes(request: Request) -> bytes:
    """The body of a request that says it is JSON: other types could be sent by any web page that is open here."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal("the request must have Content-Type: application/json", 415)
    if "content-length" not in request.headers:
        raise Refusal("the request must have a Content-Length", 411)
    return await request.body()


async def json_object(request: Request) -> dict[str, Any]:
    try:
        value = json.loads(await json_bytes(request))
    except (ValueError, RecursionError):
        raise Refusal("the request is not JSON") from None
    if not isinstance(value, dict):
        raise Refusal("the request must be a JSON object")
    return cast("dict[str, Any]", value)


def headers_of(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


async def _check_length(scope: Scope, receive: Receive, most: int) -> None:
    """Refuses a body that is said to be too long, once it was read and dropped, or its beginning: who still writes when
    the connection closes never sees the answer."""
    said = headers_of(scope, b"content-length")
    if not said or int(said[0]) <= most:
        return
    left, more = min(int(said[0]), SKIPPED), True
    try:
        async with asyncio.timeout(SKIP_SECONDS):
            while left > 0 and more:
                message = await receive()
                left -= len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        pass  # it promised more than it sends
    raise _too_long(most)


def _too_long(most: int) -> Refusal:
    return Refusal(f"the request has more than {most // 2**20} MiB", 413)


def _limited(receive: Receive, limits: Limits) -> Receive:
    """Receives a body that is neither too long, whatever was said of its length, nor too slow."""
    left, more = limits.body, True
    end = asyncio.get_running_loop().time() + limits.read_seconds

    async def receiving() -> Message:
        nonlocal left, more
        if not more:
            return await receive()  # that the client has gone, which may take as long as the answer
        try:
            async with asyncio.timeout_at(end):
                message = await receive()
        except TimeoutError:
            raise Refusal(f"the request did not come within {limits.read_seconds:g} s", 408) from None
        left, more = left - len(message.get("body", b"")), message.get("more_body", False)
        if left < 0:
            raise _too_long(limits.body)
        return message

    return receiving
