"""`isentrope recipes`: the recipes that come with the package; one of them, shown or copied."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.completion import complete_our_recipe
from isentrope.cli.options import table_of_names, terminal
from isentrope.core.command import command
from isentrope.core.errors import ConfigError, RunError, writing
from isentrope.core.text import plain, shown

if TYPE_CHECKING:
    from rich.console import Console

_LINES = 400  # of a recipe, on the terminal


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A recipe of ours: demo.", show_default=False, autocompletion=complete_our_recipe
        ),
    ] = None,
    copy: Annotated[
        Path | None, typer.Option("--copy", metavar="FILE.toml", help="Copy it there, to be changed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --copy: write over a file that is there.")] = False,
) -> None:
    """List the recipes of the package; show or copy one.

    A recipe is named wherever it lies: isentrope train demo. A copy works in any folder, as it names what it builds on.
    """
    console = terminal()
    if name is None:
        if copy is not None or force:
            raise typer.BadParameter("say which recipe: isentrope recipes demo --copy mine.toml", param_hint="--copy")
        _list(console)
        return
    path = _found(name)
    if copy is None:
        _show(path, console)
    else:
        _copy(path, copy, force, console)


def _list(console: Console) -> None:
    from isentrope.config.recipes import PAPERS, STUDIES, known_recipes, meaning_of, scripts

    groups = (
        ("Ready to train", "", f"{command('train')} NAME --out runs/first"),
        ("Studies: many runs as one", STUDIES, f"{command('study')} NAME --dry-run"),
        ("Runs of the papers, with the papers' numbers", PAPERS, f"{command('train')} NAME --set policy.model=MODEL"),
    )
    for title, under, line in groups:
        table = table_of_names("recipe", "what it is", title=f"{title}: {line}")
        for known in known_recipes(under):
            if not Path(known.name).name.startswith("base-"):  # what the others extend: no run by itself
                table.add_row(shown(known.name, "cyan"), shown(known.meaning))
        console.print(table)
    table = table_of_names("script", "what it does", title="Scripts: bash, several commands in a row")
    for path in scripts():
        table.add_row(shown(path.name, "cyan"), shown(meaning_of(path)))
    console.print(table)
    console.print(
        shown(f"{command('recipes')} demo shows one; with --copy mine.toml it is yours to change."), soft_wrap=True
    )


def _found(name: str) -> Path:
    from isentrope.config.recipes import our_recipe, recipe_names, scripts
    from isentrope.config.suggest import nearest

    if path := our_recipe(name):
        return path
    names = {known: known for known in [*recipe_names(), *(script.name for script in scripts())]}
    last = {known.rpartition("/")[2]: known for known in names}  # the name without its folder
    guess = nearest(name.removesuffix(".toml"), names | last)
    hint = f"; did you mean {(names | last)[guess]}?" if guess else f"; {command('recipes')} lists them"
    raise ConfigError(f"no recipe of ours is called {plain(name)[:100]!r}{hint}")


def _show(path: Path, console: Console) -> None:
    from rich.syntax import Syntax

    lines = path.read_text(encoding="utf-8").splitlines()
    language = "bash" if path.suffix == ".sh" else "toml"
    text = "\n".join(lines[:_LINES])
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    else:
        typer.echo(text)
    if len(lines) > _LINES:
        console.print(shown(f"… {len(lines) - _LINES} more lines: {path}"))


def _copy(path: Path, to: Path, force: bool, console: Console) -> None:
    from isentrope.runs.atomic import write_atomically

    if to.is_dir():
        to = to / path.name
    there = to.exists()
    if there and not force:
        raise RunError(f"{to} is there already; choose another name, or write over it with --force")
    with writing(to):
        to.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(to, path.read_bytes())
    over = ", over what was there" if there else ""
    console.print(shown(f"copied to {to}{over}. Try it: {_how_to_run(path, to)}"), soft_wrap=True)


def _how_to_run(path: Path, to: Path) -> str:
    if path.suffix == ".sh":
        return f"bash {to}"
    if path.parent.name == "studies":
        return command("study", str(to), "--dry-run")
    return command("train", str(to), "--out", f"runs/{to.stem}")
