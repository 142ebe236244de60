"""Goals, and the reward of a purchase: R = r_type · (attributes + options + price) / (all that was asked for)."""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from isentrope.core.needs import require
from isentrope.worlds.webshop.products import Product

SHUFFLE_SEED = 233
NO_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * step for step in range(1, 100))  # price limits: 10, 20, ..., 990 dollars


@dataclass(frozen=True)
class Goal:
    """What the shopper is sent for: a product's wish, options and a price limit, in one sentence."""

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
    combinations = math.prod(map(len, product.options.values()))
    return sum(combinations if wish.options is None else 1 for wish in product.wishes)


def goal_of(product: Product, number: int) -> Goal:
    """Goal `number` of the product's goals."""
    limit = price_limit(product)
    ending = f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""
    for wish in product.wishes:
        choices = product.combinations() if wish.options is None else [dict[str, str]()]
        if number < len(choices):
            words = ", and ".join(f"{name}: {value}" for name, value in choices[number].items())
            text = wish.text + (f" with {words}" if words else "") + ending
            options = tuple(choices[number].values()) if wish.options is None else wish.options
            return Goal(text, wish.attributes, options, limit, product)
        number -= len(choices)
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


CLOSE = 85  # two texts match from a token-set ratio above this, in whole per cent

# A value that contains one of these words counts as that colour; the first in the alphabet wins. They are CSS's colour
# names of one word. The original has a list of its own, which its licence keeps out of this package.
_COLOUR_WORDS = """
aqua azure beige bisque black blue brown chartreuse chocolate coral cornsilk crimson cyan fuchsia gainsboro gold
goldenrod gray green grey honeydew indigo ivory khaki lavender lime linen magenta maroon moccasin navy olive orange
orchid peru pink plum purple red salmon seashell sienna silver snow tan teal thistle tomato turquoise violet wheat white
yellow
"""
COLOURS = tuple(_COLOUR_WORDS.split())


@dataclass(frozen=True)
class Score:
    """The reward and what it is made of."""

    reward: float
    type_factor: float  # 1, 0.5, 0.1 or 0: is it the right kind of product?
    attributes: int  # of the goal's, found in the product
    options: int  # of the goal's, among those chosen
    price: bool  # within the limit

    @property
    def perfect(self) -> bool:
        return self.reward >= 1.0


def score(goal: Goal, bought: Product, chosen: Iterable[str]) -> Score:
    """The score of buying this product with these option values."""
    kind = type_factor(goal, bought)
    attributes = sum(has_attribute(bought, wanted) for wanted in goal.attributes)
    options = matching_options(goal.options, chosen)
    price = bought.price <= goal.price_limit
    asked = len(goal.attributes) + len(goal.options) + 1
    return Score(kind * (attributes + options + price) / asked, kind, attributes, options, price)


def type_factor(goal: Goal, bought: Product) -> float:
    wanted = goal.product
    shared = noun_share(wanted.title, bought.title)
    if shared < 0.1:
        return 0.1 if shared else 0.0
    same_query = wanted.query == bought.query
    same_place = len(_places(wanted) & _places(bought)) >= 2
    return 1.0 if same_query or same_place or shared > 0.2 else 0.5


def noun_share(wanted: str, bought: str) -> float:
    """Share of the wanted title's nouns that stand in the bought title too; 0.2 if it has none."""
    nouns = _nouns(wanted)
    return len(set(nouns) & set(_nouns(bought))) / len(nouns) if nouns else 0.2


def has_attribute(product: Product, wanted: str) -> bool:
    if any(close(own, wanted) for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(wanted in text.lower() for text in texts)


def matching_options(wanted: Iterable[str], chosen: Iterable[str]) -> int:
    """How many of the wanted values some chosen value matches."""
    colours = [colour(value) for value in chosen]
    return sum(any(close(own, colour(value)) for own in colours) for value in wanted)


def colour(value: str) -> str:
    """The colour that the value names, else the value itself."""
    return next((name for name in COLOURS if name in value), value)


@lru_cache(maxsize=100_000)
def close(one: str, other: str) -> bool:
    """Whether the words of one text are, nearly, among those of the other. Case and punctuation do not count."""
    fuzz, utils = (require(f"rapidfuzz.{name}", "webshop", "the reward of the webshop") for name in ("fuzz", "utils"))
    return round(fuzz.token_set_ratio(one, other, processor=utils.default_process)) > CLOSE


def _places(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


@lru_cache(maxsize=20_000)
def _nouns(title: str) -> tuple[str, ...]:
    tag: Any = require("textblob.en", "webshop", "the reward of the webshop").tag
    return tuple(word.lower() for word, kind in tag(title) if kind.startswith("NN"))
