"""Samples from a model behind an OpenAI-compatible server: to evaluate it, never to train it.

The server takes messages and gives text; `ByteTokens` stands between. At most `engine.concurrency` requests are under
way at a time, each in a thread. A request that fails for good ends its own conversation ("error"). If nothing works any
more, that is an EngineError.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from isentrope.config.kinds import ServerOptions
from isentrope.core.engine import TAIL_BYTES, Request, Sampled
from isentrope.core.errors import EngineError
from isentrope.engines.openai.client import ApiClient, Failed

SYSTEM, USER, AGENT = 256, 257, 258
_ROLES = {SYSTEM: "system", USER: "user", AGENT: "assistant"}
BYTES_PER_TOKEN = 3.0  # household text in SmolLM2's vocabulary; English prose has about 4, so it is counted too high

Message = dict[str, str]  # role and content, as servers take them


class ByteTokens:
    """Tokens for a model whose own are not known: 256 bytes, and one id for each speaker in front of what is said.

    The ids before a response can be turned back into exactly the messages they were made from: no text has the id of a
    speaker.
    """

    ids_per_token: float = BYTES_PER_TOKEN
    pad_id: int = 0  # never read: no model computes with these ids
    eos_ids: frozenset[int] = frozenset()  # an answer ends where the server says so
    size: int = 259

    def content(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def opening(self, system: str, message: str) -> list[int]:
        return [SYSTEM, *self.content(system), *self.user(message)]

    def user(self, text: str) -> list[int]:
        return [USER, *self.content(text), AGENT]

    def end_of_answer(self) -> list[int]:
        return []  # the next speaker's id already says that the answer is over

    def answer(self, text: str) -> list[int]:
        return self.content(text)

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [bytes([i]) if i < SYSTEM else f"<|{_ROLES[int(i)]}|>".encode() for i in ids]

    def save(self, folder: Path) -> None:
        """Nothing: there is no vocabulary to keep."""

    def messages(self, prompt: Sequence[int]) -> list[Message]:
        """The messages of a prompt. The last one, the answer that is to be given, is left out."""
        found: list[tuple[str, bytearray]] = []
        for number in prompt:
            if number in _ROLES:
                found.append((_ROLES[number], bytearray()))
            else:
                found[-1][1].append(number)
        return [{"role": role, "content": said.decode("utf-8", "replace")} for role, said in found[:-1]]


_MOST = 2**53  # tokens: up to here sums and costs are exact


@dataclass(frozen=True)
class Answer:
    text: str
    cut_off: bool  # at the length limit
    prompt_tokens: int
    sampled_tokens: int
    counted: bool  # whether the server said how many tokens these were

    def sampled(self, request: Request) -> Sampled:
        said = self.text.encode("utf-8", "replace")
        end = _complete_at(request.stop, said)
        ids = np.frombuffer(said[:end], dtype=np.uint8).astype(np.int32)
        unknown = np.full(len(ids), np.nan, dtype=np.float32)
        stop = "tag" if end is not None else "length" if self.cut_off else "eos"
        return Sampled(ids, unknown, unknown.copy(), np.full(len(ids), request.temperature, dtype=np.float32), stop)


def read_answer(client: ApiClient, answer: dict[str, Any]) -> Answer:
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"] or ""  # None: the model said nothing
        cut_off = choice.get("finish_reason") == "length"
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Failed(f"its answer is not a chat completion: {client.clean(str(answer))!r}") from None
    if not isinstance(text, str):
        raise Failed("the content of its answer is not text")
    counts = [_count(answer.get("usage"), name) for name in ("prompt_tokens", "completion_tokens")]
    return Answer(client.key.hide(text), cut_off, counts[0] or 0, counts[1] or 0, None not in counts)


def _count(usage: Any, name: str) -> int | None:
    value = cast("dict[str, Any]", usage).get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def _complete_at(complete: Callable[[bytes], bool], said: bytes) -> int | None:
    """Where the response is complete: behind the first tag at which the other engines would have stopped."""
    at = said.find(b">")
    while at >= 0:
        if complete(said[max(0, at + 1 - TAIL_BYTES) : at + 1]):
            return at + 1
        at = said.find(b">", at + 1)
    return None


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
        uncounted = {} if answer.counted else {"uncounted": 1}
        self.add(prompt_tokens=answer.prompt_tokens, sampled_tokens=answer.sampled_tokens, **uncounted)


_Done = queue.SimpleQueue[tuple[int, Answer | BaseException]]  # a request's number, and what came of it


class OpenAIEngine:
    def __init__(self, settings: ServerOptions) -> None:
        self.settings, self.tokenizer = settings, ByteTokens()
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
        done: _Done = queue.SimpleQueue()
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
            while not done.empty():  # answers that nobody waits for any more were paid for too
                _, outcome = done.get_nowait()
                if isinstance(outcome, Answer):
                    self._dealings.add(requests=1)
                    self._dealings.count(outcome)
            raise
        return [sampled[number] for number in range(len(requests))]

    def _work(self, requests: Sequence[Request], waiting: queue.SimpleQueue[int], done: _Done) -> None:
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
        messages = self.tokenizer.messages(request.prompt)
        body: dict[str, Any] = {"model": self.model, "messages": messages, "temperature": request.temperature}
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
        named = self._client.key.name
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
