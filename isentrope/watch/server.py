"""The page's server: reads and answers, and can do nothing else.

Only GET; runs and files are named by ids that are looked up, never by paths; the browser is told to load nothing from
elsewhere and to run no script but ours. A request must name this machine: a page on the web that points its own name
at 127.0.0.1 would name itself, and gets nothing.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isentrope.charts.style import palette
from isentrope.core.errors import ConfigError, RunError
from isentrope.watch.answers import Answers, wanted_from
from isentrope.watch.runs import Runs

STATIC = Path(__file__).parent / "static"
USUAL_PORT = 8400
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:@/\\\[\]]+))(?::\d{1,5})?")  # [address] or name, and a port
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def make_app(places: Sequence[Path], host: str = "127.0.0.1") -> ASGIApp:
    answers = Answers(Runs(places))

    def names(request: Request, name: str = "runs") -> list[str]:
        return [part for part in request.query_params.get(name, "").split(",") if part]

    def number(request: Request, name: str) -> int:
        text = request.query_params.get(name, "0")
        if not text.isdigit() or len(text) > 9:
            raise RunError(f"{name} is not a number")
        return int(text)

    def series(request: Request) -> Any:
        return answers.series(names(request), request.query_params.getlist("key"))

    def episodes(request: Request) -> Any:
        query = request.query_params
        return answers.episodes(names(request), wanted_from(query), query.get("place", ""))

    def count(request: Request) -> Any:
        query = request.query_params
        return answers.count(names(request), wanted_from(query), query.get("place", ""))

    def episode(request: Request) -> Any:
        query = request.query_params
        run, file = query.get("run", ""), query.get("file", "")
        return answers.episode(run, file, number(request, "number"), number(request, "first"))

    def difference(request: Request) -> Any:
        query = request.query_params
        run, file = query.get("run", ""), query.get("file", "")
        return answers.difference(run, file, number(request, "a"), number(request, "b"))

    questions: dict[str, Callable[[Request], Any]] = {
        "runs": lambda request: answers.runs(),
        "keys": lambda request: answers.keys(),
        "series": series,
        "events": lambda request: answers.events(names(request)),
        "configs": lambda request: answers.configs(names(request)),
        "episodes": episodes,
        "count": count,
        "episode": episode,
        "difference": difference,
    }
    routes = [Route(f"/api/{name}", _answering(ask), methods=["GET"]) for name, ask in questions.items()]
    routes.append(Route("/palette.css", _palette, methods=["GET"]))
    pages = Mount("/", StaticFiles(directory=STATIC, html=True))
    return _Guard(Starlette(routes=[*routes, pages]), host)


def _palette(_: Request) -> Response:
    return Response(palette(), media_type="text/css")


def _answering(ask: Callable[[Request], Any]) -> Callable[[Request], Response]:
    """Answers run in threads, so that a long look through episodes does not stop the curves."""

    def answer(request: Request) -> Response:
        try:
            status, data = 200, ask(request)
        except RunError as error:
            status, data = 404, {"error": str(error)}
        body = json.dumps(data, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
        return Response(body, status, media_type="application/json")

    return answer


class _Guard:
    """Turns away what does not name this machine or wants to change something; adds the headers to every answer."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *ours]}
            await send(message)

        refused = self._refusal(scope)
        app = self._app if refused is None else refused
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["method"] not in ("GET", "HEAD"):
            return Response("This page can only be read.", 405, {"Allow": "GET, HEAD"}, "text/plain")
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Response("The name of the host is not this machine's.", 421, media_type="text/plain")
        return None

    def _is_ours(self, host: str) -> bool:
        """One of our names, or an address: only a name can be pointed at us by somebody else."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1] or found[2]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self._names
        return True


def listen(host: str, port: int | None) -> socket.socket:
    """A socket at the address; without a port the usual one, or any free one if that is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for attempt in (port,) if port is not None else (USUAL_PORT, 0):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, attempt))
            found.listen(128)  # from here on a browser waits instead of being refused
        except (OSError, UnicodeError) as error:
            found.close()
            if port is None and attempt:
                continue
            raise ConfigError(
                f"could not listen at {host} port {attempt}: {error}; choose another --port (0: any free one)"
            ) from error
        return found
    raise AssertionError


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def make_server(app: ASGIApp) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, ws="none"))
