"""A product of the shop, read from the official files or generated."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

NO_PRICE = 100.0  # a product without a price costs this much
_NUMBER = re.compile(r"\d[\d,]*\.?\d*|\.\d+")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Wish:
    """What somebody wants of a product, in words. Options None: any combination of its options may be asked for."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Product:
    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    price: float  # what the reward compares with the limit
    price_tag: str  # what the pages show
    rating: str
    category: str
    query: str  # the search that the product was found with
    product_category: str  # its place in the shop's tree: "A › B › C"
    options: dict[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    reviews: tuple[tuple[str, str, str], ...] = ()  # (title, stars, text)
    wishes: tuple[Wish, ...] = ()

    def document(self) -> str:
        """The text that the search looks at."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join((self.title, self.description, first, options)).lower()

    def combinations(self) -> list[dict[str, str]]:
        """Every choice of one value per option, option names in alphabetical order."""
        names = sorted(self.options)
        choices = itertools.product(*(self.options[name] for name in names))
        return [dict(zip(names, values, strict=True)) for values in choices]

    def plain(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        return {**vars(self), "wishes": [vars(wish) for wish in self.wishes]}


def from_plain(data: Mapping[str, Any]) -> Product:
    """The product that `plain` gave, after a trip through JSON."""
    fields: dict[str, Any] = _with_tuples(data)
    fields["wishes"] = tuple(Wish(**wish) for wish in fields["wishes"])
    return Product(**fields)


def _with_tuples(value: Any) -> Any:
    """The same with tuples for lists, at any depth."""
    if isinstance(value, dict):
        return {name: _with_tuples(one) for name, one in cast(Record, value).items()}
    return tuple(map(_with_tuples, cast("list[Any]", value))) if isinstance(value, list) else value


def read_product(record: Record, wishes: tuple[Wish, ...], attributes: tuple[str, ...] | None) -> Product | None:
    """A product of the official file, raw or already processed; None for records that the original leaves out."""
    asin = str(record.get("asin", "nan"))
    if asin == "nan" or len(asin) > 10:
        return None
    prices = _prices(record.get("pricing"))
    found: Any = record.get("small_description") or record.get("BulletPoints") or ""
    bullets = cast("list[Any]", found) if isinstance(found, list) else [found]
    own: Any = record.get("Attributes")
    return Product(
        asin=asin,
        title=str(record.get("name") or record.get("Title") or ""),
        description=str(record.get("full_description") or record.get("Description") or ""),
        bullets=tuple(str(line) for line in bullets),
        price=draw_price(asin, prices),
        price_tag=" to ".join(f"${price}" for price in prices[:2]),
        rating=str(record.get("Rating") or "N.A."),
        category=str(record.get("category") or "unknown"),
        query=str(record.get("query") or "").lower().strip(),
        product_category=str(record.get("product_category") or ""),
        options=_options(record),
        attributes=attributes if attributes is not None else tuple(str(one) for one in own or ("DUMMY_ATTR",)),
        reviews=_reviews(record.get("Reviews")),
        wishes=wishes,
    )


def draw_price(asin: str, prices: Sequence[float]) -> float:
    """The price itself; within a range a price that depends on the product alone."""
    low, high = prices[0], prices[min(1, len(prices) - 1)]
    return random.Random(f"price {asin}").uniform(low, high) if high != low else low


def _prices(pricing: Any) -> tuple[float, ...]:
    """`"$5.99 - $1,099.00"` in the raw file, `[5.99, 1099.0]` in a processed one."""
    numbers: list[Any] = cast("list[Any]", pricing) if isinstance(pricing, list) else []
    if isinstance(pricing, str):
        found = [_NUMBER.search(part) for part in pricing.split("$")[1:]]
        numbers = [one[0].replace(",", "") for one in found if one is not None]
    return tuple(map(float, numbers)) or (NO_PRICE,)


def _options(record: Record) -> dict[str, tuple[str, ...]]:
    raw: Any = record.get("customization_options")
    if isinstance(raw, dict):
        return {
            str(name).lower(): tuple(str(one["value"]).strip().replace("/", " | ").lower() for one in contents)
            for name, contents in cast("dict[str, list[dict[str, Any]] | None]", raw).items()
            if contents is not None
        }
    ready: Any = record.get("options") or {}
    return {str(name).lower(): tuple(str(one) for one in values) for name, values in ready.items()}


def _reviews(reviews: Any) -> tuple[tuple[str, str, str], ...]:
    found = cast("list[Record]", reviews if isinstance(reviews, list) else [])
    titles = (str(one.get("title", "")) for one in found)
    stars = (str(one.get("score", one.get("stars", ""))) for one in found)
    texts = (str(one.get("body", one.get("review", ""))) for one in found)
    return tuple(zip(titles, stars, texts, strict=True))
