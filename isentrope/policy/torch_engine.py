"""The torch engine: samples many conversations at once, their keys and values kept from turn to turn.

`sample` takes for each conversation all tokens before the response. What the engine already holds of a
conversation is not computed again: if the prompt starts with it (the prefix rule), only the rest is read.
Every sampled token comes with its exact log-prob and the entropy of the distribution it was drawn from.
Tokens are drawn by inverse CDF from uniform numbers that belong to the conversation, so a sample does not depend
on which other conversations happen to be in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.agent.context import split_prefix
from isentrope.policy.engine import Request, Sampled
from isentrope.policy.graphed import GraphedDecoder
from isentrope.policy.head import log_probs
from isentrope.policy.policy import Cache, Policy

TAIL_BYTES = 64  # what a stop rule may look back on


@dataclass
class _Answer:
    request: Request
    row: int
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    entropies: list[float] = field(default_factory=list[float])
    temperatures: list[float] = field(default_factory=list[float])
    tail: bytes = b""
    stop: str = ""

    def next_temperature(self, entropy: float) -> float:
        rule = self.request.temperature_of
        return rule(self.ids, entropy) if rule else self.request.temperature


class TorchEngine:
    def __init__(self, policy: Policy) -> None:
        self.policy, self.model, self.dialect, self.device = policy, policy.model, policy.dialect, policy.device
        if self.device.type == "cuda":
            # cuDNN's attention plans anew for every shape, 90 ms each, and lengths change with every token
            torch.backends.cuda.enable_cudnn_sdp(False)
        self._cache: Cache | None = None
        self._graphed: GraphedDecoder | None = None
        self._reach = 0  # columns of the cache that a turn may touch
        self._rows: dict[int, int] = {}  # slot -> row of the cache
        self._held: dict[int, list[int]] = {}  # slot -> tokens whose keys and values the cache holds

    def open(self, slots: Sequence[int]) -> None:
        """Begin with these conversations, all empty. Whatever was held before is forgotten."""
        self._hold(self.model.new_cache(len(slots)), len(slots))
        self._rows = {slot: row for row, slot in enumerate(slots)}
        self._held = {slot: [] for slot in slots}

    def _hold(self, cache: Cache, rows: int) -> None:
        self._cache = cache
        # a new graph only when there is a new cache: the old one's memory goes back first
        self._graphed = GraphedDecoder(self.policy, cache, rows) if self.device.type == "cuda" else None

    def keep(self, slots: Sequence[int]) -> None:
        """Forget every conversation but these, once that frees a good part of the batch."""
        if len(slots) <= 0.75 * len(self._rows) and slots:
            assert self._cache is not None
            self._cache.keep(self._tensor(np.array([self._rows[slot] for slot in slots])))
            self._hold(self._cache, len(slots))
            self._rows = {slot: row for row, slot in enumerate(slots)}
            self._held = {slot: self._held[slot] for slot in slots}

    def refresh(self) -> None:
        """Nothing to do: the engine samples from the policy's own weights."""

    def notes(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self._cache = self._graphed = None

    @torch.no_grad()
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        answers = [_Answer(request, self._rows[request.slot]) for request in requests]
        # as far as any row may write in this turn; rows that stand still write behind their end
        self._reach = max(*map(len, self._held.values()), *(len(r.prompt) + len(r.uniforms) for r in requests)) + 1
        fed = [self._new_tokens(request) for request in requests]
        live = answers
        while live:
            hidden = self._extend(live, fed)
            self._draw(live, hidden)
            live = [answer for answer in live if not answer.stop]
            fed = [answer.ids[-1:] for answer in live]
        for answer in answers:
            # The last token was drawn but never read: the next prompt begins with it.
            self._held[answer.request.slot] = [*answer.request.prompt, *answer.ids[:-1]]
        return [_finished(answer) for answer in answers]

    def _new_tokens(self, request: Request) -> list[int]:
        held = self._held[request.slot]
        continues, new = split_prefix(held, request.prompt)
        if held and not continues:
            assert self._cache is not None
            self._cache.lengths[self._rows[request.slot]] = 0
        return new

    def _extend(self, live: Sequence[_Answer], fed: Sequence[Sequence[int]]) -> Tensor:
        """Read what is fed to the live conversations; gives the state after each one's last token."""
        width = max(len(tokens) for tokens in fed)
        rows = [answer.row for answer in live]
        if width == 1 and self._graphed:
            ids, counts = np.zeros((2, len(self._rows)), dtype=np.int64)
            ids[rows], counts[rows] = [tokens[0] for tokens in fed], 1
            hidden = self._graphed(self._tensor(ids), self._tensor(counts), self._reach)
            return hidden[self._tensor(np.array(rows))]
        parts = _of_like_width([len(tokens) for tokens in fed])
        states = [self._read([live[i] for i in part], [fed[i] for i in part]) for part in parts]
        order = np.argsort(np.concatenate(parts))
        return states[0] if len(parts) == 1 else torch.cat(states)[self._tensor(order)]

    def _read(self, live: Sequence[_Answer], fed: Sequence[Sequence[int]]) -> Tensor:
        """One pass over these conversations, the shorter pieces padded to the longest."""
        rows = [answer.row for answer in live]
        width = max(len(tokens) for tokens in fed)
        padded = np.full((len(fed), width), self.dialect.pad_id, dtype=np.int64)
        for i, tokens in enumerate(fed):
            padded[i, : len(tokens)] = tokens
        everyone = len(rows) == len(self._rows) and rows == sorted(rows)
        where = None if everyone else self._tensor(np.array(rows))
        counts = self._tensor(np.array([len(tokens) for tokens in fed]))
        # padding behind a short piece reaches as far as that conversation and the widest piece together
        seen = max(len(a.request.prompt) + len(a.ids) - len(t) for a, t in zip(live, fed, strict=True)) + width
        with self.policy.compute():
            return self.model.extend(self._cache, self._tensor(padded), counts, where, seen)

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def _entropies(self, live: Sequence[_Answer], hidden: Tensor) -> list[float]:
        """Of the next token of each response at its own base temperature; 0 where no rule asks for it."""
        rules = [answer.request.temperature_of for answer in live]
        if not any(rule and rule.needs_entropy for rule in rules):
            return [0.0] * len(live)
        base = torch.tensor([answer.request.temperature or 1.0 for answer in live], device=self.device)
        words = log_probs(hidden, self.model.head_weight(), base)
        return cast("list[float]", (-(words.exp() * words).sum(-1)).tolist())

    def _draw(self, live: Sequence[_Answer], hidden: Tensor) -> None:
        chosen = [a.next_temperature(h) for a, h in zip(live, self._entropies(live, hidden), strict=True)]
        greedy = np.array([t == 0 for t in chosen])
        temperatures = torch.tensor([t or 1.0 for t in chosen], device=self.device)
        words = log_probs(hidden, self.model.head_weight(), temperatures)
        p = words.exp()
        entropy = -(p * words).sum(-1)
        precise = torch.float32 if self.device.type == "mps" else torch.float64  # mps has no float64
        uniforms = torch.tensor([a.request.uniforms[len(a.ids)] for a in live], dtype=precise, device=self.device)
        tokens = draw(p, uniforms)
        if greedy.any():
            tokens = torch.where(torch.from_numpy(greedy).to(self.device), words.argmax(-1), tokens)
        logp = words.gather(1, tokens[:, None]).squeeze(1)
        values = cast("list[list[float]]", torch.stack([logp, entropy, temperatures]).tolist())
        chosen_ids = cast("list[int]", tokens.tolist())
        for answer, token, token_logp, token_entropy, temperature in zip(live, chosen_ids, *values, strict=True):
            answer.ids.append(token)
            answer.logprobs.append(token_logp)
            answer.entropies.append(token_entropy)
            answer.temperatures.append(temperature)
            answer.tail = (answer.tail + self.dialect.pieces([token])[0])[-TAIL_BYTES:]
            if token in self.dialect.eos_ids:
                answer.stop = "eos"
            elif answer.request.stop(answer.tail):
                answer.stop = "tag"
            elif len(answer.ids) == len(answer.request.uniforms):
                answer.stop = "length"


def _of_like_width(widths: Sequence[int]) -> list[list[int]]:
    """Which pieces to read together. One conversation that begins anew must not pad all others to its length."""
    limit = max(64.0, 4 * float(np.median(widths)))
    parts = [[i for i, w in enumerate(widths) if w <= limit], [i for i, w in enumerate(widths) if w > limit]]
    return [part for part in parts if part]


def draw(p: Tensor, uniforms: Tensor) -> Tensor:
    """The word at which the cumulative probability passes each row's uniform number.

    Summed in the uniforms' precision and scaled to the true total: no uniform number falls beyond the last word.
    """
    total = p.to(uniforms.dtype).cumsum(-1)
    target = (uniforms * total[:, -1])[:, None]
    token = torch.searchsorted(total, target, right=True).squeeze(1)
    last = p.shape[1] - 1 - (p > 0).flip(-1).int().argmax(-1)
    return torch.minimum(token, last)


def _finished(answer: _Answer) -> Sampled:
    return Sampled(
        ids=np.array(answer.ids, dtype=np.int32),
        logprobs=np.array(answer.logprobs, dtype=np.float32),
        entropies=np.array(answer.entropies, dtype=np.float32),
        temperatures=np.array(answer.temperatures, dtype=np.float32),
        stop=answer.stop,
    )
