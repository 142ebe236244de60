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
from typing import cast

import numpy as np
import torch
from torch import Tensor

from isentrope.agent.context import split_prefix
from isentrope.policy.engine import Request, Sampled
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
        self._cache: Cache | None = None
        self._rows: dict[int, int] = {}  # slot -> row of the cache
        self._held: dict[int, list[int]] = {}  # slot -> tokens whose keys and values the cache holds

    def open(self, slots: Sequence[int]) -> None:
        """Begin with these conversations, all empty. Whatever was held before is forgotten."""
        self._cache = self.model.new_cache(len(slots))
        self._rows = {slot: row for row, slot in enumerate(slots)}
        self._held = {slot: [] for slot in slots}

    def keep(self, slots: Sequence[int]) -> None:
        """Forget every conversation but these, once that frees a good part of the batch."""
        if len(slots) <= 0.75 * len(self._rows) and slots:
            assert self._cache is not None
            self._cache.keep(torch.tensor([self._rows[slot] for slot in slots], device=self.device))
            self._rows = {slot: row for row, slot in enumerate(slots)}
            self._held = {slot: self._held[slot] for slot in slots}

    def refresh(self) -> None:
        """Nothing to do: the engine samples from the policy's own weights."""

    def notes(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self._cache = None

    @torch.no_grad()
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        if not any(split_prefix(self._held[r.slot], r.prompt)[0] for r in requests):
            self.open(list(self._rows))  # every conversation begins anew: nothing of the old ones is worth keeping
        answers = [_Answer(request, self._rows[request.slot]) for request in requests]
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
        width = max(len(tokens) for tokens in fed)
        padded = np.full((len(fed), width), self.dialect.pad_id, dtype=np.int64)
        for i, tokens in enumerate(fed):
            padded[i, : len(tokens)] = tokens
        counts = torch.tensor([len(tokens) for tokens in fed], device=self.device)
        rows = [answer.row for answer in live]
        everyone = len(rows) == len(self._rows) and rows == sorted(rows)
        where = None if everyone else torch.tensor(rows, device=self.device)
        with self.policy.compute():
            return self.model.extend(self._cache, torch.from_numpy(padded).to(self.device), counts, where)

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
