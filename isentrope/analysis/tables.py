"""Writes tables for the terminal, as Markdown, LaTeX, CSV and HTML. The only table writer of the package.

Names come from files and are escaped in each form; figures are made by the program and stand as they are.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

_ACTING = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # characters that act instead of being seen
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "[": "{[}", "]": "{]}",
}  # fmt: skip
_MARKDOWN = set("\\`*_{}[]<>()#+!|~&$")


@dataclass(frozen=True)
class Table:
    """A head and rows of text, as `one_line` leaves it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1  # columns, from the left, that hold names; the others hold figures


def text(table: Table) -> str:
    """For the terminal: the first column to the left, the others to the right, a rule below the head."""
    from rich.cells import cell_len

    every = [table.head, *table.rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*every, strict=True)]
    lines: list[str] = []
    for row in every:
        pads = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        others = [pad + cell for cell, pad in zip(row[1:], pads[1:], strict=True)]
        lines.append("  ".join([row[0] + pads[0], *others]).rstrip())
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(table: Table) -> str:
    rows = [[*map(markdown_safe, row[: table.names]), *row[table.names :]] for row in table.rows]
    return markdown_table([markdown_safe(cell) for cell in table.head], rows, figures=True)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], figures: bool = False) -> str:
    """Of cells that are Markdown. `figures`: all columns but the first are set to the right."""
    top = f"| {' | '.join(head)} |".replace("|  |", "| |")
    rule = "|---|" + ("---:|" if figures else "---|") * (len(head) - 1)
    return "\n".join([top, rule, *(f"| {' | '.join(row)} |" for row in rows)])


def latex(table: Table) -> str:
    """A tabular for the package booktabs."""
    rows = [[*map(latex_safe, row[: table.names]), *map(latex_figure, row[table.names :])] for row in table.rows]
    head, *body = [" & ".join(row) + r" \\" for row in ([latex_safe(cell) for cell in table.head], *rows)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Names in it have to be made harmless (`spreadsheet_safe`); figures may begin with a minus."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((head, *rows))
    return out.getvalue()


def html(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Of cells that are markup. `kind`: CSS classes. The first cell of a row is its head."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in rows
    )
    classes = f' class="{kind}"' if kind else ""
    return f"<table{classes}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def rich_table(
    head: Sequence[str], rows: Iterable[Sequence[str | Text]], right: Sequence[str] = (), fold: bool = False,
    **options: Any,
) -> RichTable:  # fmt: skip
    """For the terminal, with a frame and colours. Strings stand as they are, without markup.

    `right`: heads of columns set to the right. `fold`: what is too long goes on in the next line, also within a word.
    `options`: those of rich's table.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title_justify="left", **options)
    for title in head:
        justify, overflow = "right" if title in right else "left", "fold" if fold else "ellipsis"
        table.add_column(title, justify=justify, overflow=overflow)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


# -- escaping of untrusted text


def one_line(text: str) -> str:
    """`text` without line breaks and without characters that act on a terminal or on the reading direction."""
    return " ".join("".join(c if unicodedata.category(c) not in _ACTING else " " for c in text).split())


def markdown_safe(text: str) -> str:
    return "".join(f"\\{char}" if char in _MARKDOWN else char for char in text)


def latex_safe(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def latex_figure(text: str) -> str:
    """Minus signs as such, and brackets kept away from a row's end, where LaTeX would read them as a length."""
    text = text.replace("±", r"$\pm$").replace("[", "{[}").replace("]", "{]}")
    return "--" if text == "-" else text.replace("-", "$-$")


def spreadsheet_safe(text: str) -> str:
    """A name that a spreadsheet would take for a formula is given an apostrophe."""
    return f"'{text}" if text[:1] in tuple("=+-@＝＋－＠") else text
