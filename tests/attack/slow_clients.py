"""Slow clients against a server, and an honest one among them: python -m tests.attack.slow_clients [--clients 2000]

A quarter of them each connect and say nothing, send a header line now and then and never the last, send a byte of the
body now and then, or ask for large answers and read none. Whoever is turned away comes again. The honest client opens a
connection for each of its requests, and its times are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import re
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from isentrope.net.app import Door, Guarded, json_app, path_of
from isentrope.net.server import Limits, Server

ROOT = Path(__file__).parents[2]
KINDS = ("silent", "head", "body", "deaf")
LARGE = b"x" * 2**20  # the answer that nobody reads
EACH = 1.0  # seconds between two pieces of a slow client
AGAIN = 1.0  # seconds until one that was turned away comes again
GAP = 0.02  # seconds between two requests of the honest one


@dataclass
class Slow:
    """One slow client: what it sends at once and what it sends now and then."""

    port: int
    kind: str
    body: str
    large: str
    turned_away: int = 0
    _from: float = 0.0
    _socket: socket.socket | None = None
    _left: list[bytes] = field(default_factory=list[bytes])

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def tick(self) -> None:
        try:
            if self._socket is None:
                if time.monotonic() >= self._from:
                    self._connect()
                return
            if self._left:
                self._socket.send(self._left[0])
                self._left = self._left[1:] or ([] if self.kind == "deaf" else self._left)
            if self.kind != "deaf" and self._socket.recv(65536) == b"":
                raise ConnectionError
        except BlockingIOError:
            pass  # still connecting, nothing to read, or nothing can be sent
        except OSError:
            self.close()
            self.turned_away, self._from = self.turned_away + 1, time.monotonic() + AGAIN

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if self.kind == "deaf":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        self._socket.connect_ex(("127.0.0.1", self.port))
        host = b"Host: 127.0.0.1\r\n"
        post = f"POST {self.body} HTTP/1.1\r\n".encode() + host + b"Content-Type: application/json\r\n"
        self._left = {
            "silent": [],
            "head": [b"GET / HTTP/1.1\r\n" + host, b"A: b\r\n"],
            "body": [post + b"Content-Length: 100000\r\n\r\n{", b" "],
            "deaf": [3 * (f"GET {self.large} HTTP/1.1\r\n".encode() + host + b"\r\n")],
        }[self.kind]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def attack(port: int, count: int, body: str, large: str) -> None:
    """So many slow clients until standard input ends; then the number of those who were turned away is printed."""
    _raise_files(count + 200)
    clients = [Slow(port, kind, body, large) for kind in islice(cycle(KINDS), count)]
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    over = threading.Event()
    parts = 20  # of all clients, one after another, so that not all of them come at the same moment
    for part in cycle(range(parts)):
        for client in clients[part::parts]:
            client.tick()
        if over.wait(EACH / parts):
            break
    print(sum(client.turned_away for client in clients), sum(client.connected for client in clients))


@contextmanager
def slow_clients(port: int, count: int, body: str = "/body", large: str = "/large") -> Generator[list[int]]:
    """So many of them in another process, for as long as the context lasts. Afterwards the list says how many were
    turned away and how many were connected at the end."""
    arguments = ["-m", "tests.attack.slow_clients", "--attack", str(port), "--clients", str(count)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    told: list[int] = []
    with subprocess.Popen([sys.executable, *arguments, "--body", body, "--large", large], **pipes) as attackers:
        time.sleep(3 * EACH)
        try:
            yield told
        finally:
            told += map(int, attackers.communicate()[0].split())


def honest(port: int, seconds: float, path: str = "/", wait: float = 30.0) -> tuple[list[float], Counter[str]]:
    """How long each answer took, and what came back: statuses, or why there was no answer."""
    times: list[float] = []
    came: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=wait)) as connection:
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                response.read()
                came[str(response.status)] += 1
            except (OSError, http.client.HTTPException) as error:
                came[type(error).__name__] += 1
        times.append(time.perf_counter() - began)
        time.sleep(GAP)
    return times, came


def _raise_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


async def _answer(request: Request) -> Any:
    path = path_of(request)
    if path == "/body":
        return {"bytes": len(await request.body())}
    if path == "/large":
        return Response(LARGE)
    await asyncio.sleep(0)
    return {"path": path}


@contextmanager
def command(arguments: Sequence[str]) -> Generator[tuple[subprocess.Popen[str], int]]:
    """A server of another process, and the port in the first line that it prints."""
    server = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert server.stdout is not None
        yield server, int(re.findall(r"127\.0\.0\.1:(\d+)", server.stdout.readline())[0])
    finally:
        server.terminate()
        server.wait(30)


def memory(pid: int) -> float:
    """The most that a process had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--body", default="/body")
    parser.add_argument("--large", default="/large")
    parser.add_argument("--serve", action="store_true", help="Be the server.")
    parser.add_argument("--attack", type=int, help="Be the slow clients of this port.")
    given = parser.parse_args()
    if given.attack:
        return attack(given.attack, given.clients, given.body, given.large)
    if given.serve:
        with Server(Guarded(json_app(_answer), Door(), Limits()), "127.0.0.1", 0) as server:
            print(server.address, flush=True)
            return server.run()
    with command(["-m", "tests.attack.slow_clients", "--serve"]) as (server, port):
        alone, _ = honest(port, 2.0)
        print(f"alone: median {1000 * statistics.median(alone):.0f} ms, longest {1000 * max(alone):.0f} ms")
        with slow_clients(port, given.clients) as told:
            times, came = honest(port, given.seconds)
        print(
            json.dumps(
                {
                    "clients": given.clients,
                    "turned away": told[0],
                    "connected": told[1],
                    "requests": len(times),
                    "median ms": round(1000 * statistics.median(times)),
                    "longest ms": round(1000 * max(times)),
                    "answers": came,
                    "server MB": round(memory(server.pid)),
                }
            )
        )


if __name__ == "__main__":
    main()
