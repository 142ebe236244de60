"""Products and goals for the tests, and the official files where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isentrope.worlds.webshop.products import Product
from isentrope.worlds.webshop.reward import Goal

DATA = Path(__file__).parents[4] / "shared" / "data" / "webshop"
PRODUCTS, ATTRIBUTES = DATA / "products_1000.json.zst", DATA / "items_ins_v2_1000.json"
official = pytest.mark.skipif(not PRODUCTS.is_file(), reason=f"WebShop's 1,000 products are not at {DATA}")

SHIRT = Product(
    asin="B000000001",
    title="Marlo Cotton Shirt, Long Sleeve",
    description="A shirt for cool mornings.",
    bullets=("Easy care fabric.", "Two pockets."),
    price=24.5,
    price_tag="$24.5",
    rating="4.1",
    category="fashion",
    query="cotton shirt",
    product_category="Fashion › Men › Shirts",
    options={"color": ("navy blue", "red"), "size": ("small", "large")},
    attributes=("long sleeve", "machine wash"),
)
GOAL = Goal(
    text="a long sleeve shirt",
    attributes=("long sleeve", "machine wash"),
    options=("navy blue", "large"),
    price_limit=40.0,
    product=SHIRT,
)


def product(number: int = 0, **changes: Any) -> Product:
    return replace(SHIRT, asin=f"B{number:09d}", **changes)


class Shelf:
    """A stock whose search finds everything, in order."""

    def __init__(self, *products: Product) -> None:
        self.products = products

    def product(self, position: int) -> Product:
        return self.products[position]

    def search(self, query: str, count: int) -> list[int]:
        return list(range(len(self.products)))[:count] if query != "nothing" else []
