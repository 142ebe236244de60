"""A response while it is being sampled, and how its next token is drawn from logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from isentrope.agent.tokens import Dialect
from isentrope.policy.engine import TAIL_BYTES, Request, Sampled


@dataclass
class Answer:
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

    def needs_entropy(self) -> bool:
        rule = self.request.temperature_of
        return rule is not None and rule.needs_entropy

    def add(self, token: int, logprob: float, entropy: float, temperature: float, dialect: Dialect) -> None:
        """One token more; `stop` says whether it was the last, and why."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)
        self.temperatures.append(temperature)
        self.tail = (self.tail + dialect.pieces([token])[0])[-TAIL_BYTES:]
        if token in dialect.eos_ids:
            self.stop = "eos"
        elif self.request.stop(self.tail):
            self.stop = "tag"
        elif len(self.ids) == len(self.request.uniforms):
            self.stop = "length"

    def sampled(self) -> Sampled:
        return Sampled(
            ids=np.array(self.ids, dtype=np.int32),
            logprobs=np.array(self.logprobs, dtype=np.float32),
            entropies=np.array(self.entropies, dtype=np.float32),
            temperatures=np.array(self.temperatures, dtype=np.float32),
            stop=self.stop,
        )


def draw_next(answers: Sequence[Answer], logits: Tensor, dialect: Dialect) -> Tensor:
    """Draw the next token of each answer from its row of raw logits and write it down; gives the tokens.

    Temperature, log-prob, entropy and draw all come from the same distribution; of a greedy token (temperature 0)
    log-prob and entropy are those at temperature 1. Three numbers a token go to the host.
    """
    device = logits.device
    chosen = [a.next_temperature(h) for a, h in zip(answers, _base_entropies(answers, logits), strict=True)]
    temperatures = torch.tensor([t or 1.0 for t in chosen], device=device)
    words = torch.log_softmax(logits.float() / temperatures[:, None], dim=-1)
    p = words.exp()
    entropy = _entropy(words)
    uniforms = [answer.request.uniforms[len(answer.ids)] for answer in answers]
    precise = torch.float32 if device.type == "mps" else torch.float64  # mps has no float64
    tokens = draw(p, torch.tensor(uniforms, dtype=precise, device=device))
    if 0 in chosen:
        greedy = torch.tensor([t == 0 for t in chosen], device=device)
        tokens = torch.where(greedy, words.argmax(-1), tokens)
    logp = words.gather(1, tokens[:, None]).squeeze(1)
    # float32 holds every id up to 16 million exactly, so ids and numbers travel together: one wait for the device
    values = cast("list[list[float]]", torch.stack([tokens.float(), logp, entropy]).tolist())
    for answer, token, token_logp, token_entropy, t in zip(answers, *values, chosen, strict=True):
        answer.add(int(token), token_logp, token_entropy, t, dialect)
    return tokens


def _base_entropies(answers: Sequence[Answer], logits: Tensor) -> list[float]:
    """Of the next token of each answer at its plan's temperature; 0 where no rule asks for it."""
    if not any(answer.needs_entropy() for answer in answers):
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
