"""The WebShop world: find a product by an instruction, choose its options, buy it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Instance, Step, View
from isentrope.worlds.registry import Needs
from isentrope.worlds.webshop.catalogue import Catalogue, open_generated, open_official
from isentrope.worlds.webshop.expert import Shopper
from isentrope.worlds.webshop.reward import Goal
from isentrope.worlds.webshop.visit import Page, Visit, clickable, page_text

NEEDS = Needs("webshop", ("bm25s", "Stemmer", "regex", "rapidfuzz", "textblob", "ijson"))
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
        missing = NEEDS.missing()
        if missing:
            raise TaskError(f"the webshop needs {'; '.join(missing)}")

    @cached_property
    def catalogue(self) -> Catalogue:
        """Opened when first asked for; building it from the full official files takes a while."""
        chosen = self.options
        if not chosen.products:
            return open_generated()
        return open_official(chosen.products, chosen.attributes, chosen.human)

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

    def expert(self, seed: int) -> Expert:
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
        facts: dict[str, str | float | bool] = {
            "score": result.reward,
            "type": result.type_factor,
            "attributes": result.attributes,
            "options": result.options,
            "price": result.price,
        }
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
        return View(
            text=page_text(visit.page, instruction),
            admissible=tuple(f"click[{name}]" for name in clickable(visit.page)),
            goal=visit.goal.text,
            rules=RULES,
        )
