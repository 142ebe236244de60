"""Seconds of one pass of a model on one card: read prompts, draw tokens, score, learn, send weights.

A pass is bound by its products, by what it reads from the card's memory, and by starting its kernels. Products and the
reading of weights overlap (the larger counts); attention over the cache, activations and starts come on top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isentrope.cluster.plan.rates import Rates
from isentrope.engines.native.sizes import MOST_RECORDED, bucket, most_recorded, padded
from isentrope.models.sources.catalogue import Facts

LOGITS = 6  # bytes that each logit of a drawn token is written and read with
ADAMW = 30  # bytes that an update moves for each parameter: gradient, copy, two moments, weight
SYNC = 0.02  # seconds of a weight sync besides its bytes: orders, checksums, a probe. Assumed
ADAPTED = (0.9, 1.11)  # rates of sampling and learning with adapters to those without: measured at 1.5 billion


@dataclass(frozen=True)
class Model:
    """What of a model decides how long its passes take."""

    layers: int
    body: float  # weights of all layers' products
    head: float
    queries: int  # numbers of a token's queries in a layer
    kv: int  # numbers that it leaves in the cache, per layer
    width: int
    inner: int
    vocabulary: int
    parameters: int
    adapters: bool = False
    adapted: int = 0  # numbers of the adapters

    @classmethod
    def of(cls, facts: Facts, lora_rank: int = 0) -> Model:
        queries = facts.heads * facts.head_width or facts.width
        each = facts.width * (2 * queries + facts.kv_width) + 3 * facts.width * facts.inner
        return cls(
            facts.layers, float(facts.layers * each), float(facts.vocabulary * facts.width), queries, facts.kv_width,
            facts.width, facts.inner, facts.vocabulary, facts.parameters, lora_rank > 0, lora_rank * facts.linear_edges,
        )  # fmt: skip

    @property
    def moved(self) -> float:
        """Numbers that a token's activations are, as they go in and out of kernels."""
        return self.layers * (12.0 * self.width + 5.0 * self.inner)

    @property
    def learning(self) -> int:
        """Numbers that learn."""
        return self.adapted if self.adapters else self.parameters


@dataclass(frozen=True)
class Costs:
    """Of one model on one card."""

    model: Model
    rates: Rates

    @property
    def _sampling(self) -> float:
        return 1 / ADAPTED[0] if self.model.adapters else 1.0

    def read(self, tokens: float, seen: float, responses: int) -> float:
        """Prompts of so many tokens, which see `seen` tokens in all; the first token of each response is drawn."""
        m, r = self.model, self.rates
        if not tokens:
            return responses * r.response
        passes = math.ceil(tokens / MOST_RECORDED)
        tokens = self._padded(tokens)
        products = (2 * m.body * tokens + 2 * m.head * responses) / r.products
        weights = passes * r.number * m.body / r.bandwidth
        seconds = max(passes * m.layers * r.smallest, products, weights) + passes * m.layers * r.layer
        seconds += 4 * m.layers * m.queries * seen / r.products
        seconds += r.traffic * r.number * m.moved * tokens / r.bandwidth + responses * self._row()
        return self._sampling * seconds + responses * r.response

    def _padded(self, tokens: float) -> float:
        """As the native engine pads its passes; those before the last are full."""
        last = tokens % MOST_RECORDED
        if self.rates.padding == "none" or not last:
            return tokens
        if self.rates.padding == "all":
            return tokens - last + bucket(max(64, math.ceil(last)))
        return tokens - last + padded(math.ceil(last), most_recorded(int(self.model.body)))

    def draw(self, rows: int, held: float) -> float:
        """One token of each of so many conversations, which have `held` tokens in the cache together."""
        m, r = self.model, self.rates
        weights = m.body + m.head
        products = max(m.layers * r.smallest, r.number * weights / r.bandwidth, 2 * rows * weights / r.drawing)
        cache = held * r.number * m.layers * m.kv / r.bandwidth
        return self._sampling * (m.layers * r.layer + products + cache + rows * self._row())

    def _row(self) -> float:
        return self.rates.row + LOGITS * self.model.vocabulary / self.rates.bandwidth

    def score(self, tokens: float, written: float, seen: float) -> float:
        """A forward pass over conversations of so many tokens, of which `written` are the model's."""
        m, r = self.model, self.rates
        products = 2 * m.body * tokens + 4 * m.layers * m.queries * seen + 2 * m.head * written
        return products / r.learning + r.moved / 3 * r.number * m.moved * tokens / r.bandwidth

    def learn(self, tokens: float, written: float, seen: float, twice: bool = False) -> float:
        """Forward and backward; the head computes its logits twice."""
        m, r = self.model, self.rates
        body = 2 * m.body * tokens + 4 * m.layers * m.queries * seen
        products = (4 if twice else 3) * body + 4 * 2 * m.head * written
        seconds = products / r.learning + r.moved * r.number * m.moved * tokens / r.bandwidth
        return seconds / (ADAPTED[1] if m.adapters else 1.0)

    def starts(self, pieces: int) -> float:
        """Of so many passes of scoring or learning: what each takes whatever it computes."""
        return pieces * self.rates.piece

    def optimise(self, shards: int = 1) -> float:
        """AdamW, each card on its part."""
        return ADAMW * self.model.learning / shards / self.rates.bandwidth

    def gather(self, shards: int, link: float, passes: int, sharded: bool) -> float:
        """Seconds in which learning cards tell each other: gradients summed once for an update, weights handed round;
        with sharded weights those are gathered twice in every pass and gradients are summed in each."""
        if shards == 1:
            return 0.0
        away, learnt = (shards - 1) / shards, self.model.learning
        once = 4 * learnt + self.rates.number * learnt
        each = passes * (2 * self.rates.number * self.model.parameters + 4 * learnt)
        return away * (each if sharded else once) / link

    def send(self, link: float) -> float:
        """New weights to samplers on other cards, which hand them on while they get them; `link` 0: on this card."""
        sent = self.rates.number * (self.model.adapted or self.model.parameters)
        return SYNC + sent / (link or self.rates.bandwidth / 2)
