"""Searches on a server that speaks Search-R1's protocol: `isentrope retrieve`, or one of theirs.

POST /retrieve   {"queries": ["..."], "topk": 3, "return_scores": true}
answer           {"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\nText"}, "score": 11.2}, ...]]}
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from isentrope.core.errors import TaskError
from isentrope.net.client import Client, TooLarge, TooLate, Unreachable
from isentrope.worlds.search_qa.passages import Hit, read_passage

_MAX_ANSWER = 16 * 2**20
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class Remote:
    def __init__(self, url: str, timeout: float = 20.0, retries: int = 3) -> None:
        self._url = _address(url)
        self._timeout, self._retries = timeout, retries
        kind = "application/json"
        self._client = Client(self._url, _MAX_ANSWER, {"Content-Type": kind, "Accept": kind})

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        body = json.dumps({"queries": list(queries), "topk": k, "return_scores": True}).encode()
        answer = self._ask(body)
        result = cast("Mapping[str, Any]", answer).get("result") if isinstance(answer, Mapping) else None
        results = _items(result, self._url)
        if len(results) != len(queries):
            raise TaskError(f"{self._url} gave {len(results)} results for {len(queries)} queries")
        return [
            [_hit(item, number, self._url) for number, item in enumerate(_items(row, self._url)[:k])] for row in results
        ]

    def _ask(self, body: bytes) -> Any:
        """All attempts together have the time limit: afterwards nobody waits for the answer."""
        problem, end = "", time.monotonic() + self._timeout
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(max(0.0, min(0.25 * 2 ** (attempt - 1), 8.0, end - time.monotonic())))
            left = end - time.monotonic()
            if left <= 0:
                break
            try:
                answer = self._client.ask("", body, left)
            except TooLarge as error:
                raise TaskError(f"{self._url} answered with {error}") from None
            except TooLate:
                problem = "timed out"
            except Unreachable as error:
                problem = str(error.reason) or str(error)
            else:
                if answer.success:
                    try:
                        return json.loads(answer.body)
                    except (ValueError, RecursionError):
                        known = "is it a server of Search-R1's protocol?"
                        raise TaskError(f"{self._url} did not answer in JSON; {known}") from None
                problem = f"it answered {answer.status}: {answer.body[:300].decode('utf-8', 'replace')}"
                if answer.status not in _AGAIN:
                    break
        raise TaskError(
            f"no search at {self._url}: {problem or 'timed out'}. Is the server running? `isentrope retrieve CORPUS` "
            "starts one; option retriever has its address"
        )


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine, parts = False, urlsplit("")
    if not fine or parts.username or parts.password or parts.query or parts.fragment:
        raise TaskError(f"retriever = {url[:100]!r}: expected bm25, dense, or an address like http://127.0.0.1:8000")
    base = url.rstrip("/")
    return base if base.endswith("/retrieve") else f"{base}/retrieve"


def _items(value: Any, url: str) -> list[Any]:
    if not isinstance(value, list):
        raise TaskError(f'{url} did not answer {{"result": [[...], ...]}}; is it a server of Search-R1\'s protocol?')
    return cast("list[Any]", value)


def _hit(item: Any, number: int, url: str) -> Hit:
    """A hit with its score, or a bare document, as servers give them that know no scores."""
    table: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else dict[str, Any]()
    document, score = table.get("document", table), table.get("score", 0.0)
    if not isinstance(document, Mapping):
        raise TaskError(f"{url}: a document is a {type(document).__name__}, not a JSON object")
    known = isinstance(score, int | float) and math.isfinite(score)
    return Hit(read_passage(cast("Mapping[str, Any]", document), number, url), float(score) if known else 0.0)
