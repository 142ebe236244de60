"""The HTTP side: two routes of OpenAI's protocol, on the standard library's server."""

from __future__ import annotations

import hmac
import json
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

from isentrope.config.validate import is_local
from isentrope.serve.chat import BadRequest, read_chat
from isentrope.serve.speaker import Reply, Speaker
from isentrope.serve.too_long import pass_over

MAX_BODY = 4 * 1024 * 1024
SOCKET_SECONDS = 60.0  # a client that sends nothing for so long is left
ANSWER_SECONDS = 1800.0
_FINISH = {"tag": "stop", "eos": "stop", "stop": "stop", "length": "length"}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], speaker: Speaker, model: str, max_response: int, key: str) -> None:
        self.speaker, self.model, self.max_response, self._key = speaker, model, max_response, key
        self.began = int(time.time())
        super().__init__(address, Handler)

    def admits(self, authorization: str) -> bool:
        return not self._key or hmac.compare_digest(authorization.encode(), f"Bearer {self._key}".encode())

    def answers_to(self, host: str) -> bool:
        """Whether a request for this Host is meant for us. Without a key only names of this machine are: a web page
        could give its own name our address, and then read what is answered to it."""
        try:
            return bool(self._key) or is_local(urlsplit(f"//{host}").hostname or "")
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
        except BadRequest as refusal:
            status, answer = refusal.status, _error(refusal)
        except Exception as error:
            status, answer = 500, _error(BadRequest(f"the model could not answer: {type(error).__name__}", 500))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status != 200:  # what is left of the request may not have been read
            self.close_connection = True
            self.send_header("Connection", "close")
        if status == 429:
            self.send_header("Retry-After", "1")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, method: str) -> dict[str, Any]:
        server, path = cast("Server", self.server), self.path.partition("?")[0].rstrip("/")
        if not server.answers_to(self.headers.get("Host", "")):
            raise BadRequest("without a key only names of this machine are answered to, as http://127.0.0.1", 403)
        if not server.admits(self.headers.get("Authorization", "")):
            raise BadRequest("a key is needed: Authorization: Bearer KEY", 401, code="invalid_api_key")
        routes = {"/v1/models": "GET", f"/v1/models/{server.model}": "GET", "/v1/chat/completions": "POST"}
        if path not in routes:
            raise BadRequest("there is only /v1/models and /v1/chat/completions here", 404)
        if routes[path] != method:
            raise BadRequest(f"{path} takes {routes[path]}", 405)
        if path == "/v1/chat/completions":
            return self._complete(server)
        model = {"id": server.model, "object": "model", "created": server.began, "owned_by": "isentrope"}
        return {"object": "list", "data": [model]} if path == "/v1/models" else model

    def _complete(self, server: Server) -> dict[str, Any]:
        body = self._body()
        model = body.get("model", server.model)
        if model != server.model:
            name = f"model {str(model)[:100]!r} is not here; this is {server.model!r}"
            raise BadRequest(name, 404, param="model", code="model_not_found")
        chat = read_chat(body, server.max_response)
        reply = server.speaker.ask(chat).result(ANSWER_SECONDS)
        return _completion(server.model, reply, chat.logprobs)

    def _body(self) -> dict[str, Any]:
        # Other types could be sent by any web page that the user of this machine has open.
        if self.headers.get_content_type() != "application/json":
            raise BadRequest("the request must have Content-Type: application/json", 415)
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise BadRequest("the request must have a Content-Length", 411)
        if int(length) > MAX_BODY:
            pass_over(self.connection, self.rfile, int(length))
            raise BadRequest(f"the request has more than {MAX_BODY // 2**20} MiB", 413)
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise BadRequest("the request is not JSON") from None
        if not isinstance(found, dict):
            raise BadRequest("the request must be a JSON object")
        return cast("dict[str, Any]", found)


def _completion(model: str, reply: Reply, logprobs: bool) -> dict[str, Any]:
    sampled = len(reply.sampled.ids)
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": reply.text},
        "finish_reason": _FINISH[reply.stop],
        "logprobs": None,
    }
    if logprobs:
        numbers = reply.sampled.logprobs.tolist()
        choice["logprobs"] = {"content": [_token(*pair) for pair in zip(reply.pieces, numbers, strict=True)]}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": sampled,
            "total_tokens": reply.prompt_tokens + sampled,
        },
    }


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece), "top_logprobs": []}


def _error(refusal: BadRequest) -> dict[str, Any]:
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.param, "code": refusal.code}}
