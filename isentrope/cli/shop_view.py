"""The pages of the webshop for people: products, prices and buttons, each with the number that presses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isentrope.cli.safe import plain, shown

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from isentrope.tasks.webshop.pages import ItemPage, Page, ResultsPage, SubPage


def shop_page(page: Page, actions: Sequence[str]) -> RenderableType:
    """A panel with the page. `actions` are the admissible ones: their places are the numbers."""
    from rich.console import Group
    from rich.panel import Panel

    from isentrope.tasks.webshop.pages import PER_PAGE, ItemPage, ResultsPage, StartPage, SubPage

    numbers = {action.removeprefix("click[").removesuffix("]"): i for i, action in enumerate(actions, start=1)}
    if isinstance(page, StartPage):
        title, body = "Search", [shown("Type search[what you are looking for]", "dim")]
    elif isinstance(page, ResultsPage):
        pages = max(1, -(-page.total // PER_PAGE))
        title, body = f"Results for {page.query}, page {page.number} of {pages}", _results(page, numbers)
    elif isinstance(page, ItemPage):
        title, body = page.product.asin, _item(page, numbers)
    elif isinstance(page, SubPage):
        title, body = f"{page.product.asin}: {page.name}", _sub_page(page, numbers)
    else:
        title, body = "Thank you", [shown(f"Bought {page.product.title}"), shown(f"Score: {page.reward:.2f}", "bold")]
    return Panel(Group(*body), title=shown(plain(title)[:70], "bold"), title_align="left", border_style="blue")


def _results(page: ResultsPage, numbers: dict[str, int]) -> list[RenderableType]:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), expand=True)
    table.add_column("", justify="right", style="cyan")
    table.add_column("Product", header_style="dim")
    table.add_column("Price", justify="right", header_style="dim")
    for product in page.products:
        number = numbers.get(product.asin.lower(), 0)
        table.add_row(str(number), shown(product.title), shown(product.price_tag, "green"))
    nothing = [shown("Nothing was found.", "yellow")] if not page.products else []
    return [table, *nothing, _buttons(page.buttons()[: len(page.buttons()) - len(page.products)], numbers)]


def _item(page: ItemPage, numbers: dict[str, int]) -> list[RenderableType]:
    from rich.text import Text

    product = page.product
    body: list[RenderableType] = [
        shown(product.title, "bold"),
        Text.assemble(shown(product.price_tag, "green"), "   ", shown(f"Rating: {product.rating}", "dim")),
    ]
    for name, values in product.options.items():
        body += [shown(name, "dim"), _buttons(list(dict.fromkeys(values)), numbers, page.chosen.get(name))]
    own = {value for values in product.options.values() for value in values}
    return [*body, Text(), _buttons([button for button in page.buttons() if button not in own], numbers)]


def _sub_page(page: SubPage, numbers: dict[str, int]) -> list[RenderableType]:
    return [*(shown(line) for line in page.content()), _buttons(page.buttons(), numbers)]


def _buttons(names: Sequence[str], numbers: dict[str, int], chosen: str | None = None) -> RenderableType:
    from rich.columns import Columns

    return Columns([_button(name, numbers, name.lower() == chosen) for name in names], padding=(0, 3))


def _button(name: str, numbers: dict[str, int], chosen: bool) -> Text:
    from rich.text import Text

    mark = "✓ " if chosen else ""
    return Text.assemble((f"{numbers.get(name.lower(), 0)} ", "cyan"), shown(mark + name, "bold" if chosen else ""))
