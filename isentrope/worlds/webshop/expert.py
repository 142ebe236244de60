"""Expert that shops by simple rules: search for the words of the instruction, look at what fits best, choose, buy.

It sees what an agent sees. The first product is bought that has every option asked for, costs no more than allowed and
whose page and features hold the words of the instruction; when time runs out, the one that came closest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from isentrope.worlds.contract import Instance, Move, View
from isentrope.worlds.webshop.search import terms
from isentrope.worlds.webshop.visit import BUY, NEXT, PREVIOUS, SEPARATOR

TURNS = 15  # a visit should not take longer
_PRICE = re.compile(r",? and price lower than ([\d.]+) dollars\s*$")
_OPTIONS = re.compile(r"(.*) with ([^:,]+: .*)", re.DOTALL)
_PAIRS = re.compile(r", and (?=[^:,]+: )")
_DOLLARS = re.compile(r"\$([\d.]+)")
_FILLER = frozenset(term for term in terms("I am looking for some find me would like to buy please get need want"))


@dataclass(frozen=True)
class Errand:
    """The instruction, taken apart."""

    query: str
    words: frozenset[str]
    options: dict[str, str]
    limit: float

    @classmethod
    def read(cls, goal: str) -> Errand:
        price = _PRICE.search(goal)
        text = goal[: price.start()] if price else goal
        named = _OPTIONS.fullmatch(text)
        wish = named[1] if named else text
        pairs = [pair.split(": ", 1) for pair in _PAIRS.split(named[2])] if named else []
        options = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
        wanted = frozenset(terms(wish)) - _FILLER
        # the values again: a product that offers them should come first
        query = " ".join([wish, *options.values()])
        return cls(query, wanted, options, float(price[1]) if price else float("inf"))

    def share(self, text: str) -> float:
        """Share of the wanted words that stand in the text."""
        return len(self.words & set(terms(text))) / len(self.words) if self.words else 1.0


@dataclass
class _Seen:
    """A product that was looked at."""

    asin: str
    text: str = ""
    offers: int = 0  # how many of the options asked for
    share: float = 0.0  # of the wanted words
    read: bool = False  # its features too


class Shopper:
    def start(self, view: View, instance: Instance) -> None:
        self._errand = Errand.read(view.goal)
        self._left = TURNS
        self._candidates: list[str] | None = None  # still to be looked at; None before the results are read
        self._seen: list[_Seen] = []
        self._settled = ""  # the product to buy
        self._chosen: list[str] = []

    def act(self, view: View) -> Move:
        self._left -= 1
        lines = view.text.split(SEPARATOR)
        buttons = set(view.admissible or ())
        if f"click[{BUY.lower()}]" in buttons:
            return self._on_item(lines, buttons)
        if any(line.startswith("Page ") and "(Total results: " in line for line in lines):
            return self._on_results(lines, buttons)
        if f"click[{PREVIOUS.lower()}]" in buttons:
            self._seen[-1].text += f" {view.text}"
            return Move("I have read this page. I go back to the product.", f"click[{PREVIOUS.lower()}]")
        return Move("I search for what the instruction asks for.", f"search[{self._errand.query}]")

    def _on_results(self, lines: list[str], buttons: set[str]) -> Move:
        if self._candidates is None:
            self._candidates = self._affordable(lines, buttons)
        hurry = self._left < 4 + len(self._errand.options)  # time to look at one more and come back for another
        if self._seen and not self._settled and (hurry or not self._candidates):
            self._settled = max(self._seen, key=_fit).asin
        if self._settled:
            return Move("This one came closest. I take it.", f"click[{self._settled}]")
        if self._candidates:
            asin = self._candidates.pop(0)
            self._seen.append(_Seen(asin))
            return Move(f"{asin.upper()} may fit and is not too dear. I look at it.", f"click[{asin}]")
        self._candidates = None
        if f"click[{NEXT.lower()}]" in buttons:
            return Move("Nothing here is cheap enough. I turn the page.", f"click[{NEXT.lower()}]")
        self._errand = replace(self._errand, query=" ".join(sorted(self._errand.words)) or "gift", limit=float("inf"))
        return Move("Nothing fits. I search in other words.", f"search[{self._errand.query}]")

    def _affordable(self, lines: list[str], buttons: set[str]) -> list[str]:
        """The products of a page that are within the limit, in the shop's order."""
        found: list[str] = []
        for asin, tag in zip(lines, lines[2:], strict=False):
            price = _DOLLARS.match(tag)
            if f"click[{asin.lower()}]" in buttons and price and float(price[1]) <= self._errand.limit:
                found.append(asin.lower())
        return found

    def _on_item(self, lines: list[str], buttons: set[str]) -> Move:
        if self._settled or not self._seen:
            return self._choose(buttons)
        current, wanted = self._seen[-1], self._errand.options.values()
        current.text = current.text or " ".join(lines)
        current.offers = sum(f"click[{value}]" in buttons for value in wanted)
        current.share = self._errand.share(current.text)
        complete = current.offers == len(wanted)
        if complete and current.share < 1 and not current.read:
            current.read = True
            return Move("The options are there. I check its features.", "click[features]")
        hurry = self._left < 5 + len(wanted)  # time to go back, look at another, return to this one and buy it
        if complete and (current.share == 1 or (hurry and current is max(self._seen, key=_fit))):
            self._settled = current.asin
            return self._choose(buttons)
        lacking = "something" if complete else "an option"
        return Move(f"It lacks {lacking} that I need. I go back.", f"click[{PREVIOUS.lower()}]")

    def _choose(self, buttons: set[str]) -> Move:
        for name, value in self._errand.options.items():
            if value not in self._chosen and f"click[{value}]" in buttons:
                self._chosen.append(value)
                return Move(f"The {name} should be {value}.", f"click[{value}]")
        return Move("Everything is chosen. I buy it.", f"click[{BUY.lower()}]")


def _fit(seen: _Seen) -> tuple[int, float]:
    return seen.offers, seen.share
