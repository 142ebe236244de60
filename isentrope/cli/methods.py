"""`isentrope methods`: lists the algorithms and entropy methods, or shows one: settings, metrics, page, command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.completion import complete_method
from isentrope.cli.options import table_of_names, terminal
from isentrope.core.command import command, page
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.cli.method_sheets import Sheet

TITLES = {"algorithm": "Algorithms: --set learn.algorithm=NAME", "method": "Methods: --set methods=NAME,NAME,…"}


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="An algorithm, a method or a module:Class.",
            show_default=False,
            autocompletion=complete_method,
        ),
    ] = None,
) -> None:
    """List the algorithms and entropy methods, or show one.

    With a NAME: its settings, its metrics and a command to try.
    """
    from isentrope.cli.listing import WIDE
    from isentrope.cli.method_sheets import sheet, sheets
    from isentrope.methods.registry import METHODS

    console = terminal()
    if name is not None:
        _show(sheet(name), console)
        return
    for kind, title in TITLES.items():
        table = table_of_names("name", "meaning", "paper", title=title)
        table.columns[1].ratio, table.columns[2].ratio, table.expand = 3, 1, console.width < WIDE
        for one in sheets().values():
            if one.kind == kind:
                table.add_row(shown(one.name, "cyan"), shown(one.summary), shown(one.paper))
        console.print(table)
    installed = [method for method in METHODS if method not in METHODS.inside]
    if installed:
        console.print(shown(f"Methods of installed packages: {', '.join(installed)}."))
    console.print(
        f"{command('methods')} NAME says more, of a module:Class too. Imitation: {command('sft')}, {command('rft')}."
    )


def _show(sheet: Sheet, console: Console) -> None:
    """For an algorithm, what a setting is with it stands beside what it is otherwise; changed ones are marked."""
    from isentrope.cli.listing import show_metrics, show_settings
    from isentrope.metrics.glossary import entry_of, sentence

    console.print(shown(f"{sheet.name} ({sheet.kind})", "bold"))
    console.print(shown(f"{sheet.summary[0].upper()}{sheet.summary[1:]}." if sheet.summary else "It has no summary."))
    source = "Evidence" if sheet.paper.startswith("isentrope docs") else "Paper"
    console.print(shown(f"{source}: {sheet.paper}\n" if sheet.paper else ""))
    show_settings(console, sheet.knobs, ("with it", "default") if sheet.kind == "algorithm" else ("default",))
    console.print(shown("" if sheet.knobs else "It has no settings."))
    if sheet.metrics:
        show_metrics(console, [(key, entry_of(key).unit, sentence(key)) for key in sheet.metrics])
    console.print(shown("" if sheet.metrics else "It adds no metrics."))
    if sheet.page:
        console.print(shown(f"Page: {page(sheet.page.removesuffix('.md'))}"))
    console.print("Try:  ", shown(sheet.command, "bold"), soft_wrap=True, sep="")
