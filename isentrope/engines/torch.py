"""The torch engine: samples many conversations at once, their keys and values kept from turn to turn.

`sample` takes for each conversation all tokens before the response. What the engine already holds of a
conversation is not computed again: if the prompt starts with it (the prefix rule), only the rest is read.
Every sampled token comes with its exact log-prob and the entropy of the distribution it was drawn from.
Tokens are drawn by inverse CDF from uniform numbers that belong to the conversation, so a sample does not depend
on which other conversations happen to be in the batch, and a guess at what will be drawn can be checked (drafts.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.agent.context import split_prefix
from isentrope.core.engine import TAIL_BYTES, Request, Sampled
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.engines.drafts import COSTS, REACH, Drafts
from isentrope.engines.graphs import GraphedDecoder
from isentrope.models.kv_cache import Cache
from isentrope.models.memory import chunk_rows
from isentrope.models.policy import Policy
from isentrope.models.token_head import logits


@dataclass
class Answer:
    """A response while it is being sampled."""

    request: Request
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    entropies: list[float] = field(default_factory=list[float])
    temperatures: list[float] = field(default_factory=list[float])
    tail: bytes = b""
    stop: str = ""

    def next_temperature(self, entropy: float) -> float:
        rule = self.request.temperature_of
        return rule(self.ids, entropy) if rule else self.request.temperature

    def add(self, token: int, logprob: float, entropy: float, temperature: float, tokenizer: ChatTokenizer) -> None:
        """One token more; `stop` says whether it was the last, and why."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)
        self.temperatures.append(temperature)
        self.tail = (self.tail + tokenizer.pieces([token])[0])[-TAIL_BYTES:]
        if token in tokenizer.eos_ids:
            self.stop = "eos"
        elif self.request.stop(self.tail):
            self.stop = "tag"
        elif len(self.ids) == len(self.request.uniforms):
            self.stop = "length"

    def sampled(self) -> Sampled:
        ids, logprobs = np.array(self.ids, dtype=np.int32), np.array(self.logprobs, dtype=np.float32)
        entropies, temperatures = (np.array(x, dtype=np.float32) for x in (self.entropies, self.temperatures))
        return Sampled(ids, logprobs, entropies, temperatures, self.stop)


def draw_next(answers: Sequence[Answer], logits: Tensor, tokenizer: ChatTokenizer) -> Tensor:
    """Draw the next token of each answer from its row of raw logits and write it down; gives the tokens."""
    tokens, values = draw_at([len(answer.ids) for answer in answers], answers, logits)
    for answer, value in zip(answers, values, strict=True):
        answer.add(*value, tokenizer)
    return tokens


Value = tuple[int, float, float, float]  # a token, its log-prob, entropy and temperature


def draw_at(places: Sequence[int], answers: Sequence[Answer], logits: Tensor) -> tuple[Tensor, list[Value]]:
    """Draw a token from each row of raw logits, for these places of these answers.

    Temperature, log-prob, entropy and draw all come from the same distribution; of a greedy token (temperature 0)
    log-prob and entropy are those at temperature 1. Three numbers a token go to the host.
    """
    device = logits.device
    chosen = [a.next_temperature(h) for a, h in zip(answers, _base_entropies(answers, logits), strict=True)]
    temperatures = torch.tensor([t or 1.0 for t in chosen], device=device)
    words = torch.log_softmax(logits.float() / temperatures[:, None], dim=-1)
    p = words.exp()
    entropy = _entropy(words)
    uniforms = [answer.request.uniforms[place] for answer, place in zip(answers, places, strict=True)]
    precise = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
    tokens = draw(p, torch.tensor(uniforms, dtype=precise, device=device))
    if 0 in chosen:
        greedy = torch.tensor([t == 0 for t in chosen], device=device)
        tokens = torch.where(greedy, words.argmax(-1), tokens)
    logp = words.gather(1, tokens[:, None]).squeeze(1)
    # float32 holds every id up to 16 million exactly, so ids and numbers travel together: one wait for the device
    ids, logps, entropies = cast("list[list[float]]", torch.stack([tokens.float(), logp, entropy]).tolist())
    return tokens, list(zip(map(int, ids), logps, entropies, chosen, strict=True))


def _base_entropies(answers: Sequence[Answer], logits: Tensor) -> list[float]:
    """Of the next token of each answer at its plan's temperature; 0 where no rule asks for it."""
    rules = [answer.request.temperature_of for answer in answers]
    if not any(rule is not None and rule.needs_entropy for rule in rules):
        return [0.0] * len(answers)
    base = torch.tensor([answer.request.temperature or 1.0 for answer in answers], device=logits.device)
    return cast("list[float]", _entropy(torch.log_softmax(logits.float() / base[:, None], dim=-1)).tolist())


def _entropy(words: Tensor) -> Tensor:
    """Of log-probs over all words; one of probability 0 adds nothing, not NaN."""
    p = words.exp()
    return -torch.where(p > 0, p * words, 0.0).sum(-1)


def draw(p: Tensor, uniforms: Tensor) -> Tensor:
    """The word at which the cumulative probability passes each row's uniform number.

    Summed in the uniforms' precision and scaled to the true total: no uniform number falls beyond the last word.
    """
    total = p.to(uniforms.dtype).cumsum(-1)
    target = (uniforms * total[:, -1])[:, None]
    token = torch.searchsorted(total, target, right=True).squeeze(1)
    last = p.shape[1] - 1 - (p > 0).flip(-1).int().argmax(-1)
    return torch.minimum(token, last)


class TorchEngine:
    def __init__(self, policy: Policy, drafts: int = 0) -> None:
        self.policy, self.model, self.tokenizer, self.device = policy, policy.model, policy.tokenizer, policy.device
        kind = self.device.type
        self._drafts = Drafts(drafts, kind) if drafts and kind in COSTS else None
        if self.device.type == "cuda":
            # cuDNN's attention plans anew for every shape, 90 ms each, and lengths change with every token
            torch.backends.cuda.enable_cudnn_sdp(False)
        self._graphs = self.device.type == "cuda"
        self._cache: Cache | None = None
        self._graphed: GraphedDecoder | None = None
        self._reach = 0  # columns of the cache that a turn may touch
        self._rows: dict[int, int] = {}  # slot -> row of the cache
        self._held: dict[int, list[int]] = {}  # slot -> tokens whose keys and values the cache holds

    def open(self, slots: Sequence[int]) -> None:
        """Begin with these conversations, all empty. Whatever was held before is forgotten."""
        self._hold(Cache(len(slots), self.device), len(slots))
        self._rows = {slot: row for row, slot in enumerate(slots)}
        self._held = {slot: [] for slot in slots}

    def _hold(self, cache: Cache, rows: int) -> None:
        self._cache = cache
        # a new graph only when there is a new cache: the old one's memory goes back first
        self._graphed = GraphedDecoder(self.policy, cache, rows) if self._graphs else None

    def keep(self, slots: Sequence[int]) -> None:
        """Forget every conversation but these, once that frees a good part of the batch."""
        if len(slots) <= 0.75 * len(self._rows) and slots:
            assert self._cache is not None
            self._cache.keep(self._tensor(np.array([self._rows[slot] for slot in slots])))
            self._hold(self._cache, len(slots))
            self._rows = {slot: row for row, slot in enumerate(slots)}
            self._held = {slot: self._held[slot] for slot in slots}

    def refresh(self) -> None:
        """The engine samples from the policy's own weights."""
        if self._drafts is not None:
            self._drafts.fade()

    def notes(self) -> dict[str, float]:
        return {} if self._drafts is None else self._drafts.notes()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._drafts is None else {"drafts": self._drafts.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._drafts is not None and "drafts" in state:
            self._drafts.load_state_dict(state["drafts"])

    def close(self) -> None:
        self._cache = self._graphed = None

    @torch.no_grad()
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        answers = [Answer(request) for request in requests]
        # as far as any row may write in this turn; rows that stand still write behind their end
        self._reach = max(*map(len, self._held.values()), *(len(r.prompt) + len(r.uniforms) for r in requests)) + 1
        drafts = self._drafts
        if drafts is not None and drafts.begin(len(answers)):
            self._by_drafts(answers, drafts)
        else:
            self._token_by_token(answers)
        if drafts is not None:
            drafts.memory.tell([(answer.request.prompt, answer.ids) for answer in answers])
        for answer in answers:
            # The last token was drawn but never read: the next prompt begins with it.
            self._held[answer.request.slot] = [*answer.request.prompt, *answer.ids[:-1]]
        return [answer.sampled() for answer in answers]

    def _token_by_token(self, answers: Sequence[Answer]) -> None:
        live, hidden = answers, self._read_prompts(answers)
        while live:
            draw_next(live, logits(hidden, self.model.head_weight()), self.tokenizer)
            kept = [answer for answer in live if not answer.stop]
            live, fed = kept, [answer.ids[-1:] for answer in kept]
            hidden = self._extend(live, fed) if live else hidden

    def _by_drafts(self, answers: Sequence[Answer], drafts: Drafts) -> None:
        """Read what is new of each answer and a draft of what follows, and draw behind each of these tokens: up to the
        first draw that is not what was drafted, the draws are the answer's next tokens."""
        live, news = answers, [self._new_tokens(answer.request) for answer in answers]
        while live:
            guesses = drafts.draft([_end(answer) for answer in live], [_most_drafted(answer) for answer in live])
            values = self._draw(live, self._read_drafts(live, news, guesses, drafts))
            wrong = [0] * len(live)
            for row, (answer, guess) in enumerate(zip(live, guesses, strict=True)):
                taken = self._take(answer, guess, values[row])
                drafts.judged(row, guess, answer.ids[len(answer.ids) - taken :])
                wrong[row] = len(guess) + 1 - taken
            assert self._cache is not None
            rows = [self._rows[answer.request.slot] for answer in live]
            self._cache.take_back(self._tensor(np.array(rows)), self._tensor(np.array(wrong)))
            live = [answer for answer in live if not answer.stop]
            news = [answer.ids[-1:] for answer in live]

    def _read_drafts(
        self, live: Sequence[Answer], news: Sequence[list[int]], guesses: Sequence[list[int]], drafts: Drafts
    ) -> list[Tensor]:
        """The states after the last of each answer's new tokens and after each of its drafted ones."""
        if not any(guesses) and all(answer.ids for answer in live):
            hidden = self._extend(live, news)
            return [hidden[row : row + 1] for row in range(len(live))]
        fed = [new + guess for new, guess in zip(news, guesses, strict=True)]
        source = self._sources(live, news, fed)
        read = sorted(set(source))
        states: dict[int, Tensor] = {}
        for part in drafts.cost.parts([len(fed[i]) for i in read]):
            numbers = [read[i] for i in part]
            answers, pieces = [live[i] for i in numbers], [fed[i] for i in numbers]
            ids, counts, rows, _ = self._padded(answers, pieces)
            held = [len(live[i].request.prompt) + len(live[i].ids) - len(news[i]) for i in numbers]
            assert self._cache is not None
            with self.policy.compute():
                found = self.model.extend_all(self._cache, ids, counts, rows, max(held) + ids.shape[1])
            ends = accumulate(map(len, pieces))
            states |= {i: found[end - 1 - len(guesses[i]) : end] for i, end in zip(numbers, ends, strict=True)}
        self._copy(live, source)
        return [states[i] for i in source]

    def _draw(self, live: Sequence[Answer], states: Sequence[Tensor]) -> list[list[Value]]:
        """A token behind each of these states of each answer."""
        weight, together = self.model.head_weight(), torch.cat(list(states))
        counts = [state.shape[0] for state in states]
        answers = [answer for answer, count in zip(live, counts, strict=True) for _ in range(count)]
        places = [len(answer.ids) + i for answer, count in zip(live, counts, strict=True) for i in range(count)]
        values, most = list[Value](), chunk_rows(weight.shape[0], self.device.type)
        for at in range(0, len(answers), most):
            part = slice(at, at + most)
            values += draw_at(places[part], answers[part], logits(together[part], weight))[1]
        return [values[end - count : end] for end, count in zip(accumulate(counts), counts, strict=True)]

    def _take(self, answer: Answer, guess: Sequence[int], values: Sequence[Value]) -> int:
        """Write down the draws up to the first that was not drafted, or that ends the answer; gives how many."""
        for taken, (value, guessed) in enumerate(zip(values, [*guess, None], strict=True), 1):
            answer.add(*value, self.tokenizer)
            if answer.stop or value[0] != guessed:
                return taken
        raise AssertionError("no draw is None")

    def _read_prompts(self, answers: Sequence[Answer]) -> Tensor:
        """Read what is new of each prompt. Conversations that begin alike, as those of a group do, are read once."""
        fed = [self._new_tokens(answer.request) for answer in answers]
        source = self._sources(answers, fed, fed)
        read = sorted(set(source))
        if len(read) == len(answers):
            return self._extend(answers, fed)
        states = self._extend([answers[i] for i in read], [fed[i] for i in read])
        self._copy(answers, source)
        place = {number: at for at, number in enumerate(read)}
        return states[self._tensor(np.array([place[i] for i in source]))]

    def _sources(self, answers: Sequence[Answer], news: Sequence[list[int]], fed: Sequence[list[int]]) -> list[int]:
        """Which answer's pass gives what is fed to each: the first of those that begin alike, else its own."""
        first: dict[object, int] = {}
        # one that goes on from what is held is like no other
        keys = [
            tuple(tokens) if len(new) == len(answer.request.prompt) and not answer.ids else i
            for i, (answer, new, tokens) in enumerate(zip(answers, news, fed, strict=True))
        ]
        return [first.setdefault(key, i) for i, key in enumerate(keys)]

    def _copy(self, answers: Sequence[Answer], source: Sequence[int]) -> None:
        """Give conversations that begin like another what was read of that one."""
        rows = [self._rows[answer.request.slot] for answer in answers]
        copies = [(rows[source[i]], rows[i]) for i in range(len(answers)) if source[i] != i]
        if copies:
            assert self._cache is not None
            self._cache.copy(*self._tensor(np.array(copies).T))

    def _new_tokens(self, request: Request) -> list[int]:
        held = self._held[request.slot]
        continues, new = split_prefix(held, request.prompt)
        if held and not continues:
            assert self._cache is not None
            self._cache.lengths[self._rows[request.slot]] = 0
        return new

    def _extend(self, live: Sequence[Answer], fed: Sequence[Sequence[int]]) -> Tensor:
        """Read what is fed to the live conversations; gives the state after each one's last token."""
        width = max(len(tokens) for tokens in fed)
        rows = [self._rows[answer.request.slot] for answer in live]
        if width == 1 and self._graphed:
            ids, counts = np.zeros((2, len(self._rows)), dtype=np.int64)
            ids[rows], counts[rows] = [tokens[0] for tokens in fed], 1
            hidden = self._through_graph(self._tensor(ids), self._tensor(counts))
            if hidden is not None:
                return hidden[self._tensor(np.array(rows))]
        parts = _of_like_width([len(tokens) for tokens in fed])
        states = [self._read([live[i] for i in part], [fed[i] for i in part]) for part in parts]
        order = np.argsort(np.concatenate(parts))
        return states[0] if len(parts) == 1 else torch.cat(states)[self._tensor(order)]

    def _through_graph(self, ids_R: Tensor, counts_R: Tensor) -> Tensor | None:
        """None if the model cannot be recorded, because it waits for the device on its way: then without graphs."""
        assert self._graphed is not None
        try:
            return self._graphed(ids_R, counts_R, self._reach)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            self._graphs, self._graphed = False, None
            return None

    def _read(self, live: Sequence[Answer], fed: Sequence[Sequence[int]]) -> Tensor:
        """One pass over these conversations, the shorter pieces padded to the longest."""
        ids, counts, where, width = self._padded(live, fed)
        # padding behind a short piece reaches as far as that conversation and the widest piece together
        seen = max(len(a.request.prompt) + len(a.ids) - len(t) for a, t in zip(live, fed, strict=True)) + width
        assert self._cache is not None
        with self.policy.compute():
            return self.model.extend(self._cache, ids, counts, where, seen)

    def _padded(
        self, live: Sequence[Answer], fed: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor, Tensor | None, int]:
        """The pieces padded to the longest, their lengths, the rows that they belong to (None: all), and the width."""
        rows = [self._rows[answer.request.slot] for answer in live]
        width = max(len(tokens) for tokens in fed)
        padded = np.full((len(fed), width), self.tokenizer.pad_id, dtype=np.int64)
        for i, tokens in enumerate(fed):
            padded[i, : len(tokens)] = tokens
        everyone = len(rows) == len(self._rows) and rows == sorted(rows)
        where = None if everyone else self._tensor(np.array(rows))
        counts = self._tensor(np.array([len(tokens) for tokens in fed]))
        return self._tensor(padded), counts, where, width

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def _end(answer: Answer) -> list[int]:
    """The last tokens of a conversation."""
    missing = REACH - len(answer.ids)
    return [*answer.request.prompt[-missing:], *answer.ids] if missing > 0 else answer.ids[-REACH:]


def _most_drafted(answer: Answer) -> int:
    """A draw follows the last of them. A rule that chooses temperatures has to see each token before the next."""
    return 0 if answer.request.temperature_of else len(answer.request.uniforms) - len(answer.ids) - 1


def _of_like_width(widths: Sequence[int]) -> list[list[int]]:
    """Which pieces to read together. One conversation that begins anew must not pad all others to its length."""
    limit = max(64.0, 4 * float(np.median(widths)))
    parts = [[i for i, w in enumerate(widths) if w <= limit], [i for i, w in enumerate(widths) if w > limit]]
    return [part for part in parts if part]
