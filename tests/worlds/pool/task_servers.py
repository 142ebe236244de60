"""Task servers for tests: the real one in a process of its own, and sockets that do as they are told."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from isentrope.worlds.pool.codec import pack

ROOT = Path(__file__).parents[3]
WORLD = "tests.toys:ToyWorld"
SETS = ("task.options.naughty=true", "task.options.goal=9")
OPTIONS = {"naughty": True, "goal": 9}


class Served:
    """`isentrope serve-task` in a process."""

    def __init__(self, *arguments: str, port: int = 0, world: str = WORLD, sets: tuple[str, ...] = SETS) -> None:
        command = [sys.executable, "-m", "isentrope", "serve-task", world, "--port", str(port), *arguments]
        command += [part for one in sets for part in ("--set", one)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " at http://" in line, line + self.process.stdout.read()
        self.address = line.split(" at ")[1].split(",")[0]
        self.port = int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


DESCRIPTION = {
    "protocol": 1, "world": WORLD, "name": "toy", "kinds": ["even", "odd"], "splits": {"train": None, "seen": 10},
    "options": {"goal": 9, "naughty": True, "flavour": "plain", "pace": 1.0},
}  # fmt: skip
VIEW = {"text": "hello", "admissible": None, "goal": "", "rules": "", "mended": []}


def body(data: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def usual(path: str) -> bytes:
    """What a good server answers to what comes before a step."""
    if path.startswith("/v1/instances"):
        found = [{"world": "toy", "split": "train", "index": n, "kind": "even"} for n in range(64)]
        return body(pack({"instances": found}))
    return body(pack(DESCRIPTION if path == "/v1/world" else {"view": VIEW}))


def whole_message(connection: socket.socket) -> bytes:
    """A request or an answer to its end; what was not read would make a connection that is closed be reset."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = connection.recv(65536)
        if not piece:
            return b""
        found += piece
    head, _, rest = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    while length is not None and len(rest) < int(length[1]):
        rest += connection.recv(65536)
    return head + b"\r\n\r\n" + rest


@contextmanager
def raw_server(answer: Callable[[str], bytes], drip: str = "") -> Generator[str]:
    """Answers each request, whose path it is told, with raw bytes, and closes the connection; where the path is that
    of `drip` it goes on for ever, a byte now and then."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                request = whole_message(connection)
                path = request.split()[1].decode()
                connection.sendall(answer(path))
                while path == drip:
                    time.sleep(0.05)
                    connection.sendall(b"x")
            except OSError:
                pass  # the client has gone

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


class BreakingProxy:
    """Passes everything on to a server, but hangs up instead of passing on some answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.break_next = 0  # answers that are to be lost
        self.broken = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while request := whole_message(client):
                server.sendall(request)
                answer = whole_message(server)
                if self.break_next:
                    self.break_next -= 1
                    self.broken += 1
                    return
                client.sendall(answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
