"""Asks of `isentrope watch`, over and over, what its page asks in a browser."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from typing import Any


class Visitor(threading.Thread):
    """A thread with one connection; `problems` has what was answered wrongly, or not at all."""

    def __init__(self, address: str, pause: float) -> None:
        super().__init__(daemon=True)
        self.pause, self.ended = pause, threading.Event()
        self.looks, self.slowest, self.problems = 0, 0.0, list[str]()
        self._host = address.removeprefix("http://").rstrip("/")
        self._connection = http.client.HTTPConnection(self._host, timeout=900)
        self._at: dict[str, tuple[Any, int, int]] = {}
        self._keys: list[str] = []

    def run(self) -> None:
        while not self.ended.wait(self.pause):
            try:
                self.look()
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if not self.ended.is_set():  # else the server is being stopped
                    self.problems.append(f"{type(error).__name__}: {error}")
                self._connection.close()
            self.looks += 1

    def ask(self, path: str, **query: Any) -> bytes:
        began = time.monotonic()
        self._connection.request("GET", f"{path}?{urllib.parse.urlencode(query, doseq=True)}" if query else path)
        answer = self._connection.getresponse()
        body = answer.read()
        self.slowest = max(self.slowest, time.monotonic() - began)
        if answer.status not in (200, 404):  # 404: an episode that was there when it was listed
            raise ValueError(f"{path}: {answer.status} {body[:200]!r}")
        return body

    def look(self) -> None:
        for run in json.loads(self.ask("/api/runs"))["runs"]:
            name, rows, clock = run["id"], run["rows"], run["clock_rows"]
            begun, seen, seen_clock = self._at.get(name, (None, 0, 0))
            if begun != run["begun"] or not self._keys:
                seen = seen_clock = 0
                self._keys = [entry["key"] for entry in json.loads(self.ask("/api/keys"))["keys"]]
            want = f"{name}:{run['begun']}:{seen}:{rows}:{seen_clock}:{clock}"
            self.ask("/api/series", runs=want, key=self._keys[:24])
            self._at[name] = (run["begun"], rows, clock)
            self.ask("/api/events", runs=name)
            if self.looks % 5 == 0:
                self._episodes(name)
            if self.looks % 10 == 0:
                for question in ("configs", "table", "last"):
                    self.ask(f"/api/{question}", runs=name, key=self._keys[:4])
            if self.looks % 40 == 20:
                self.ask(f"/report/{name}")
                self.ask(f"/doctor/{name}")

    def _episodes(self, name: str) -> None:
        rows = json.loads(self.ask("/api/episodes", runs=name)).get("rows", [])
        self.ask("/api/count", runs=name)
        for row in rows[-2:]:
            self.ask("/api/episode", run=name, file=row["file"], number=row["number"], first=0)
