"""Who may talk to an OpenEnv server, which knows no keys: programs of this machine, not the web pages it has open.

A web page can open a WebSocket to any address, and can give its own name the address of this machine. A browser says in
`Origin` where the page comes from and in `Host` which name it used; both must be names of this machine. A server that
was opened to others cannot know its names, so there pages must come from the server itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from isentrope.config.validate import is_local
from isentrope.core.errors import ConfigError

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]


def check_host(host: str, to_others: bool) -> None:
    """Nobody opens such a server to others by accident."""
    if not to_others and not is_local(host):
        raise ConfigError(
            f"--host {host} can be reached by others, and OpenEnv has no key: all of them could play. Stay on this "
            "machine with --host 127.0.0.1 (others come through a tunnel: ssh -L 8000:127.0.0.1:8000 HOST), or say "
            "--to-others"
        )


def with_door(app: App, to_others: bool = False) -> App:
    """The application, closed to web pages from elsewhere."""

    async def door(scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] == "lifespan" or _may_enter(scope, to_others):
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # before it was accepted: status 403
        else:
            words = json.dumps({"detail": "only names of this machine are answered to, as http://127.0.0.1"}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(words)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": words})

    return door


def _may_enter(scope: Message, to_others: bool) -> bool:
    hosts, origins = _all(scope, b"host"), _all(scope, b"origin")
    if len(hosts) > 1 or len(origins) > 1:
        return False
    host = _name(f"//{hosts[0]}") if hosts else ""
    if to_others:
        return not origins or (bool(host) and _name(origins[0]) == host)
    return is_local(host) and all(is_local(_name(origin)) for origin in origins)


def _all(scope: Message, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _name(address: str) -> str:
    """The host in an address; empty if there is none, as in the origin "null"."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
