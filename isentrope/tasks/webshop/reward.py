"""How well a purchase fits a goal: R = r_type · (attributes + options + price) / (all that was asked for)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from isentrope.tasks.needs import require
from isentrope.tasks.webshop.goals import Goal
from isentrope.tasks.webshop.products import Product

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
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
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
    fuzz, utils = _rapidfuzz()
    return round(fuzz.token_set_ratio(one, other, processor=utils.default_process)) > CLOSE


def _places(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


@lru_cache(maxsize=20_000)
def _nouns(title: str) -> tuple[str, ...]:
    tag: Any = require("textblob.en", "webshop", "the reward of the webshop").tag
    return tuple(word.lower() for word, kind in tag(title) if kind.startswith("NN"))


@lru_cache(maxsize=1)
def _rapidfuzz() -> tuple[Any, Any]:
    return (
        require("rapidfuzz.fuzz", "webshop", "the reward of the webshop"),
        require("rapidfuzz.utils", "webshop", "the reward of the webshop"),
    )
