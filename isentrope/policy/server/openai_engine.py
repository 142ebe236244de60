"""The engine for a server that speaks OpenAI's protocol: a model that one can ask but not load, so only evaluate.

The server takes messages and gives text; ByteTokens stands between (`chat_answer.py` takes the text apart). At most
`engine.concurrency` requests are under way at a time, each in a thread.

A request that fails for good ends its own conversation ("error"). If nothing works any more, that is an EngineError.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from isentrope.config.schema import EngineSettings
from isentrope.errors import EngineError
from isentrope.policy.engine import Request, Sampled
from isentrope.policy.server.api_client import ApiClient, Failed
from isentrope.policy.server.byte_tokens import ByteTokens
from isentrope.policy.server.chat_answer import Answer, read_answer

_HOPELESS = {401, 404}  # before any answer: the key, the address or the model is wrong, for every other request too
_ADVICE = {
    0: "see whether the server runs and engine.url is its address, up to and with its /v1",
    300: "set engine.url to the address where the server really is",
    400: "see whether the server takes chat messages, eval.temperature and agent.max_response as they are set",
    401: "put a valid key into KEY",
    403: "see whether the key in KEY may use this model",
    404: "see whether engine.url ends with the server's /v1 and engine.model is a name it knows",
    429: "lower engine.concurrency, raise engine.retries, or see whether the account has credit left",
}
_NO_LIST = "it lists no model"
_NO_KEY = "no key was sent: put one into an environment variable, and the variable's name into engine.key_env"


@dataclass
class _Dealings:
    """What has happened since `notes` was asked last, and in a row."""

    counts: dict[str, float] = field(default_factory=dict[str, float])
    failed_in_a_row: int = 0
    ever_answered: bool = False

    def add(self, **counts: float) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0.0) + count

    def count(self, answer: Answer) -> None:
        self.add(prompt_tokens=answer.prompt_tokens, sampled_tokens=answer.sampled_tokens)
        if not answer.counted:
            self.add(uncounted=1)


class OpenAIEngine:
    def __init__(self, settings: EngineSettings) -> None:
        self.settings, self.dialect = settings, ByteTokens()
        self._client = ApiClient(settings.url, settings.key_env, settings.timeout, settings.retries)
        self._dealings = _Dealings()
        self._limit_name, self._seeded = "max_tokens", True  # what the server is known to take
        self.model = settings.model or self._first_model()

    def open(self, slots: Sequence[int]) -> None:
        """Nothing to do: every request holds its whole conversation."""

    def keep(self, slots: Sequence[int]) -> None: ...

    def refresh(self) -> None:
        """Nothing to do: the weights are the server's."""

    def close(self) -> None:
        self._client.stop()

    def notes(self) -> dict[str, float]:
        self._dealings.add(retries=self._client.take_retries())
        counts = dict.fromkeys(("requests", "failed", "prompt_tokens", "sampled_tokens"), 0.0) | self._dealings.counts
        self._dealings.counts = {}
        if not (self.settings.price_in or self.settings.price_out):
            return counts
        price = counts["prompt_tokens"] * self.settings.price_in + counts["sampled_tokens"] * self.settings.price_out
        return counts | {"cost": price / 1e6}

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        """One response to each request, in their order."""
        if any(request.temperature_of is not None for request in requests):
            raise EngineError(
                "a method sets the temperature of each token, which a server cannot do; evaluate without it "
                '(--set methods=[]), or use engine.kind = "torch" or "vllm"'
            )
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Answer | BaseException]] = queue.SimpleQueue()
        for number in range(len(requests)):
            waiting.put(number)
        sampled: dict[int, Sampled] = {}
        try:
            for _ in range(min(self.settings.concurrency, len(requests))):
                # As daemons they do not hold the program up when it is interrupted while a server keeps them waiting.
                threading.Thread(target=self._work, args=(requests, waiting, done), daemon=True).start()
            while len(sampled) < len(requests):
                number, outcome = done.get()
                sampled[number] = self._taken(requests[number], outcome, len(requests))
        except BaseException:
            self._client.stop()  # an error or an interrupt: no thread begins anything new
            self._count_rest(done)
            raise
        return [sampled[number] for number in range(len(requests))]

    def _count_rest(self, done: queue.SimpleQueue[tuple[int, Answer | BaseException]]) -> None:
        """Answers that nobody waits for any more were paid for too."""
        while True:
            try:
                _, outcome = done.get_nowait()
            except queue.Empty:
                return
            if isinstance(outcome, Answer):
                self._dealings.add(requests=1)
                self._dealings.count(outcome)

    def _work(
        self,
        requests: Sequence[Request],
        waiting: queue.SimpleQueue[int],
        done: queue.SimpleQueue[tuple[int, Answer | BaseException]],
    ) -> None:
        while not self._client.stopped:
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, self._ask(requests[number])))
            except BaseException as error:  # it is raised again, or recorded, where the answers are collected
                done.put((number, error))

    def _ask(self, request: Request) -> Answer:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": self.dialect.messages(request.prompt),
            "temperature": request.temperature,
        }
        while True:
            limit_name, seeded = self._limit_name, self._seeded
            extra = {limit_name: len(request.uniforms)}
            if seeded:  # servers that heed it give the same answer again; drawn from the conversation's own numbers
                extra["seed"] = int(request.uniforms[0] * 2**31)
            try:
                return self._client.call("/chat/completions", body | extra, partial(read_answer, self._client))
            except Failed as failure:
                # Two fields have no name that every server takes: it is asked again in the way it wants them.
                if failure.status not in (400, 422):
                    raise
                if limit_name == "max_tokens" and "max_completion_tokens" in failure.words:
                    self._limit_name = "max_completion_tokens"
                elif seeded and "seed" in failure.words:
                    self._seeded = False
                else:
                    raise

    def _taken(self, request: Request, outcome: Answer | BaseException, together: int) -> Sampled:
        dealings = self._dealings
        dealings.add(requests=1)
        if isinstance(outcome, Answer):
            dealings.failed_in_a_row, dealings.ever_answered = 0, True
            dealings.count(outcome)
            return outcome.sampled(request)
        if not isinstance(outcome, Failed):
            raise outcome
        dealings.failed_in_a_row += 1
        dealings.add(failed=1)
        at_once = self.settings.concurrency
        enough = max(4, at_once) if dealings.ever_answered else min(at_once, together)
        hopeless = outcome.status in _HOPELESS and not dealings.ever_answered
        if hopeless or dealings.failed_in_a_row >= enough:
            raise EngineError(self._complaint(outcome))
        empty = np.zeros(0, dtype=np.float32)
        return Sampled(empty.astype(np.int32), empty, empty, empty, "error", _in_words(outcome))

    def _complaint(self, failure: Failed) -> str:
        status = 300 if 300 <= failure.status < 400 else failure.status
        named = self._client.key_name
        advice = _NO_KEY if status in (401, 403) and not named else _ADVICE.get(status, "").replace("KEY", named)
        return f"{self._client.url}: {_in_words(failure)}" + (f"; {advice}" if advice else "")

    def _first_model(self) -> str:
        def names(answer: dict[str, Any]) -> str:
            try:
                return self._client.clean(str(answer["data"][0]["id"]))
            except (KeyError, IndexError, TypeError):
                raise Failed(_NO_LIST, again=False) from None

        try:
            return self._client.call("/models", None, names)
        except Failed as failure:
            unlisted = failure.status == 404 or failure.words == _NO_LIST  # by another fault no name would help
            advice = "; or name the model by engine.model" if unlisted else ""
            raise EngineError(self._complaint(failure) + advice) from None


def _in_words(failure: Failed) -> str:
    return f"the server answered {failure.status}, {failure.words!r}" if failure.status else failure.words
