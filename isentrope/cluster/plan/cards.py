"""Cards by their datasheets, and the ceilings that were measured on one of them."""

from __future__ import annotations

from dataclasses import dataclass

from isentrope.config.suggest import nearest
from isentrope.core.errors import ConfigError

GIB = 2.0**30
H200_COPY = 4.3e12
"""Bytes a second, read and written, of a large copy on an H200: measured, not taken from a sheet."""
H200_PRODUCTS = 790e12
"""Operations a second of a large product in bfloat16 there: measured."""


@dataclass(frozen=True)
class Card:
    """As its maker's datasheet has it; products in bfloat16 without sparsity."""

    name: str
    title: str
    memory: float  # bytes that programs get of it
    bandwidth: float  # bytes a second
    products: float  # operations a second
    link: float  # bytes a second to another card of its node, one way
    network: float = 50e9  # bytes a second and card to another node, one way: 400 Gbit/s
    node: int = 8  # cards

    def between(self, cards: int) -> float:
        """Bytes a second of the slowest way among so many."""
        return self.link if cards <= self.node else min(self.link, self.network)


CARDS = {
    card.name: card
    for card in (
        Card("h200", "NVIDIA H200 SXM", 140 * GIB, 4.8e12, 989e12, 450e9),
        Card("h100", "NVIDIA H100 SXM", 79 * GIB, 3.35e12, 989e12, 450e9),
        Card("h100-pcie", "NVIDIA H100 PCIe", 79 * GIB, 2.0e12, 756e12, 64e9),
        Card("h20", "NVIDIA H20", 95 * GIB, 4.0e12, 148e12, 450e9),
        Card("b200", "NVIDIA B200", 179 * GIB, 7.7e12, 2250e12, 900e9),
        Card("a100", "NVIDIA A100 80GB SXM", 79 * GIB, 2.039e12, 312e12, 300e9),
        Card("a100-40gb", "NVIDIA A100 40GB SXM", 39 * GIB, 1.555e12, 312e12, 300e9),
        Card("l40s", "NVIDIA L40S", 45 * GIB, 0.864e12, 362e12, 32e9),
        Card("l4", "NVIDIA L4", 22 * GIB, 0.3e12, 121e12, 32e9),
        Card("rtx4090", "NVIDIA GeForce RTX 4090", 23.5 * GIB, 1.008e12, 165e12, 32e9),
    )
}
MEASURED = "h200"
"""The card whose rates were measured; those of all others are scaled from it by datasheet."""


def _guess(name: str) -> str:
    found = nearest(name, CARDS)
    return f"; did you mean {found}?" if found else "."


def card_named(name: str) -> Card:
    found = CARDS.get(name.lower())
    if found is None:
        raise ConfigError(f"--card {name}: no such card{_guess(name)} Known are {', '.join(CARDS)}; rates of "
                          "another one are read from a file (--rates)")  # fmt: skip
    return found


def this_machine(memory: int) -> Card:
    """One machine's CPU, whose rates were measured: nothing of it is looked up."""
    return Card("cpu", "this machine's CPU", float(memory), 1.0, 1.0, 1.0)
