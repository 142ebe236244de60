"""HTTP server of the live page. It is read-only.

Only GET; runs and files are named by ids that are looked up, never by paths; the browser is told to load nothing from
elsewhere and to run no script but ours. A request must name this machine: a page on the web that points its own name
at 127.0.0.1 would name itself, and gets nothing. Where others can reach the server it asks for a password.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from isentrope.charts.style import palette
from isentrope.charts.text import visible
from isentrope.config.validate import is_local
from isentrope.core.errors import ConfigError, RunError
from isentrope.net.app import Guarded, Refusal, headers_of
from isentrope.net.password import Password
from isentrope.net.server import Limits, Server
from isentrope.watch.answers import Answers, Wanted, is_number, wanted_from
from isentrope.watch.pages import Pages, page_policy
from isentrope.watch.runs import Runs

STATIC = Path(__file__).parent / "static"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:@/\\\[\]]+))(?::\d{1,5})?")  # [address] or name, and a port
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
}  # fmt: skip


def make_app(places: Sequence[Path], host: str = "127.0.0.1", password: str = "") -> ASGIApp:
    runs = Runs(places)
    answers, pages = Answers(runs), Pages(runs)

    def names(query: QueryParams) -> list[str]:
        return [part for part in query.get("runs", "").split(",") if part]

    def number(query: QueryParams, name: str) -> int:
        text = query.get(name, "0")
        if not is_number(text, 9):
            raise RunError(f"{name} is not a number")
        return int(text)

    def search(query: QueryParams) -> tuple[list[str], Wanted, str]:
        return names(query), wanted_from(query), query.get("place", "")

    def file(query: QueryParams) -> tuple[str, str]:
        return query.get("run", ""), query.get("file", "")

    def colours(_: Request) -> Response:
        return Response(palette(), media_type="text/css")

    questions: dict[str, Callable[[QueryParams], Any]] = {
        "runs": lambda query: answers.runs(),
        "keys": lambda query: answers.keys(),
        "series": lambda query: answers.series(names(query), query.getlist("key")),
        "events": lambda query: answers.events(names(query)),
        "table": lambda query: answers.table(),
        "last": lambda query: answers.last(query.getlist("key")),
        "configs": lambda query: answers.configs(names(query)),
        "episodes": lambda query: answers.episodes(*search(query)),
        "count": lambda query: answers.count(*search(query)),
        "episode": lambda query: answers.episode(*file(query), number(query, "number"), number(query, "first")),
        "difference": lambda query: answers.difference(*file(query), number(query, "a"), number(query, "b")),
    }
    routes = [Route(f"/api/{name}", _answering(ask), methods=["GET"]) for name, ask in questions.items()]
    routes.append(Route("/palette.css", colours, methods=["GET"]))
    for kind, make in (("report", pages.report), ("doctor", pages.doctor)):
        routes.append(Route(f"/{kind}/{{run}}", _paging(make), methods=["GET"]))
    app = Starlette(routes=[*routes, Mount("/", StaticFiles(directory=STATIC, html=True))])
    return Guarded(app, _Entrance(host, password), Limits(), error=lambda refusal: refusal.message, headers=_HEADERS)


def _answering(ask: Callable[[QueryParams], Any]) -> Callable[[Request], Response]:
    """Answers run in threads, so that a long look through episodes does not stop the curves."""

    def answer(request: Request) -> Response:
        try:
            status, data = 200, ask(request.query_params)
        except RunError as error:
            status, data = 404, {"error": str(error)}
        if not isinstance(data, bytes):  # as JSON already
            data = json.dumps(data, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
        return Response(data, status, media_type="application/json")

    return answer


def _paging(make: Callable[[str], bytes]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        try:
            body = make(str(request.path_params["run"]))
        except RunError as error:
            return Response(visible(str(error)), 404, media_type="text/plain")
        return Response(body, media_type="text/html", headers={"Content-Security-Policy": page_policy()})

    return answer


class _Entrance:
    """Turns away what wants to change something, and what does not name this machine, or has not the password.

    With a password any name will do: a browser sends it to no other than the one that its user gave it to.
    """

    def __init__(self, host: str, password: str) -> None:
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._password = Password(password) if password else None

    def __call__(self, scope: Scope) -> Refusal | None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return Refusal("This page can only be read.", 405, {"Allow": "GET, HEAD"})
        if self._password is not None:
            return self._password(scope)
        hosts = [value.decode("latin-1") for value in headers_of(scope, b"host")]
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Refusal("The name of the host is not this machine's.", 421)
        return None

    def _is_ours(self, host: str) -> bool:
        """One of our names, or an address: only a name can be pointed at us by somebody else."""
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = parts[1] or parts[2]
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower() in self._names
        return True


def open_server(places: Sequence[Path], host: str = "127.0.0.1", port: int | range = 0, password: str = "") -> Server:
    """A server over the folders; at any free port for port 0, at the first free one of a range."""
    if not password and not is_local(host):
        raise ConfigError(f"--host {host} can be reached by others, and there is no password: give one by --key-env")
    return Server(make_app(places, host, password), host, port)
