"""Serves retrieval over HTTP by Search-R1's protocol. The other end is `retrievers.Remote`."""

from __future__ import annotations

import os
from asyncio import get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from starlette.requests import Request

from isentrope.config.validate import is_local
from isentrope.net.app import Door, Guarded, Refusal, json_app, json_object, path_of
from isentrope.net.server import Limits, Server
from isentrope.worlds.search_qa.passages import Hit, clean
from isentrope.worlds.search_qa.retrievers import Retriever

MAX_QUERIES, MAX_QUERY, MAX_TOPK = 1024, 10_000, 100


def open_server(host: str, port: int | range, retriever: Retriever, about: dict[str, Any], topk: int) -> Server:
    limits = Limits()
    app = Guarded(
        json_app(RetrievalApi(retriever, about, topk)), Door(local=is_local(host)), limits, failed="the search failed"
    )
    return Server(app, host, port, limits)


class RetrievalApi:
    """Answers requests by their paths."""

    def __init__(self, retriever: Retriever, about: dict[str, Any], topk: int) -> None:
        self._retriever, self._about, self._topk = retriever, about, topk
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)  # more at once would only take more memory

    async def __call__(self, request: Request) -> dict[str, Any]:
        path = path_of(request)
        if path == "" and request.method == "GET":
            return self._about
        if path != "/retrieve":
            raise Refusal("there is only /retrieve here", 404)
        if request.method != "POST":
            raise Refusal("/retrieve takes POST", 405)
        queries, k, scored = _request(await json_object(request), self._topk)
        results = await get_running_loop().run_in_executor(self._threads, self._search, queries, k)
        return {"result": [[_written(hit, scored) for hit in hits] for hits in results]}

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        return self._retriever.search([clean(query) for query in queries], k)


def _request(body: dict[str, Any], topk: int) -> tuple[list[str], int, bool]:
    queries, k = body.get("queries"), body.get("topk") or topk
    if not isinstance(queries, list) or len(cast("list[Any]", queries)) > MAX_QUERIES:
        raise Refusal(f"queries: expected a list of up to {MAX_QUERIES} texts")
    if not all(isinstance(query, str) and len(query) <= MAX_QUERY for query in cast("list[Any]", queries)):
        raise Refusal(f"queries: expected texts of up to {MAX_QUERY} characters")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_TOPK:
        raise Refusal(f"topk: expected a number from 1 to {MAX_TOPK}")
    return cast("list[str]", queries), k, body.get("return_scores", False) is True


def _written(hit: Hit, scored: bool) -> dict[str, Any]:
    passage = hit.passage
    document = {"id": passage.id, "contents": passage.contents, "title": passage.title, "text": passage.text}
    return {"document": document, "score": hit.score} if scored else document
