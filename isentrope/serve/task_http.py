"""A task world over HTTP, on the standard library's server. The client's side is worlds/pool/remote.py.

GET  /v1/world                                      what is served
GET  /v1/instances?split=train&first=0&count=64     which games there are
POST /v1/start  {"session", "split", "index"}       {"view": ...} or {"failure": ...}
POST /v1/step   {"session", "number", "action"}     {"step": ...} or {"failure": ...}
                                                    both: {"queued": true}, to be asked again, if others come first
POST /v1/close  {"session"}
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from isentrope import __version__
from isentrope.config.validate import is_local
from isentrope.serve.task_sessions import Refusal, Sessions
from isentrope.serve.too_long import pass_over
from isentrope.worlds.pool.codec import Table, instance_to_table, pack, unpack
from isentrope.worlds.pool.remote_servers import PATH
from isentrope.worlds.pool.sanitize import Garbage

MAX_BODY = 2**20
MAX_COUNT = 1000  # instances of one request
MAX_CONNECTIONS = 512
SOCKET_SECONDS = 120.0  # a client that sends nothing for so long is left


class TaskServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], sessions: Sessions, description: Table, key: str = "") -> None:
        self.sessions, self.description, self._key = sessions, description | {"version": __version__}, key
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, Handler)

    def admits(self, authorization: str) -> bool:
        return not self._key or hmac.compare_digest(authorization.encode(), f"Bearer {self._key}".encode())

    def answers_to(self, host: str) -> bool:
        """Without a key only names of this machine are answered to: a web page could give its own name our address."""
        try:
            return bool(self._key) or is_local(urlsplit(f"//{host}").hostname or "")
        except ValueError:
            return False

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def service_actions(self) -> None:
        self.sessions.sweep()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of our business; anything else was answered with a 500."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "isentrope"
    sys_version = ""
    timeout = SOCKET_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_POST(self) -> None:
        self._serve(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what clients send is not ours to write down."""

    def _serve(self, answer: Callable[[str], Table]) -> None:
        server = cast("TaskServer", self.server)
        try:
            if not server.answers_to(self.headers.get("Host", "")):
                raise Refusal("without a key only names of this machine are answered to, as http://127.0.0.1", 403)
            if not server.admits(self.headers.get("Authorization", "")):
                raise Refusal("a key is needed: Authorization: Bearer KEY", 401)
            status, body = 200, pack(answer(urlsplit(self.path).path.rstrip("/")))
        except Refusal as refusal:
            status, body = refusal.status, pack({"error": refusal.words})
        except Exception as error:
            status, body = 500, pack({"error": f"the server failed: {type(error).__name__}"})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status != 200:  # what is left of the request may not have been read
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _get(self, path: str) -> Table:
        server = cast("TaskServer", self.server)
        if path == f"{PATH}/world":
            return server.description
        if path != f"{PATH}/instances":
            raise Refusal("there is only /v1/world, /v1/instances, /v1/start, /v1/step and /v1/close here", 404)
        query = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        first, count = (_number(query.get(name, "")) for name in ("first", "count"))
        if count > MAX_COUNT:
            raise Refusal(f"count = {count}: at most {MAX_COUNT} at once")
        found = [server.sessions.instance(query.get("split", ""), first + i) for i in range(count)]
        return {"instances": [instance_to_table(instance) for instance in found]}

    def _post(self, path: str) -> Table:
        sessions, body = cast("TaskServer", self.server).sessions, self._body()
        if path == f"{PATH}/start":
            return sessions.start(body.get("session"), body.get("split"), body.get("index"))
        if path == f"{PATH}/step":
            return sessions.step(body.get("session"), body.get("number"), body.get("action"))
        if path == f"{PATH}/close":
            return sessions.close(body.get("session"))
        raise Refusal("there is only /v1/world, /v1/instances, /v1/start, /v1/step and /v1/close here", 404)

    def _body(self) -> Table:
        # Other types could be sent by any web page that the user of this machine has open.
        if self.headers.get_content_type() != "application/json":
            raise Refusal("the request must have Content-Type: application/json", 415)
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refusal("the request must have a Content-Length", 411)
        if int(length) > MAX_BODY:
            pass_over(self.connection, self.rfile, int(length))
            raise Refusal(f"the request has more than {MAX_BODY // 2**20} MiB", 413)
        try:
            return unpack(self.rfile.read(int(length)))
        except Garbage as error:
            raise Refusal(str(error).replace("the answer", "the request")) from error


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise Refusal("first and count: expected integers from 0 on")
    return int(text)
