"""Requests that no client should send, made from those that one does: for all servers and all of their routes.

    python -m tests.attack.bad_requests [--count 2000] [--seed 0] [SERVER ...]

Each is answered, with no status from 500 on; the server prints no traceback and answers a right request afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from isentrope.net.server import Server

DIGITS = "9" * 400
NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, int(DIGITS), -(10**30), 1e308, 0.5, "", "x", "\0", "\ud800", "\u202e<b>",
    "../../etc/passwd", "x" * 20_000, [], [[]], {}, {"a": {}}, [None], ["x"] * 2000, [1e308], "²", "٣", "0" * 32,
    "{}", "%00", "nan",
)  # fmt: skip
BODIES = (
    b"", b"{", b"[]", b"null", b"NaN", b"1", b'"x"', b"{}{}", b"{} x", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"[" *
    100_000, b'{"a":' * 50_000, b'{"a":1,"a":2}', b'{"a":' + DIGITS.encode() + b"}", b'{"a":1e999}',
    b'{"a":-Infinity}', b'{"\\ud800":"\\udfff"}', b"{'a':1}", b"\0" * 100, b"9" * 5000,
)  # fmt: skip
QUERIES = (
    "", "=", "&&&", "a", "?", "%", "%zz", "%ff", "\\", "-1", "1e9", "²", "٣", DIGITS, "9" * 9, "9" * 18, "NaN",
    "null", "../x", "<script>", "\u202e", "a" * 5000, "[]", "{}", "a,b,,c", ":", "::::::", "a:0:0:0:0:0",
    "a:²:0:0:0:0", "+", "%0a", "1.5",
)  # fmt: skip
PATHS = (
    "/", "//", "/..", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/%2f", "/%5c..%5c", "/.", "/~", "/;a=b",
    "/%ff%fe", "/%0d%0a", "/%25", "/" + "a" * 4000, "/" + "a/" * 2000, "/index.html/x", "/api", "/api/", "/v1",
    "/docs", "/openapi.json", "/api/%2e%2e/runs", "/{run}", "/:", "/%F0%9F%92%A9", "/%ED%A0%80", "/con",
    "/.git/config", "/favicon.ico", "/ws",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "LOCK", "SEARCH")
TYPES = (
    "", "text/plain", "application/json; charset=utf-16", "application/x-www-form-urlencoded", "multipart/form-data",
    "application/JSON", ";", "\xe9", "multipart/form-data; boundary=" + "x" * 1000,
)  # fmt: skip
HEADERS = (
    "Range: bytes=0-0", "Range: bytes=9-1", "Range: bytes=-99999999999999999999", "Range: bytes=" + "0-1," * 500 +
    "0-1", "Range: x", "Range: bytes=0-" + DIGITS, "If-Range: x\r\nRange: bytes=0-1", "If-Modified-Since: rubbish",
    "If-Modified-Since: Thu, 99 Nov 99999 99:99:99 GMT", "If-None-Match: " + '"x",' * 1000, "Accept: \xff",
    "Accept-Encoding: ,,,", "Cookie: " + "a=b;" * 2000, "Cookie: =;\xff=\xff", "Authorization: Basic \xff",
    "Authorization: Bearer", "Origin: null", "Origin: http://[", "Origin: http://127.0.0.1\r\nOrigin: http://evil",
    "Expect: 200-ok", "Content-Encoding: gzip", "X-Forwarded-For: x", "X-HTTP-Method-Override: DELETE",
    "Forwarded: host=evil", "Upgrade: h2c\r\nConnection: Upgrade", "Upgrade: websocket\r\nConnection: Upgrade",
    "Referer: \xff",
    "TE: trailers", "Accept-Language: " + "x," * 3000,
)  # fmt: skip


@dataclass(frozen=True)
class Good:
    """A request that is right. What is bad is made from it."""

    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None

    def __post_init__(self) -> None:
        assert self.path.startswith("/")


def right(good: Good) -> bytes:
    method = "GET" if good.body is None else "POST"
    return _written(method, good.path, good.query, None if good.body is None else _json(good.body), "application/json")


def bad_request(good: Good, rng: random.Random) -> bytes:
    """One or two things about it changed."""
    method, path, query = "GET" if good.body is None else "POST", good.path, list(good.query)
    body = None if good.body is None else _json(good.body)
    kind, header = "application/json", ""
    for change in rng.sample(("method", "path", "query", "body", "type", "header"), rng.choice((1, 1, 2))):
        if change == "method":
            method = rng.choice(METHODS)
        elif change == "path":
            path = rng.choice((rng.choice(PATHS), path.rstrip("/") + rng.choice(PATHS), path.upper(), path + "/"))
        elif change == "query":
            names = [name for name, _ in query] or ["x"]
            query = [(n, rng.choice(QUERIES) if rng.random() < 0.6 else v) for n, v in query] * rng.choice((1, 1, 2))
            query.append((rng.choice(names), rng.choice(QUERIES)))
        elif change == "body":
            damaged = rng.random() < 0.3 or good.body is None
            body = rng.choice(BODIES) if damaged else _json(_damaged(good.body, rng))
        elif change == "type":
            kind = rng.choice(TYPES)
        else:
            header = rng.choice(HEADERS)
    return _written(method, path, tuple(query), body, kind, header)


def _damaged(value: Any, rng: random.Random) -> Any:
    """The value with one part of it replaced, left out or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        table = cast("dict[str, Any]", dict(value))
        name = rng.choice(list(table))
        if rng.random() < 0.1:
            del table[name]
        elif rng.random() < 0.1:
            table[str(rng.choice(NASTY))] = rng.choice(NASTY)
        else:
            table[name] = _damaged(table[name], rng)
        return table
    if isinstance(value, list) and value and rng.random() < 0.6:
        some = cast("list[Any]", list(value))
        place = rng.randrange(len(some))
        some[place] = _damaged(some[place], rng)
        return some
    return rng.choice(NASTY)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _written(
    method: str, path: str, query: tuple[tuple[str, str], ...], body: bytes | None, kind: str, header: str = ""
) -> bytes:
    asked = "&".join(f"{quote(name, safe='')}={quote(value, safe='%')}" for name, value in query)
    lines = [f"{method} {path}{'?' + asked if asked else ''} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"] if body is not None else []
    lines += [header] if header else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def answer_to(port: int, request: bytes, wait: float = 60.0) -> tuple[int, bytes]:
    """The status, 0 if there was none, and all that came."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        came = b""
        try:
            connection.sendall(request)
            while piece := connection.recv(1 << 16):
                came += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
    return (int(came.split(b" ", 2)[1]) if came.startswith(b"HTTP/1.1 ") else 0), came


@dataclass
class Told:
    """What came of it."""

    statuses: Counter[int]
    wrong: list[str]
    longest: float = 0.0


def try_all(server: Server, goods: list[Good], count: int, seed: int) -> Told:
    rng = random.Random(seed)
    told = Told(Counter(), [])
    for number in range(count):
        request = bad_request(goods[number % len(goods)], rng)
        began = time.monotonic()
        status, came = answer_to(server.port, request)
        told.longest = max(told.longest, time.monotonic() - began)
        told.statuses[status] += 1
        if not 200 <= status < 500:
            told.wrong.append(f"{request[:300]!r} was answered {came[:200]!r}")
    for good in goods:
        status, came = answer_to(server.port, right(good))
        if not 200 <= status < 500:
            told.wrong.append(f"afterwards {good} was answered {came[:200]!r}")
    return told


# -- the servers, in this process


@contextmanager
def watching(folder: Path, password: str = "") -> Generator[tuple[Server, list[Good]]]:
    from isentrope.watch.answers import Answers
    from isentrope.watch.runs import Runs
    from isentrope.watch.server import open_server
    from tests.watch.make_runs import make_watched

    make_watched(folder / "runs" / "one", steps=10)
    answers = Answers(Runs([folder / "runs"]))
    [run] = answers.runs()["runs"]
    name = run["id"]
    row = answers.episodes([name], _wanted(), "")["rows"][0]
    where = (("run", name), ("file", row["file"]))
    listing = (
        ("runs", name),
        ("kind", ""),
        ("outcome", "failed"),
        ("text", ""),
        ("from", "0"),
        ("to", "9"),
        ("place", ""),
    )
    goods = [
        Good("/"), Good("/palette.css"), Good("/api/runs"), Good("/api/keys"), Good("/api/table"),
        Good("/api/series", (("runs", f"{name}:{run['begun']}:0:{run['rows']}:0:0"), ("key", "entropy/token"))),
        Good("/api/events", (("runs", name),)), Good("/api/last", (("key", "lr"),)),
        Good("/api/configs", (("runs", name),)),
        Good("/api/episodes", listing), Good("/api/count", listing),
        Good("/api/episode", (*where, ("number", "0"), ("first", "0"))),
        Good("/api/difference", (*where, ("a", "0"), ("b", "1"))), Good(f"/report/{name}"), Good(f"/doctor/{name}"),
    ]  # fmt: skip
    with open_server([folder / "runs"]) as server, server.background():
        yield server, goods


def _wanted() -> Any:
    from isentrope.watch.answers import wanted_from

    return wanted_from({})


@contextmanager
def task_server(folder: Path) -> Generator[tuple[Server, list[Good]]]:
    from isentrope.config.schema import TaskSettings
    from isentrope.serving.tasks import running

    settings = TaskSettings(world="tests.toys:ToyWorld", where="local", step_seconds=20.0)
    session = "0123456789abcdef" * 2
    goods = [
        Good("/v1/world"), Good("/v1/instances", (("split", "train"), ("first", "0"), ("count", "3"))),
        Good("/v1/start", body={"session": session, "split": "train", "index": 1}),
        Good("/v1/step", body={"session": session, "number": 1, "action": "look"}),
        Good("/v1/close", body={"session": session}),
    ]  # fmt: skip
    with running(settings, port=0, most=4096) as server, server.background():
        yield server, goods


@contextmanager
def retriever(folder: Path) -> Generator[tuple[Server, list[Good]]]:
    from isentrope.worlds.search_qa.generated import library
    from isentrope.worlds.search_qa.retrievers import over
    from isentrope.worlds.search_qa.server import open_server

    goods = [Good("/"), Good("/retrieve", body={"queries": ["which river", "zebra"], "topk": 2, "return_scores": True})]
    found = over(library(20).passages, "bm25")
    with open_server("127.0.0.1", 0, found, {"corpus": "x"}, 3) as server, server.background():
        yield server, goods


@contextmanager
def model_server(folder: Path) -> Generator[tuple[Server, list[Good]]]:
    from isentrope.config.schema import AgentSettings, RolloutSettings, RunConfig
    from isentrope.engines.torch import TorchEngine
    from isentrope.serving.server import running
    from tests.models.helpers import small_policy

    agent = AgentSettings(prompt="brief", max_response=4, max_context=100)
    config = RunConfig(agent=agent, rollout=RolloutSettings(batch=8))
    chat = {
        "model": "m", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "look"}],
        "temperature": 1.0, "max_tokens": 4, "stop": ["x"], "seed": 1, "logprobs": True, "n": 1, "stream": False,
    }  # fmt: skip
    goods = [Good("/v1/models"), Good("/v1/models/m"), *3 * [Good("/v1/chat/completions", body=chat)]]
    with running(config, TorchEngine(small_policy()), ("127.0.0.1", 0), "m") as (server, _), server.background():
        yield server, goods


@contextmanager
def openenv_server(folder: Path) -> Generator[tuple[Server, list[Good]]]:
    from isentrope.worlds.adapters.openenv_server import open_server
    from isentrope.worlds.registry import make_world

    goods = [
        Good("/health"), Good("/schema"), Good("/metadata"), Good("/state"), Good("/docs"), Good("/openapi.json"),
        *3 * [Good("/reset", body={"seed": 1, "episode_id": "x", "split": "train", "index": 1})],
        *3 * [Good("/step", body={"action": {"text": "look"}, "timeout_s": 1.0, "request_id": "x"})],
    ]  # fmt: skip
    with open_server(make_world("tests.toys:ToyWorld", {}), "127.0.0.1", 0, 8) as server, server.background():
        yield server, goods


SERVERS: dict[str, Callable[[Path], Any]] = {
    "watch": watching, "serve": model_server, "serve-task": task_server, "retrieve": retriever,
    "serve-openenv": openenv_server,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", default=list(SERVERS))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = 0
    for name in given.servers:
        with tempfile.TemporaryDirectory() as folder, SERVERS[name](Path(folder)) as (server, goods):
            told = try_all(server, goods, given.count, given.seed)
        statuses = ", ".join(f"{status}: {count}" for status, count in sorted(told.statuses.items()))
        print(f"{name}: {given.count} requests, {statuses}; longest {told.longest:.1f} s")
        print("".join(f"  {line}\n" for line in told.wrong[:20]), end="")
        failed += len(told.wrong)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
