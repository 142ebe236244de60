"""A small shop of invented products, always the same one, so that nothing has to be downloaded."""

from __future__ import annotations

import random
from collections.abc import Iterator

from isentrope.tasks.webshop.products import Product, Wish, draw_price
from isentrope.tasks.webshop.shelves import BRANDS, SHELVES, Shelf

_TRIES = 20  # to find a new wish; where all are taken, the last is used again
EACH = 14  # products of every type
_WISHES = (
    "I am looking for {article} {attributes} {noun}",
    "Find me {article} {noun} that is {attributes}",
    "I would like to buy {article} {noun}, {attributes}",
    "Please get {article} {attributes} {noun} for me",
)
_PRAISE = ("Exactly as described", "Does what it should", "Would buy again", "Good value", "Smaller than expected")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


def generated_products(each: int = EACH) -> Iterator[Product]:
    """All products, shelf by shelf in turn, so that types are mixed as in a real catalogue."""
    wanted: set[frozenset[str]] = set()  # what was asked for already: no two products should have the same goals
    for round_number in range(each):
        for shelf in SHELVES:
            yield _product(shelf, round_number, wanted)


def _product(shelf: Shelf, number: int, wanted: set[frozenset[str]]) -> Product:
    draw = random.Random(f"webshop {shelf.noun} {number}")
    asin = "B0" + "".join(draw.choices(_LETTERS, k=8))
    brand, extra = draw.choice(BRANDS), draw.choice(shelf.extras)
    attributes = tuple(draw.sample(shelf.attributes, draw.randint(3, 4)))
    first, second = attributes[:2]
    title = f"{brand} {shelf.noun.title()} {extra}, {first.title()}, {second.title()}"
    options = {name: _some(draw, values) for name, values in shelf.options.items()}
    low = round(draw.uniform(*shelf.price), 2)
    prices = (low, round(low * draw.uniform(1.1, 1.4), 2)) if draw.random() < 0.1 else (low,)
    return Product(
        asin=asin,
        title=title,
        description=f"The {brand} {shelf.noun} is made for {shelf.use}. It is {_listed(attributes)}.",
        bullets=(f"{first.capitalize()} and {second}.", *(f"{one.capitalize()}." for one in attributes[2:])),
        price=draw_price(asin, prices),
        price_tag=" to ".join(f"${price}" for price in prices),
        rating=f"{draw.uniform(3.2, 5.0):.1f}",
        category=shelf.category,
        query=shelf.noun,
        product_category=f"{shelf.category.title()} › {shelf.place}",
        options=options,
        attributes=attributes,
        reviews=tuple(_review(draw, shelf) for _ in range(draw.randint(0, 2))),
        wishes=(_wish(draw, shelf, attributes, wanted),),
    )


def _some(draw: random.Random, values: tuple[str, ...]) -> tuple[str, ...]:
    """Two to four of an option's values, in their usual order."""
    chosen = set(draw.sample(values, min(len(values), draw.randint(2, 4))))
    return tuple(value for value in values if value in chosen)


def _wish(draw: random.Random, shelf: Shelf, attributes: tuple[str, ...], taken: set[frozenset[str]]) -> Wish:
    wanted: tuple[str, ...] = ()
    tries = 0
    while not wanted or (frozenset((shelf.noun, *wanted)) in taken and tries < _TRIES):
        wanted, tries = tuple(draw.sample(attributes, draw.randint(1, 3))), tries + 1
    taken.add(frozenset((shelf.noun, *wanted)))
    plural = shelf.noun.endswith("s") and not shelf.noun.endswith("ss")
    named = ", ".join(wanted)
    pattern = draw.choice(_WISHES).replace("that is", "that are" if plural else "that is")
    before = named if pattern.index("{attributes}") < pattern.index("{noun}") else shelf.noun
    article = "some" if plural else "an" if before[0] in "aeiou" else "a"
    return Wish(pattern.format(article=article, attributes=named, noun=shelf.noun), wanted)


def _review(draw: random.Random, shelf: Shelf) -> tuple[str, str, str]:
    stars = draw.randint(3, 5)
    return draw.choice(_PRAISE), f"{stars}.0", f"I use my {shelf.noun} for {shelf.use}."


def _listed(items: tuple[str, ...]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"
