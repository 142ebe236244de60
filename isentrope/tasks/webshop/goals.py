"""What the shopper is sent for: a product's wish, options and a price limit, in one sentence."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from isentrope.tasks.webshop.products import Product

SHUFFLE_SEED = 233
NO_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * step for step in range(1, 100))  # price limits: 10, 20, ..., 990 dollars


@dataclass(frozen=True)
class Goal:
    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_limit: float
    product: Product  # the one that the wish was written for


def price_limit(product: Product) -> float:
    """The larger of two different ones among the first four multiples of ten above the price; drawn once a product."""
    above = [limit for limit in _LIMITS if limit > product.price][:4]
    return max(random.Random(f"limit {product.asin}").sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def goal_count(product: Product) -> int:
    """How many goals the product has: one per wish with options of its own, else one per combination of options."""
    combinations = 1
    for values in product.options.values():
        combinations *= len(values)
    return sum(combinations if wish.options is None else 1 for wish in product.wishes)


def goal_of(product: Product, number: int) -> Goal:
    """Goal `number` of the product's goals."""
    limit = price_limit(product)
    ending = f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""
    for wish in product.wishes:
        choices = product.combinations() if wish.options is None else [None]
        if number >= len(choices):
            number -= len(choices)
            continue
        chosen = choices[number]
        if chosen is None:
            return Goal(wish.text + ending, wish.attributes, wish.options or (), limit, product)
        words = ", and ".join(f"{name}: {value}" for name, value in chosen.items())
        text = wish.text + (f" with {words}" if words else "") + ending
        return Goal(text, wish.attributes, tuple(chosen.values()), limit, product)
    raise IndexError(number)


def shuffled(count: int) -> array[int]:
    """The order in which goals are numbered: the same shuffle as the original's."""
    order = array("I", range(count))
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def count_attributes(product: Product, counts: Counter[str]) -> None:
    """Add to `counts` how many goals of the product ask for each attribute."""
    for wish in product.wishes:
        goals = goal_count(replace(product, wishes=(wish,)))
        for attribute in wish.attributes:
            counts[attribute] += goals


def weight(attributes: Sequence[str], counts: Mapping[str, int]) -> float:
    """A synthetic goal's weight, if goals are drawn by weight: the rarer its attributes, the larger."""
    return sum(1 / counts[one] for one in attributes) / len(attributes)
