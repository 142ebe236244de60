"""Answers conversations with a policy: those that wait are sampled together, in one thread that owns the engine.

Messages become tokens exactly as in training. An assistant's message that was sampled here is given back to the model
as the tokens it was sampled as, not as those its text would be cut into: the speaker remembers what it said.
"""

from __future__ import annotations

import hashlib
import queue
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from isentrope.agent.context import closing
from isentrope.agent.response_format import is_complete
from isentrope.core.engine import Engine, Request, Sampled
from isentrope.core.seeding import stream
from isentrope.core.tokenizer import ACTION, ChatTokenizer
from isentrope.serving.chat import BadRequest, Chat

REMEMBERED = 20_000  # answers whose tokens are remembered


@dataclass(frozen=True)
class Reply:
    text: str
    stop: str  # "tag", "eos", "length" or "stop": one of the request's own stop texts
    prompt_tokens: int
    sampled: Sampled
    pieces: list[bytes]


@dataclass(frozen=True)
class _Waiting:
    chat: Chat
    prompt: list[int]
    reply: Future[Reply]


class Speaker:
    def __init__(
        self, engine: Engine, order: str, max_context: int, slots: int, tags: tuple[str, ...] = ACTION
    ) -> None:
        self._engine, self._tokenizer, self._order, self._tags = engine, engine.tokenizer, order, tags
        self._max_context = max_context
        self._memory = Memory()
        self._slots = Slots(slots)
        self._waiting: queue.Queue[_Waiting] = queue.Queue(maxsize=4 * slots)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._broken = False  # whether the engine failed, so that what it holds of any conversation may be wrong
        self._engine.open(range(slots))
        self._thread.start()

    def ask(self, chat: Chat) -> Future[Reply]:
        """The answer, once it is there."""
        prompt = conversation_tokens(self._tokenizer, chat, self._memory)
        if len(prompt) + chat.max_tokens > self._max_context:
            raise BadRequest(
                f"{len(prompt)} prompt tokens and max_tokens = {chat.max_tokens} are more than agent.max_context = "
                f"{self._max_context}",
                param="messages",
                code="context_length_exceeded",
            )
        reply: Future[Reply] = Future()
        try:
            self._waiting.put_nowait(_Waiting(chat, prompt, reply))
        except queue.Full:
            raise BadRequest("too many requests are waiting; try again", 429, code="rate_limit_exceeded") from None
        return reply

    def close(self) -> None:
        """What is being sampled is still answered, what waits is refused."""
        self._closing.set()
        self._thread.join()
        for waiting in self._take(self._waiting.qsize()):
            waiting.reply.set_exception(BadRequest("the server is stopping", 503))
        self._engine.close()

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                first = self._waiting.get(timeout=0.1)
            except queue.Empty:
                continue
            self._answer([first, *self._take(self._slots.count - 1)])

    def _take(self, most: int) -> list[_Waiting]:
        """Those that wait now, as many as `most`."""
        taken: list[_Waiting] = []
        try:
            while len(taken) < most:
                taken.append(self._waiting.get_nowait())
        except queue.Empty:
            pass
        return taken

    def _answer(self, together: Sequence[_Waiting]) -> None:
        try:
            if self._broken:
                self._engine.open(range(self._slots.count))
                self._slots, self._broken = Slots(self._slots.count), False
            slots = self._slots.assign([waiting.prompt for waiting in together])
            requests = [self._request(w, slot) for w, slot in zip(together, slots, strict=True)]
            sampled = self._engine.sample(requests)
            replies = [self._reply(w, s) for w, s in zip(together, sampled, strict=True)]
        except Exception as error:  # of these requests, whatever it is; the next ones may do better
            self._broken = True
            for waiting in together:
                waiting.reply.set_exception(error)
            return
        for waiting, slot, one, reply in zip(together, slots, sampled, replies, strict=True):
            self._slots.hold(slot, [*waiting.prompt, *one.ids.tolist()])
            if reply.stop != "stop":  # then the text is only a part of what was sampled
                self._memory.remember(waiting.prompt, reply.text, one.ids.tolist())
            waiting.reply.set_result(reply)

    def _request(self, waiting: _Waiting, slot: int) -> Request:
        chat, stops = waiting.chat, [text.encode() for text in waiting.chat.stop]
        seed = chat.seed if chat.seed is not None else secrets.randbits(64)
        uniforms = stream(seed, "serve").random(chat.max_tokens, dtype=np.float32)
        return Request(
            slot, waiting.prompt, uniforms, chat.temperature,
            stop=lambda tail: is_complete(self._order, tail, self._tags) or any(stop in tail for stop in stops),
        )  # fmt: skip

    def _reply(self, waiting: _Waiting, sampled: Sampled) -> Reply:
        ids = sampled.ids.tolist()
        pieces = self._tokenizer.pieces(ids)
        shown = pieces[:-1] if sampled.stop == "eos" else pieces
        text, stop = b"".join(shown).decode("utf-8", "replace"), sampled.stop
        for mark in waiting.chat.stop:
            before, found, _ = text.partition(mark)
            if found:
                text, stop = before, "stop"
        return Reply(text, stop, len(waiting.prompt), sampled, pieces)


class Memory:
    """The tokens of the latest answers, found by what was asked and the answer's text; by the text alone if what was
    asked has changed since, as in a conversation that lost its oldest turns."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[bytes, str], list[int]] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, prompt: Sequence[int], text: str, ids: list[int]) -> None:
        with self._lock:
            for asked in (_digest(prompt), b""):
                # Also without the white space that the last token may bring along: clients like to strip it.
                self._said[asked, text] = self._said[asked, text.rstrip()] = ids
            while len(self._said) > REMEMBERED:
                self._said.popitem(last=False)

    def recall(self, prompt: Sequence[int], text: str) -> list[int] | None:
        with self._lock:
            return self._said.get((_digest(prompt), text)) or self._said.get((b"", text))


class Slots:
    """Which slot of the engine a conversation goes on in: the one that holds the most of it, else the one that was
    used longest ago."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._held: OrderedDict[int, list[int]] = OrderedDict((slot, []) for slot in range(count))

    def assign(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        free, chosen = dict(self._held), dict[int, int]()
        for number, prompt in enumerate(prompts):
            fits = [slot for slot, held in free.items() if held and list(prompt[: len(held)]) == held]
            if fits:
                chosen[number] = max(fits, key=lambda slot: len(free[slot]))
                del free[chosen[number]]
        oldest = iter(free)
        return [chosen[number] if number in chosen else next(oldest) for number in range(len(prompts))]

    def hold(self, slot: int, tokens: list[int]) -> None:
        self._held[slot] = tokens
        self._held.move_to_end(slot)


def conversation_tokens(tokenizer: ChatTokenizer, chat: Chat, memory: Memory) -> list[int]:
    """The tokens before the answer, as the agent's own context would give them."""
    tokens = tokenizer.opening(chat.system, chat.said[0])
    for said, message in zip(chat.said[1::2], chat.said[2::2], strict=True):
        remembered = memory.recall(tokens, said)
        answer = tokenizer.answer(said) if remembered is None else remembered
        tokens = [*tokens, *answer, *closing(tokenizer, answer), *tokenizer.user(message)]
    return tokens


def _digest(tokens: Sequence[int]) -> bytes:
    return hashlib.sha256(np.asarray(tokens, dtype=np.int32).tobytes()).digest()
