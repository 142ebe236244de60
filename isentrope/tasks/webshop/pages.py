"""The pages of the shop: what they show, what can be clicked on them, and their text."""

from __future__ import annotations

from dataclasses import dataclass, field

from isentrope.tasks.webshop.products import Product

SEPARATOR = " [SEP] "
PER_PAGE = 10
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")


@dataclass(frozen=True)
class StartPage:
    def lines(self) -> list[str]:
        return ["WebShop", "Search"]

    def buttons(self) -> list[str]:
        return []


@dataclass(frozen=True)
class ResultsPage:
    query: str
    number: int  # from 1
    total: int
    products: tuple[Product, ...]  # those of this page

    def _turning(self) -> list[str]:
        earlier = [PREVIOUS] if self.number > 1 else []
        return earlier + ([NEXT] if self.number * PER_PAGE < self.total else [])

    def lines(self) -> list[str]:
        head = [BACK, f"Page {self.number} (Total results: {self.total})", *self._turning()]
        return head + [line for one in self.products for line in (one.asin, one.title, one.price_tag)]

    def buttons(self) -> list[str]:
        return [BACK, *self._turning(), *(product.asin for product in self.products)]


@dataclass(frozen=True)
class ItemPage:
    product: Product
    chosen: dict[str, str] = field(default_factory=dict[str, str])  # option name -> value

    def lines(self) -> list[str]:
        options = [line for name, values in self.product.options.items() for line in (name, *values)]
        facts = [self.product.title, f"Price: {self.product.price_tag}", f"Rating: {self.product.rating}"]
        return [BACK, PREVIOUS, *options, *facts, *SUB_PAGES, BUY]

    def buttons(self) -> list[str]:
        values = [value for values in self.product.options.values() for value in values]
        return [BACK, PREVIOUS, *SUB_PAGES, BUY, *values]


@dataclass(frozen=True)
class SubPage:
    """The description, the features or the reviews of a product."""

    product: Product
    name: str

    def content(self) -> list[str]:
        if self.name == "Description":
            return [self.product.description]
        if self.name == "Features":
            return list(self.product.bullets)
        reviews = [line for title, stars, text in self.product.reviews for line in (f'"{title}"', stars, text)]
        return reviews or ["No reviews found"]

    def lines(self) -> list[str]:
        return [BACK, PREVIOUS, *self.content()]

    def buttons(self) -> list[str]:
        return [BACK, PREVIOUS]


@dataclass(frozen=True)
class DonePage:
    """After the purchase."""

    product: Product
    reward: float

    def lines(self) -> list[str]:
        return ["Thank you for shopping with us!", f"Your score: {self.reward:.2f}"]

    def buttons(self) -> list[str]:
        return []


Page = StartPage | ResultsPage | ItemPage | SubPage | DonePage


def page_text(page: Page, instruction: str = "") -> str:
    """The page as one line. With an instruction it stands on every page, as in the original."""
    lines = [line.strip() for line in page.lines()]
    if instruction:
        at = 1 if isinstance(page, StartPage) else 0
        lines[at:at] = ["Instruction:", instruction]
    return SEPARATOR.join(lines)


def clickable(page: Page) -> tuple[str, ...]:
    """Everything that can be clicked, in lower case, each once."""
    return tuple(dict.fromkeys(button.lower() for button in page.buttons()))
