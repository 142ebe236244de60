"""`isentrope play`: a person plays a task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.options import RecipeOption, SetOption, WorldArgument, for_world, terminal
from isentrope.core.text import plain, shown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from isentrope.worlds.contract import Expert, Instance, Move, Step, Task
    from isentrope.worlds.webshop.visit import ItemPage, Page, ResultsPage

# -- pages of the webshop for people: products, prices and buttons, each with the number that presses it


def shop_page(page: Page, actions: Sequence[str]) -> RenderableType:
    """A panel with the page. `actions` are the admissible ones: their places are the numbers."""
    from rich.console import Group
    from rich.panel import Panel

    from isentrope.worlds.webshop.visit import PER_PAGE, ItemPage, ResultsPage, StartPage, SubPage

    numbers = {action.removeprefix("click[").removesuffix("]"): i for i, action in enumerate(actions, start=1)}
    if isinstance(page, StartPage):
        title, body = "Search", [shown("Type search[what you are looking for]", "dim")]
    elif isinstance(page, ResultsPage):
        pages = max(1, -(-page.total // PER_PAGE))
        title, body = f"Results for {page.query}, page {page.number} of {pages}", _results(page, numbers)
    elif isinstance(page, ItemPage):
        title, body = page.product.asin, _item(page, numbers)
    elif isinstance(page, SubPage):
        title = f"{page.product.asin}: {page.name}"
        body = [*(shown(line) for line in page.content()), _buttons(page.buttons(), numbers)]
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


def _buttons(names: Sequence[str], numbers: dict[str, int], chosen: str | None = None) -> RenderableType:
    from rich.columns import Columns
    from rich.text import Text

    marked = [(name, shown(f"✓ {name}", "bold") if name.lower() == chosen else shown(name)) for name in names]
    buttons = [Text.assemble((f"{numbers.get(name.lower(), 0)} ", "cyan"), text) for name, text in marked]
    return Columns(buttons, padding=(0, 3))


PAGE = 40  # admissible actions shown at once

HELP = """\
a number    take that action
any text    say it to the task as it stands
?           this help
more        the next page of actions
hint        ask the expert
quit        stop"""

WORDS = ("hint", "more", "quit")  # that are no actions
Reader = Callable[[str], str | None]  # asks for one line; None at the end of the input


def play(
    world: WorldArgument = None,
    split: Annotated[str, typer.Option("--split", help="Which split the game is from.")] = "train",
    index: Annotated[int, typer.Option("--index", min=0, help="Which game of the split.")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the expert who gives hints.")] = 0,
    recipe: RecipeOption = None,
    sets: SetOption = None,
) -> None:
    """Play a task yourself.

    In a terminal the tab key completes actions. Also takes its input from a pipe, one action a line.
    """
    config = for_world(recipe, world, sets)
    from isentrope.worlds.pool.guarded import close_world
    from isentrope.worlds.pool.open import open_world

    made = open_world(config.task)
    task = made.open()
    try:
        in_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        read = typed if in_terminal else piped
        game = Game(task, made.expert(seed), made.instance(split, index), terminal(), read, config.task.max_turns)
        if in_terminal:
            complete_with(game.words)
        game.run()
    finally:
        task.close()
        close_world(made)


def piped(prompt: str) -> str | None:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None


def typed(prompt: str) -> str | None:
    """By readline, which knows the prompt and can complete."""
    try:
        return input(prompt).strip()
    except EOFError:
        print()
        return None


def complete_with(words: Callable[[str], list[str]]) -> None:
    """The tab key completes the whole line. Where Python has no readline, nothing is completed."""
    try:
        import readline
    except ImportError:
        return
    found: list[str] = []

    def complete(text: str, number: int) -> str | None:
        if number == 0:
            found[:] = words(text)
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims("")  # actions have spaces in them
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")


class Game:
    """One game between a person and a task."""

    def __init__(
        self, task: Task, expert: Expert | None, instance: Instance, console: Console, read: Reader, max_turns: int = 50
    ) -> None:
        self._task, self._expert, self._console, self._read = task, expert, console, read
        self._view = task.start(instance)
        self._turns, self._max_turns = 0, max_turns
        self._score = 0.0
        self._page = 0
        self._won = self._finished = False
        self._understood = True
        self._advice: Move | None = None
        if expert is not None:
            try:
                expert.start(self._view, instance)
            except Exception:  # there is no solution of this game: it can be played without hints
                self._expert = None

    def run(self) -> bool:
        """Until the task ends or the player leaves; says whether the task was solved."""
        self._say(self._view.rules, "dim")
        how = "an action as the rules say" if self._view.admissible is None else "a number or an action"
        self._say(f"Type {how}. hint asks the expert, ? helps, quit ends the game.", "dim")
        self._say(self._view.goal and f"Goal: {self._view.goal}", "bold")
        self._show_view()
        while True:
            line = self._read(f"turn {self._turns + 1} of {self._max_turns} > ")
            if line is None or line.lower() in ("quit", "exit"):
                self._say(f"Left after {self._played}. {self._won_so_far}")
                return False
            if self._obey(line) and self._finished:
                return self._won

    def words(self, begun: str) -> list[str]:
        """What a line that begins so may become: an admissible action, or a word of ours."""
        actions = [action for action in self._view.admissible or () if plain(action) == action and "\n" not in action]
        return [word for word in (*actions, *WORDS) if word.lower().startswith(begun.lower())]

    def _obey(self, line: str) -> bool:
        """Carry out one line; True if it was an action."""
        if line == "?":
            self._say(HELP)
        elif line.lower() == "more":
            self._page += 1
            self._show_actions()
        elif line.lower() == "hint" and self._advice is not None:
            self._say(f"{self._advice.thought}\n-> {self._advice.action}", "magenta")
        elif line.lower() == "hint":
            self._say("This world has no expert." if self._expert is None else "The expert cannot follow any more.")
        elif line and (action := self._action(line)) is not None:
            self._take(self._task.step(action))
            return True
        return False

    def _action(self, line: str) -> str | None:
        actions = self._view.admissible or ()
        if not line.isdecimal() or not actions or len(line) > 6:
            return line
        if 1 <= int(line) <= len(actions):
            return actions[int(line) - 1]
        self._say(f"There is no action {line}; they go from 1 to {len(actions)}.", "yellow")
        return None

    def _take(self, step: Step) -> None:
        self._turns += 1
        self._score += step.reward
        figures = ({"reward": step.reward} if step.reward else {}) | dict(step.info)
        told = [
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items()
        ]
        self._say(", ".join(told), "dim")
        self._view, self._page, self._understood = step.view, 0, step.valid
        self._finished, self._won = step.terminated or step.truncated, step.success
        if not self._finished:
            self._show_view()
            if self._turns == self._max_turns:
                self._say(f"A policy's episode ends here: task.max_turns = {self._max_turns}. You may go on.", "yellow")
            return
        if not self._show_page():
            self._say(step.view.text)
        how = "Solved in" if step.success else "Not solved: it ended after"
        self._say(f"{how} {self._played}. {self._won_so_far}", "bold")

    @property
    def _played(self) -> str:
        return "1 turn" if self._turns == 1 else f"{self._turns} turns"

    @property
    def _won_so_far(self) -> str:
        return f"Score {self._score:g} (a solved task has 1)."

    def _show_view(self) -> None:
        if not self._show_page():
            self._say(self._view.text)
            self._show_actions()
        try:  # at every turn, wanted or not: an expert remembers what it has been shown
            self._advice = self._expert.act(self._view) if self._expert is not None else None
        except Exception:  # it expects its own moves; a player's may lead where it has no answer
            self._advice = None

    def _show_page(self) -> bool:
        """The webshop has pages for people (`task.shop_page()`); False if the task has none."""
        page = getattr(self._task, "shop_page", None)
        if page is None:
            return False

        self._console.print(shop_page(page(), self._view.admissible or ()))
        if not self._understood:
            self._say("That did nothing here.", "yellow")
        return True

    def _show_actions(self) -> None:
        from rich.columns import Columns

        actions = self._view.admissible
        if not actions:
            return
        first = self._page * PAGE % (PAGE * -(-len(actions) // PAGE))  # after the last page comes the first
        page = actions[first : first + PAGE]
        numbered = [shown(f"{number:>3}  {action}", "cyan") for number, action in enumerate(page, start=first + 1)]
        self._console.print(Columns(numbered, padding=(0, 3), column_first=True))
        if len(actions) > PAGE:
            self._say(f"{first + 1} to {first + len(page)} of {len(actions)} actions; more shows the next", "dim")

    def _say(self, text: str, style: str = "") -> None:
        if text:
            self._console.print(shown(text, style))
