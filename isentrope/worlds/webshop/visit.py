"""The pages of the shop, and one visit: searches and clicks lead from page to page until something is bought."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from isentrope.worlds.webshop.catalogue import Catalogue
from isentrope.worlds.webshop.products import Product
from isentrope.worlds.webshop.reward import Goal, Score, score

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


MOST_RESULTS = 50
_ACTION = re.compile(r"(search|click)\[(.+)\]", re.DOTALL | re.IGNORECASE)
_BACK_DOOR = re.compile(r"<[racq]>")  # the original listed whole categories and attributes for queries like these


class Visit:
    def __init__(self, stock: Catalogue, goal: Goal) -> None:
        self._stock, self.goal = stock, goal
        self.page: Page = StartPage()
        self.result: Score | None = None
        self._query, self._found, self._number = "", list[int](), 1

    def act(self, action: str) -> bool:
        """Search or click. False if the action means nothing here; then nothing has happened."""
        parts = _ACTION.fullmatch(action.strip())
        if parts is None or self.result is not None:
            return False
        name, argument = parts[1].lower(), parts[2].lower()
        return self._search(argument.strip()) if name == "search" else self._click(argument)

    def _search(self, query: str) -> bool:
        if not query or _BACK_DOOR.match(query):
            return False
        self._query, self._found = query, self._stock.search(query, MOST_RESULTS)
        self._show_results(1)
        return True

    def _show_results(self, number: int) -> None:
        self._number = number
        shown = self._found[(number - 1) * PER_PAGE : number * PER_PAGE]
        products = tuple(self._stock.product(position) for position in shown)
        self.page = ResultsPage(self._query, number, len(self._found), products)

    def _click(self, name: str) -> bool:
        page = self.page
        if name not in clickable(page):
            return False
        if name == BACK.lower():
            self.page = StartPage()
        elif isinstance(page, ResultsPage) and name in (NEXT.lower(), PREVIOUS.lower()):
            self._show_results(self._number + (1 if name == NEXT.lower() else -1))
        elif isinstance(page, ResultsPage):
            self.page = ItemPage(next(one for one in page.products if one.asin.lower() == name))
        elif isinstance(page, ItemPage):
            self._click_item(page, name)
        elif isinstance(page, SubPage):
            self.page = self._item  # there is nothing else to click than going back
        return True

    def _click_item(self, page: ItemPage, name: str) -> None:
        if name == PREVIOUS.lower():
            self._show_results(self._number)
        elif name == BUY.lower():
            self.result = score(self.goal, page.product, page.chosen.values())
            self.page = DonePage(page.product, self.result.reward)
        elif name.capitalize() in SUB_PAGES:
            self._item, self.page = page, SubPage(page.product, name.capitalize())
        else:  # a value that two options share belongs to the last of them, as in the original
            option = [one for one, values in page.product.options.items() if name in map(str.lower, values)][-1]
            self.page = ItemPage(page.product, {**page.chosen, option: name})
