"""One JSON request to a server over HTTP: a time limit, a size limit, retries.

Nothing that the server says is trusted: its words are shortened and stripped before they stand in an error, its
redirects are not followed, its answers may not be larger than a limit, and the key is taken out should it be in them.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar, cast

from isentrope.net.client import Answer, Client, TooLarge, TooLate, Unreachable
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


class ApiClient:
    def __init__(self, url: str, key_env: str, timeout: float, retries: int) -> None:
        self.url, self.timeout, self.retries = url.strip().rstrip("/"), timeout, retries
        self.key = Key(key_env, self.url)
        check_address(self.url, self.key)
        kind = "application/json"
        self._client = Client(self.url, MAX_BODY, {"Accept": kind, "Content-Type": kind, **self.key.headers()})
        self._stopped, self._lock, self._retried = threading.Event(), threading.Lock(), 0

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
        try:
            answer = self._client.ask(path, None if body is None else json.dumps(body).encode(), self.timeout)
        except TooLate:
            raise Failed(f"no answer within engine.timeout = {self.timeout:g} seconds") from None
        except TooLarge as error:
            raise Failed(f"its answer has {error}", again=False) from None
        except Unreachable as error:
            # a ValueError is of what was sent, or of a certificate: it would be the same again
            words = f"{type(error.reason).__name__}: {error.reason}"
            raise Failed(self.clean(words), again=not isinstance(error.reason, ValueError)) from None
        if not answer.success:
            raise self._refusal(answer)
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise Failed(f"its answer is not JSON: {self.clean(answer.body.decode('utf-8', 'replace'))!r}") from None
        if not isinstance(found, dict):
            raise Failed(f"its answer is JSON but not an object: {self.clean(str(found))!r}")
        return cast("dict[str, Any]", found)

    def _refusal(self, answer: Answer) -> Failed:
        status = answer.status
        if 300 <= status < 400:
            target = self.clean(answer.headers.get("Location") or "another address")
            return Failed(f"it redirects to {target}, and redirects are not followed", status, again=False)
        words = self.clean(_message(answer.body)) or "no message"
        again = status in _TRY_AGAIN or status >= 500
        return Failed(words, status, again, _retry_after(answer.headers.get("Retry-After")))

    def clean(self, text: str) -> str:
        """The server's words on one line: without the key, without characters that are not seen but act, and short."""
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        line = self.key.hide(line)
        return line if len(line) <= _MAX_WORDS else line[:_MAX_WORDS] + " …"


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
    if value is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return None


def _pause(attempt: int, asked: float | None) -> float | None:
    """Seconds before the next attempt: twice as long each time, spread so that requests do not come back together;
    never less than the server asks for. None: that is too long to wait."""
    if asked is not None and asked > _LONGEST_ASKED:
        return None
    grown = min(_LONGEST_PAUSE, FIRST_PAUSE * 2.0**attempt) * random.uniform(0.5, 1.0)
    return max(grown, asked or 0.0)
