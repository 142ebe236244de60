"""`isentrope methods`: lists the algorithms and entropy methods, or shows one: settings, metrics, page, command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from isentrope.cli.method_sheets import Sheet

TITLES = {"algorithm": "Algorithms: --set learn.algorithm=NAME", "method": "Methods: --set methods=NAME,NAME,…"}


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="An algorithm or a method.", show_default=False)
    ] = None,
) -> None:
    """List the algorithms and the entropy methods; with a NAME, its settings, its metrics and a command to try."""
    from rich.console import Console

    from isentrope.cli.method_sheets import sheet, sheets

    console = Console(highlight=False)
    if name is not None:
        _show(sheet(name), console)
        return
    every = sheets().values()
    for kind, title in TITLES.items():
        console.print(_list(title, [one for one in every if one.kind == kind]))
    console.print("isentrope methods NAME says more. Imitation: isentrope sft, isentrope rft.")


def _list(title: str, sheets: Iterable[Sheet]) -> Table:
    from rich.table import Column, Table

    from isentrope.core.text import shown

    columns = [Column(name, overflow="fold") for name in ("meaning", "paper")]
    table = Table(Column("name", no_wrap=True), *columns, title=title, title_justify="left")
    for one in sheets:
        table.add_row(shown(one.name, "cyan"), shown(one.summary), shown(one.paper))
    return table


def _show(sheet: Sheet, console: Console) -> None:
    from isentrope.core.text import shown

    console.print(shown(f"{sheet.name} ({sheet.kind})", "bold"))
    console.print(shown(f"{sheet.summary[0].upper()}{sheet.summary[1:]}."))
    source = "Evidence" if sheet.paper.startswith("docs/") else "Paper"
    console.print(shown(f"{source}: {sheet.paper}\n"))
    console.print(_knobs(sheet) if sheet.knobs else shown("It has no settings.\n"))
    console.print(_metrics(sheet) if sheet.metrics else shown("It adds no metrics.\n"))
    console.print(shown(f"Page: docs/{sheet.page}"))
    console.print("Try:  ", shown(sheet.command, "bold"), soft_wrap=True, sep="")


def _knobs(sheet: Sheet) -> Table:
    """For an algorithm, what a setting is with it beside what it is otherwise; changed ones are marked."""
    from rich.table import Column, Table

    from isentrope.core.text import shown

    algorithm = sheet.kind == "algorithm"
    values = ["with it", "default"] if algorithm else ["default"]
    columns = [Column(name, overflow="fold") for name in (*values, "allowed", "meaning")]  # nothing is cut off
    table = Table(Column("setting", no_wrap=True), *columns)
    for info, value in sheet.knobs:
        here = [shown(value, "bold green" if value != info.default else "")] if algorithm else []
        table.add_row(shown(info.path, "cyan"), *here, shown(info.default), shown(info.allowed), shown(info.doc))
    return table


def _metrics(sheet: Sheet) -> Table:
    from rich.table import Column, Table

    from isentrope.core.text import shown
    from isentrope.metrics.glossary import entry_of, sentence

    table = Table(Column("metric", no_wrap=True), Column("unit", overflow="fold"), Column("meaning", overflow="fold"))
    for key in sheet.metrics:
        table.add_row(shown(key, "cyan"), shown(entry_of(key).unit), shown(sentence(key)))
    return table
