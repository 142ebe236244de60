"""Retrieval over HTTP by Search-R1's protocol, on the standard library's server. The other end is `remote.py`."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore
from typing import Any, cast
from urllib.parse import urlsplit

from isentrope.config.validate import is_local
from isentrope.core.errors import TaskError
from isentrope.worlds.search_qa.passages import Hit, clean
from isentrope.worlds.search_qa.retrievers import Retriever

MAX_BODY = 4 * 1024 * 1024
MAX_QUERIES, MAX_QUERY, MAX_TOPK = 1024, 10_000, 100
SOCKET_SECONDS = 60.0  # a client that sends nothing for so long is left


class Refused(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], retriever: Retriever, about: dict[str, Any], topk: int) -> None:
        self.about, self.topk, self._retriever = about, topk, retriever
        self._turns = BoundedSemaphore(os.cpu_count() or 1)  # more at once would only take more memory
        self._local = is_local(address[0])
        try:
            super().__init__(address, Handler)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            raise TaskError(f"cannot serve at {where}: {error.strerror or error}; choose another --port") from None

    def search(self, queries: list[str], k: int) -> list[list[Hit]]:
        with self._turns:
            return self._retriever.search([clean(query) for query in queries], k)

    def answers_to(self, host: str) -> bool:
        """A server of this machine alone answers to its names alone: a web page could give its own name our address."""
        try:
            return not self._local or is_local(urlsplit(f"//{host}").hostname or "")
        except ValueError:
            return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of our business; anything else was answered with a 500."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "isentrope"
    sys_version = ""
    timeout = SOCKET_SECONDS

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what clients send is not ours to write down."""

    def _serve(self, method: str) -> None:
        try:
            status, answer = 200, self._answer(method)
        except Refused as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        except Exception as error:
            status, answer = 500, {"error": f"the search failed: {type(error).__name__}"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status != 200:  # what is left of the request may not have been read
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, method: str) -> dict[str, Any]:
        server, path = cast("Server", self.server), self.path.partition("?")[0].rstrip("/")
        if not server.answers_to(self.headers.get("Host", "")):
            raise Refused("only names of this machine are answered to, as http://127.0.0.1", 403)
        if path == "" and method == "GET":
            return server.about
        if path != "/retrieve":
            raise Refused("there is only /retrieve here", 404)
        if method != "POST":
            raise Refused("/retrieve takes POST", 405)
        queries, k, scored = _request(self._body(), server.topk)
        results = server.search(queries, k)
        return {"result": [[_written(hit, scored) for hit in hits] for hits in results]}

    def _body(self) -> dict[str, Any]:
        # Other types could be sent by any web page that the user of this machine has open.
        if self.headers.get_content_type() != "application/json":
            raise Refused("the request must have Content-Type: application/json", 415)
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused("the request must have a Content-Length", 411)
        if len(length) > 12 or int(length) > MAX_BODY:
            raise Refused(f"the request has more than {MAX_BODY // 2**20} MiB", 413)
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused("the request is not JSON") from None
        if not isinstance(found, dict):
            raise Refused("the request must be a JSON object")
        return cast("dict[str, Any]", found)


def _request(body: dict[str, Any], topk: int) -> tuple[list[str], int, bool]:
    queries, k = body.get("queries"), body.get("topk") or topk
    if not isinstance(queries, list) or len(cast("list[Any]", queries)) > MAX_QUERIES:
        raise Refused(f"queries: expected a list of up to {MAX_QUERIES} texts")
    if not all(isinstance(query, str) and len(query) <= MAX_QUERY for query in cast("list[Any]", queries)):
        raise Refused(f"queries: expected texts of up to {MAX_QUERY} characters")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_TOPK:
        raise Refused(f"topk: expected a number from 1 to {MAX_TOPK}")
    return cast("list[str]", queries), k, body.get("return_scores", False) is True


def _written(hit: Hit, scored: bool) -> dict[str, Any]:
    passage = hit.passage
    document = {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}
    return {"document": document, "score": hit.score} if scored else document
