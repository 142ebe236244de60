"""`isentrope docs`: the pages of the documentation, in the terminal."""

from __future__ import annotations

import os
import sys
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.completion import complete_page, complete_section
from isentrope.cli.options import terminal
from isentrope.core.command import command
from isentrope.core.text import count, shown

if TYPE_CHECKING:
    from rich.console import Console

_HITS = 30  # sections that a search shows


def docs(
    page: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="A page: engines.", show_default=False, autocompletion=complete_page),
    ] = None,
    section: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SECTION",
            help="Words of a heading on it: show this part alone.",
            show_default=False,
            autocompletion=complete_section,
        ),
    ] = None,
    find: Annotated[
        str, typer.Option("--find", metavar="WORDS", help="Search headings and text for sections with all these words.")
    ] = "",
    path: Annotated[bool, typer.Option("--path", help="Print where the page lies, and nothing else.")] = False,
) -> None:
    """List the pages of documentation, show or search them.

    In a terminal a page is laid out for its width and shown page by page; to a file or a pipe it goes as it is written,
    in Markdown.
    """
    from isentrope.cli.pages import find_page, folder, part_of, path_of, text_of

    if find:
        _search(" ".join([find, *filter(None, (page, *(section or ())))]))
        return
    name, others = find_page(page) if page is not None else ("", [])
    if path:
        typer.echo(str(path_of(name) if name else folder()))
    elif name:
        _show(name, part_of(name, " ".join(section)) if section else text_of(name), others)
    else:
        _list(terminal())


def _list(console: Console) -> None:
    from rich.table import Column, Table

    from isentrope.cli.pages import index, page_names

    rows = index()
    table = Table(Column("you want to", ratio=3), Column("page", ratio=2, style="cyan"), box=None, expand=True)
    for want, pages in rows:
        table.add_row(shown(want), shown(", ".join(pages)))
    console.print(table)
    listed = {page for _, pages in rows for page in pages}
    others = sorted((name.rpartition("/")[::2] for name in page_names() if name not in listed), key=itemgetter(0))
    below = Table(Column("and", no_wrap=True, style="cyan"), Column("", style="cyan"), box=None)
    for above, pages in groupby(others, itemgetter(0)):
        below.add_row(shown(f"{above}/" if above else ""), shown(", ".join(last for _, last in pages)))
    console.print("", below, sep="\n")
    hint = f"\n{command('docs')} PAGE shows one, {command('docs')} --find WORDS searches all of them."
    console.print(shown(hint), soft_wrap=True)


def _show(name: str, text: str, others: list[str]) -> None:
    """A page may be longer than the terminal: then by the pager of the system."""
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.console import Console

    from isentrope.cli.markdown import ARROW, THEME, WIDEST, page_as_shown

    console = Console(highlight=False, theme=THEME)
    console.width = min(console.width, WIDEST)
    os.environ.setdefault("LESS", "-FRX")  # colours, and nothing to leave if it fits; as git has it
    with console.pager(styles=True, links=True):
        laid_out = page_as_shown(name, text)
        console.print(laid_out, crop=False)
        if ARROW in laid_out.markup:
            console.print(shown(f"\n{ARROW}PAGE): {command('docs')} PAGE", "dim"), soft_wrap=True)
        for other in others:
            console.print(shown(f"Of the same name: {command('docs', other)}", "dim"), soft_wrap=True)


def _search(words: str) -> None:
    from isentrope.cli.pages import search

    console, hits = terminal(), list(search(words))
    if not hits:
        console.print(shown(f"No section has {words!r}. Every word has to begin a word of the same section."))
        return
    for hit in hits[:_HITS]:
        console.print(shown(f"{hit.page} ", "cyan").append_text(shown(hit.section.anchor, "bold")), soft_wrap=True)
        console.print(shown(f"    {hit.line}"), no_wrap=True, overflow="ellipsis")
    if len(hits) > _HITS:
        console.print(shown(f"… and {count(len(hits) - _HITS, 'more section')}: more words find fewer."))
    console.print(shown(f"\n{command('docs')} PAGE SECTION shows one of them."), soft_wrap=True)
