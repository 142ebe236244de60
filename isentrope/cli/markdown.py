"""Shows a Markdown page in the terminal, of which nothing is cut off at 80 columns.

Tables that are too wide become lists. Links to other pages are followed by the page's name, other links lead to the
repository, and so do pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from isentrope.cli.pages import address_of, page_at, with_links

ARROW = "(→ "  # behind a link, before the name of the page
WIDEST = 110  # columns: longer lines are hard to read
_NARROW = 24  # columns that a text in a table needs to be read

THEME = Theme({
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.h4": "italic",
    "markdown.link": "none",
    "markdown.link_url": "underline",
})  # fmt: skip


def page_as_shown(page: str, text: str) -> Markdown:
    """`text`, which stands on the page of this name."""

    def link(picture: str, words: str, target: str) -> str:
        name = "" if picture else page_at(page, target)
        if not name:
            words = f"picture: {words}" if picture else words
            return words if target.startswith("#") else f"[{words}]({address_of(page, target)})"
        same = words.strip("`").lower().removesuffix(".md") in (name, name.rpartition("/")[2]) or name == page
        return words if same else f"{words} {ARROW}{name})"

    return _Page(with_links(text, link).replace("<br>", " · "), code_theme="ansi_dark")


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Set in, each line whole: the terminal breaks it where it must, and it can be copied as it was written."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax("", self.lexer_name, theme=self.theme, background_color="default").highlight(
            str(self.text).rstrip()
        )
        for line in code.split("\n", allow_blank=True):
            yield Text("  ", no_wrap=True, overflow="ignore").append_text(line)


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        columns = list(zip(heads, *rows, strict=True))
        if sum(map(_needed, columns)) + 2 * len(heads) > options.max_width:
            yield from _as_list(heads, rows)
            return
        table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, header_style="bold")
        for head, *cells in columns:
            justify = "right" if cells and cells[0].justify == "right" else "left"
            table.add_column(head, min_width=_longest_word((head, *cells)), overflow="fold", justify=justify)
        for row in rows:
            table.add_row(*row)
        yield table


def _needed(column: Sequence[Text]) -> int:
    """Columns of the terminal that a column takes: its longest word, and of a long text enough to be read."""
    return max(_longest_word(column), min(_NARROW, max(cell.cell_len for cell in column)))


def _longest_word(column: Sequence[Text]) -> int:
    return max((cell_len(word) for cell in column for word in cell.plain.split()), default=0)


def _as_list(heads: Sequence[Text], rows: Sequence[Sequence[Text]]) -> Iterator[Text | Padding]:
    """Each row's first cell, and below it the others behind the headings of their columns."""
    for row in rows:
        first = row[0].copy()
        first.stylize("bold")
        yield first
        for head, cell in zip(heads[1:], row[1:], strict=True):
            if cell.plain.strip():
                heading = f"{head.plain}: " if head.plain.strip() else ""
                yield Padding(Text.assemble((heading, "dim"), cell), (0, 0, 0, 4))


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }
