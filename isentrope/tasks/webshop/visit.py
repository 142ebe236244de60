"""One visit to the shop: searches and clicks lead from page to page until something is bought."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from isentrope.tasks.webshop.goals import Goal
from isentrope.tasks.webshop.pages import (
    BACK,
    BUY,
    NEXT,
    PER_PAGE,
    PREVIOUS,
    SUB_PAGES,
    DonePage,
    ItemPage,
    Page,
    ResultsPage,
    StartPage,
    SubPage,
    clickable,
)
from isentrope.tasks.webshop.products import Product
from isentrope.tasks.webshop.reward import Score, score

MOST_RESULTS = 50
_ACTION = re.compile(r"(search|click)\[(.+)\]", re.DOTALL | re.IGNORECASE)
_BACK_DOOR = re.compile(r"<[racq]>")  # the original listed whole categories and attributes for queries like these


class Stock(Protocol):
    """Where products are found."""

    def product(self, position: int) -> Product: ...

    def search(self, query: str, count: int) -> list[int]: ...


class Visit:
    def __init__(self, stock: Stock, goal: Goal) -> None:
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
        return self._search(argument) if name == "search" else self._click(argument)

    def _search(self, query: str) -> bool:
        query = query.strip()
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
        if name not in clickable(self.page):
            return False
        if name == BACK.lower():
            self.page = StartPage()
        elif isinstance(self.page, ResultsPage):
            self._click_result(self.page, name)
        elif isinstance(self.page, ItemPage):
            self._click_item(self.page, name)
        elif isinstance(self.page, SubPage):
            self.page = self._item  # there is nothing else to click than going back
        return True

    def _click_result(self, page: ResultsPage, name: str) -> None:
        if name in (NEXT.lower(), PREVIOUS.lower()):
            self._show_results(self._number + (1 if name == NEXT.lower() else -1))
        else:
            self.page = ItemPage(next(one for one in page.products if one.asin.lower() == name))

    def _click_item(self, page: ItemPage, name: str) -> None:
        actions: dict[str, Callable[[], None]] = {
            PREVIOUS.lower(): lambda: self._show_results(self._number),
            BUY.lower(): lambda: self._buy(page),
            **{sub.lower(): lambda sub=sub: self._look(page, sub) for sub in SUB_PAGES},
        }
        if name in actions:
            actions[name]()
            return
        # a value that two options share belongs to the last of them, as in the original
        option = [one for one, values in page.product.options.items() if name in map(str.lower, values)][-1]
        self.page = ItemPage(page.product, {**page.chosen, option: name})

    def _look(self, page: ItemPage, name: str) -> None:
        self._item = page
        self.page = SubPage(page.product, name)

    def _buy(self, page: ItemPage) -> None:
        self.result = score(self.goal, page.product, page.chosen.values())
        self.page = DonePage(page.product, self.result.reward)
