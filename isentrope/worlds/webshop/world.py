"""The WebShop world: find a product by an instruction, choose its options, buy it; and an expert that does so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Move, Step, View
from isentrope.worlds.registry import WORLDS
from isentrope.worlds.webshop.catalogue import Catalogue, open_generated, open_official
from isentrope.worlds.webshop.reward import Goal
from isentrope.worlds.webshop.search import terms
from isentrope.worlds.webshop.visit import BUY, NEXT, PREVIOUS, SEPARATOR, Page, Visit, clickable, page_text

TEST_GOALS, DEV_GOALS = 500, 1000
RULES = (
    "You shop in an online store for one product that fits an instruction. There are two kinds of action. "
    "search[words] looks for products and works on every page. click[name] presses what the page shows: a button such "
    "as click[next >] or click[back to search], a product's number such as click[b0abc12345], or the value of an "
    "option such as click[large]. On a product's page choose every option the instruction names, then click[buy now]. "
    "Buying ends the visit; how well the product, its options and its price fit decides the score."
)


@dataclass(frozen=True)
class WebShopOptions:
    products: str = setting("", "empty: a generated shop; else items_shuffle.json or items_shuffle_1000.json (or .zst)")
    attributes: str = setting("", "items_ins_v2.json (or .zst); empty: the one beside the products")
    human: str = setting("", "items_human_ins.json (or .zst): play people's instructions instead of synthetic ones")
    dev: bool = setting(False, "keep goals 500 to 1499 as a split dev, as the original does; train then begins at 1500")
    reward: str = setting(
        "score", "score: 0 to 1, as the shop defines it; success: 1 for a perfect purchase, else 0",
        choices=("score", "success"),
    )  # fmt: skip
    show_instruction: bool = setting(False, "repeat the instruction on every page, as the original does")


class WebShopWorld:
    name = "webshop"

    def __init__(self, options: WebShopOptions | None = None) -> None:
        self.options = options or WebShopOptions()
        if self.options.reward not in ("score", "success"):
            raise TaskError(f"reward = {self.options.reward!r}: choose one of score, success")
        if not self.options.products and (self.options.attributes or self.options.human):
            raise TaskError("attributes or human is set, but products is not: the generated shop has goals of its own")
        if missing := WORLDS[self.name].needs.missing():
            raise TaskError(f"the webshop needs {'; '.join(missing)}")

    @cached_property
    def catalogue(self) -> Catalogue:
        """Opened when first asked for; building it from the full official files takes a while."""
        chosen = self.options
        return open_official(chosen.products, chosen.attributes, chosen.human) if chosen.products else open_generated()

    @property
    def expert_solves(self) -> float:
        """It shops by rules; on 500 goals of the official products it solved 85.4 %."""
        return 0.85 if self.options.products else 0.99

    @property
    def kinds(self) -> tuple[str, ...]:
        """The shop's departments: success is reported for each."""
        return self.catalogue.categories

    @cached_property
    def _ranges(self) -> dict[str, range]:
        """Each split's goals, numbered after the shuffle."""
        many = self.catalogue.goals
        first = TEST_GOALS + DEV_GOALS if self.options.dev else TEST_GOALS
        if many <= first:
            raise TaskError(f"the catalogue has {many} goals; the splits need more than {first}")
        held_out = {"test": range(TEST_GOALS)} | ({"dev": range(TEST_GOALS, first)} if self.options.dev else {})
        return {"train": range(first, many), **held_out}

    def splits(self) -> Sequence[str]:
        return tuple(self._ranges)

    def size(self, split: str) -> int | None:
        return len(self._range(split))

    def instance(self, split: str, index: int) -> Instance:
        numbers = self._range(split)
        if not 0 <= index < len(numbers):
            raise TaskError(f"there is no webshop goal number {index} in {split!r}: it has {len(numbers)} goals")
        return Instance(self.name, split, index, self.catalogue.goal(numbers[index]).product.category)

    def goal(self, instance: Instance) -> Goal:
        return self.catalogue.goal(self._range(instance.split)[instance.index])

    def weight(self, instance: Instance) -> float:
        """How likely the original was to draw this goal, up to a factor: rare attributes weigh more."""
        return 1.0 if self.options.human else self.catalogue.weight(self.goal(instance))

    def open(self) -> WebShopTask:
        return WebShopTask(self)

    def expert(self, seed: int) -> Shopper:
        return Shopper()

    def close(self) -> None:
        if "catalogue" in self.__dict__:
            self.catalogue.close()
            del self.__dict__["catalogue"]

    def _range(self, split: str) -> range:
        if split not in self._ranges:
            raise TaskError(f"the webshop world has no split {split!r}; it has {', '.join(self._ranges)}")
        return self._ranges[split]


class WebShopTask:
    """One visit at a time. It ends with a purchase; the runner sets the turn limit."""

    def __init__(self, world: WebShopWorld) -> None:
        self._world = world
        self._visit: Visit | None = None

    def start(self, instance: Instance) -> View:
        self._visit = Visit(self._world.catalogue, self._world.goal(instance))
        return self._view(self._visit)

    def step(self, action: str) -> Step:
        visit = self._open_visit()
        valid = visit.act(action)
        result = visit.result
        if result is None or not valid:
            return Step(view=self._view(visit), valid=valid)
        reward = result.reward if self._world.options.reward == "score" else float(result.perfect)
        facts: dict[str, str | float | bool] = {"score": result.reward, "type": result.type_factor}
        facts |= {"attributes": result.attributes, "options": result.options, "price": result.price}
        return Step(view=self._view(visit), reward=reward, terminated=True, success=result.perfect, info=facts)

    def shop_page(self) -> Page:
        """The page as data, for showing it to people."""
        return self._open_visit().page

    def close(self) -> None:
        self._visit = None

    def _open_visit(self) -> Visit:
        if self._visit is None:
            raise TaskError("step was called before start: start an instance first")
        return self._visit

    def _view(self, visit: Visit) -> View:
        instruction = visit.goal.text if self._world.options.show_instruction else ""
        buttons = tuple(f"click[{name}]" for name in clickable(visit.page))
        return View(page_text(visit.page, instruction), buttons, visit.goal.text, RULES)


TURNS = 15  # a visit should not take longer
_PRICE = re.compile(r",? and price lower than ([\d.]+) dollars\s*$")
_OPTIONS = re.compile(r"(.*) with ([^:,]+: .*)", re.DOTALL)
_PAIRS = re.compile(r", and (?=[^:,]+: )")
_DOLLARS = re.compile(r"\$([\d.]+)")
_FILLER = frozenset(terms("I am looking for some find me would like to buy please get need want"))


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


_FIT = attrgetter("offers", "share")


class Shopper:
    """Expert that shops by simple rules: search for the words of the instruction, look at what fits best, choose, buy.

    It sees what an agent sees. The first product is bought that has every option asked for, costs no more than allowed
    and whose page and features hold the words of the instruction; when time runs out, the one that came closest.
    """

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
            self._candidates = [
                asin.lower()
                for asin, tag in zip(lines, lines[2:], strict=False)  # a price stands two lines below its product
                if f"click[{asin.lower()}]" in buttons
                and (price := _DOLLARS.match(tag))
                and float(price[1]) <= self._errand.limit
            ]
        hurry = self._left < 4 + len(self._errand.options)  # time to look at one more and come back for another
        if self._seen and not self._settled and (hurry or not self._candidates):
            self._settled = max(self._seen, key=_FIT).asin
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
        if complete and (current.share == 1 or (hurry and current is max(self._seen, key=_FIT))):
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
