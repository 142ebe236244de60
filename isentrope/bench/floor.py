"""The least time that a card needs for a sampling work: what must be multiplied, and what must be read.

Prompts are bound by products, single tokens by reading all weights and the cache once for each step. Nothing else is
counted: no norms, no draws, no host, no start of a kernel. So no engine that computes in bfloat16 is quicker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isentrope.bench.sampling import SamplingWork
from isentrope.cluster.plan.cards import H200_COPY, H200_PRODUCTS

BYTES = 2  # of a number in bfloat16


@dataclass(frozen=True)
class Card:
    bandwidth: float  # bytes a second, read and written, of a large copy
    products: float  # operations a second of a large product in bfloat16


CARDS = {"H200": Card(H200_COPY, H200_PRODUCTS)}
"""Measured, not taken from a sheet. By what the card's name contains."""


@dataclass(frozen=True)
class Sizes:
    """What a pass of a model costs."""

    layers: int  # weights of all layers' products
    head: int
    seen: int  # operations for each pair of a token and one that it sees
    cache: int  # bytes that a token of a conversation takes in the cache

    @classmethod
    def of(cls, config: Any) -> Sizes:
        """Of a config as transformers has it."""
        width, heads, kv = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        size = getattr(config, "head_dim", None) or width // heads
        each = width * size * (2 * heads + 2 * kv) + 3 * width * config.intermediate_size
        count = config.num_hidden_layers
        return cls(count * each, config.vocab_size * width, 4 * count * heads * size, 2 * count * kv * size * BYTES)


def least_seconds(sizes: Sizes, work: SamplingWork, card: Card) -> float:
    """For all turns of all conversations."""
    seconds, held = 0.0, 0.0  # tokens of a conversation in the cache, at the mean
    for turn in range(work.turns):
        fresh = (work.shortest + work.longest) / 2 if turn == 0 else work.read + 1  # with the last one that was said
        seen = fresh * held + fresh * (fresh + 1) / 2
        read = 2 * sizes.layers * fresh + 2 * sizes.head + sizes.seen * seen
        seconds += max(work.conversations * read / card.products, (sizes.layers + sizes.head) * BYTES / card.bandwidth)
        held += fresh
        for _ in range(work.new - 1):  # the first follows the prompt
            held += 1
            seconds += _step(sizes, work.conversations, held, card)
    return seconds


def _step(sizes: Sizes, conversations: int, held: float, card: Card) -> float:
    """One token of each conversation."""
    weights = sizes.layers + sizes.head
    read = (weights * BYTES + conversations * held * sizes.cache) / card.bandwidth
    return max(read, conversations * (2 * weights + sizes.seen * held) / card.products)


def card_named(name: str) -> Card | None:
    return next((card for part, card in CARDS.items() if part in name), None)
