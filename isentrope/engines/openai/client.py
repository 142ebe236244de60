"""One JSON request to a server over HTTP: a time limit, a size limit, retries.

Nothing that the server says is trusted: its words are shortened and stripped before they stand in an error, its
redirects are not followed, its answers may not be larger than a limit, and the key is taken out should it be in them.
"""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Protocol, TypeVar, cast

from isentrope.engines.openai.http_line import Line, LineHandler, LineRequest, SecureLineHandler
from isentrope.net.keys import Key, check_address

T = TypeVar("T")

MAX_BODY = 8 * 1024 * 1024
FIRST_PAUSE = 0.5  # seconds before the second attempt
_LONGEST_PAUSE = 60.0  # to which pauses grow
_LONGEST_ASKED = 600.0  # a server that asks for a longer wait is not waited for
_MAX_WORDS = 300  # characters of the server's own words in an error
_TRY_AGAIN = {408, 409, 425, 429}


class Failed(Exception):
    """A request without a usable answer. `status` is 0 where the server gave none."""

    def __init__(self, words: str, status: int = 0, again: bool = True, asked: float | None = None) -> None:
        super().__init__(words)
        self.words, self.status, self.again, self.asked = words, status, again, asked


class _Body(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that redirects is an answer like any other; where it points is not even read."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class ApiClient:
    def __init__(self, url: str, key_env: str, timeout: float, retries: int) -> None:
        self.url, self.timeout, self.retries = url.strip().rstrip("/"), timeout, retries
        self._key = Key(key_env, self.url)
        local = check_address(self.url, self._key)
        # A proxy that the environment names is used, but not on the way to this machine: it would be shown the key.
        proxies = urllib.request.ProxyHandler({}) if local else urllib.request.ProxyHandler()
        self._opener = urllib.request.build_opener(proxies, _NoRedirect(), LineHandler(), SecureLineHandler())
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._retried = 0

    def stop(self) -> None:
        """No thread makes another attempt."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def take_retries(self) -> int:
        """How many requests were made again since this was asked last."""
        with self._lock:
            count, self._retried = self._retried, 0
        return count

    @property
    def key_name(self) -> str:
        return self._key.name

    def hide(self, text: str) -> str:
        return self._key.hide(text)

    def call(self, path: str, body: Mapping[str, Any] | None, read: Callable[[dict[str, Any]], T]) -> T:
        """What `read` takes from the server's answer. Raises Failed once no further attempt is worth it."""
        attempt = 0
        while True:
            try:
                return read(self._once(path, body))
            except Failed as failure:
                pause = _pause(attempt, failure.asked)
                if not failure.again or attempt >= self.retries or pause is None or self._stopped.wait(pause):
                    raise
            attempt += 1
            with self._lock:
                self._retried += 1

    def _once(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": "isentrope", **self._key.headers()}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        with Line(self.timeout) as line:
            request = LineRequest(line, self.url + path, data, headers)
            try:
                with self._opener.open(request, timeout=self.timeout) as response:
                    return self._object(_read(response, line))
            except urllib.error.HTTPError as error:
                raise self._refusal(error, line) from None
            except (OSError, HTTPException, ValueError) as error:
                raise self._failure(error, line) from None

    def _failure(self, error: Exception, line: Line) -> Failed:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error  # urllib wraps most things
        if line.late or isinstance(reason, TimeoutError):
            return Failed(f"no answer within engine.timeout = {self.timeout:g} seconds")
        # a ValueError is of what was sent, or of a certificate: it would be the same again
        return Failed(self.clean(_name(reason)), again=not isinstance(reason, ValueError))

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise Failed(f"its answer is not JSON: {self.clean(text.decode('utf-8', 'replace'))!r}") from None
        if not isinstance(found, dict):
            raise Failed(f"its answer is JSON but not an object: {self.clean(str(found))!r}")
        return cast("dict[str, Any]", found)

    def _refusal(self, error: urllib.error.HTTPError, line: Line) -> Failed:
        status = error.code
        with error:
            try:
                body = _read(cast("_Body", error), line)
            except (OSError, HTTPException, ValueError, Failed):
                body = b""  # the status says enough
        if 300 <= status < 400:
            target = self.clean(error.headers.get("Location") or "another address")
            return Failed(f"it redirects to {target}, and redirects are not followed", status, again=False)
        words = self.clean(_message(body)) or "no message"
        again = status in _TRY_AGAIN or status >= 500
        return Failed(words, status, again, _retry_after(error.headers.get("Retry-After")))

    def clean(self, text: str) -> str:
        """The server's words on one line: without the key, without characters that are not seen but act, and short."""
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        line = self._key.hide(line)
        return line if len(line) <= _MAX_WORDS else line[:_MAX_WORDS] + " …"


def _read(response: _Body, line: Line) -> bytes:
    """The whole body; it may neither be too large nor come too slowly."""
    body = bytearray()
    while True:
        piece = response.read1(64 * 1024)
        if line.late:  # what there is of it was cut off
            raise TimeoutError
        if not piece:
            return bytes(body)
        body += piece
        if len(body) > MAX_BODY:
            raise Failed(f"its answer has more than {MAX_BODY // 2**20} MiB", again=False)


def _name(reason: object) -> str:
    return f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else str(reason)


def _message(body: bytes) -> str:
    """What an error body says: OpenAI's `error.message`, or what other servers have in its place, or all of it."""
    text = body.decode("utf-8", "replace")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = cast("dict[str, Any]", found)[name]
    return found if isinstance(found, str) else text


def _retry_after(value: str | None) -> float | None:
    """Seconds that the server asks to wait; it may give a number or a date."""
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(str(value)).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _pause(attempt: int, asked: float | None) -> float | None:
    """Seconds before the next attempt: twice as long each time, spread so that requests do not come back together;
    never less than the server asks for. None: that is too long to wait."""
    if asked is not None and asked > _LONGEST_ASKED:
        return None
    grown = min(_LONGEST_PAUSE, FIRST_PAUSE * 2.0**attempt) * random.uniform(0.5, 1.0)
    return max(grown, asked or 0.0)
