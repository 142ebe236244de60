"""Tables as text, Markdown, LaTeX, CSV and JSON. Names come from files and are made harmless in each.

Figures have one decimal, returns two. Several seeds: mean ± standard deviation over seeds. One: the 95 % interval
over its games.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict

from rich.cells import cell_len

from isentrope.results.layout import ALL, AVERAGE, BEST, CONVERGED, DIFFERENCE, KIND, Cell, ResultTable, TableRow

TITLES = {
    ALL: "All",
    AVERAGE: "Avg.",
    "score": "Score",
    BEST: "Succ.*",
    CONVERGED: "Succ.",
    "return": "Return",
    "turns": "Turns",
    "valid_ratio": "Valid",
    "response_tokens": "Tokens",
    DIFFERENCE: "Difference",
}
_WITH_INTERVAL = (ALL, DIFFERENCE)
_ACTING = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # characters that act instead of being seen
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "[": "{[}", "]": "{]}",
}  # fmt: skip
_MARKDOWN = set("\\`*_{}[]<>()#+!|~&$")


def render(tables: Sequence[ResultTable], form: str, intervals: bool = False) -> str:
    """`intervals`: show them for the types too, where there is room."""
    return FORMATS[form](tables, intervals)


def one_line(text: str) -> str:
    """`text` without line breaks and without characters that act on a terminal or on the reading direction."""
    return " ".join("".join(c if unicodedata.category(c) not in _ACTING else " " for c in text).split())


def title_of(column: str) -> str:
    return one_line(column.removeprefix(KIND)) if column.startswith(KIND) else TITLES[column]


def figure(cell: Cell | None, column: str, intervals: bool, plus_minus: str = "±") -> str:
    if cell is None:
        return "-"
    places = 2 if column == "return" else 1
    value = round(cell.value, places) + 0.0  # a zero has no sign
    text = f"{value:+.1f}" if column == DIFFERENCE else f"{value:.{places}f}"
    if cell.std is not None:
        return f"{text} {plus_minus} {cell.std:.{places}f}"
    if cell.low is not None and cell.high is not None and (intervals or column in _WITH_INTERVAL):
        return f"{text} [{cell.low:.1f}, {cell.high:.1f}]"
    return text


def _lines(table: ResultTable, intervals: bool, plus_minus: str = "±") -> tuple[list[str], list[list[str]]]:
    head = ["row", "seeds", "games", *(title_of(column) for column in table.columns)]
    return head, [
        [
            one_line(row.name),
            str(row.seeds or "-"),
            str(row.games or "-"),
            *(figure(row.cells.get(column), column, intervals, plus_minus) for column in table.columns),
        ]
        for row in table.rows
    ]


def _text(tables: Sequence[ResultTable], intervals: bool) -> str:
    blocks: list[str] = []
    for table in tables:
        lines = [one_line(table.split), "", *aligned(*_lines(table, intervals))]
        blocks.append("\n".join([*lines, *_notes(table, "\n{}", str)]))
    return "\n\n".join(blocks) + "\n"


def aligned(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table for the terminal: the first column to the left, the others to the right, a rule below the head."""
    widths = [max(cell_len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines: list[str] = []
    for line in (head, *rows):
        padded = [" " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)]
        first, *others = zip(line, padded, strict=True)
        lines.append("  ".join([first[0] + first[1], *(pad + text for text, pad in others)]).rstrip())
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _notes(table: ResultTable, form: str, escape: Callable[[str], str]) -> list[str]:
    lines = [form.format(escape(one_line(note))) for note in table.notes]
    return [lines[0], *(line.lstrip("\n") for line in lines[1:])] if lines else []


def _markdown(tables: Sequence[ResultTable], intervals: bool) -> str:
    blocks: list[str] = []
    for table in tables:
        head, rows = _lines(table, intervals)
        lines = [f"**{markdown_safe(one_line(table.split))}**, success in percent", ""]
        lines.append("| " + " | ".join(markdown_safe(text) for text in head) + " |")
        lines.append("|---|" + "---:|" * (len(head) - 1))
        lines += ["| " + " | ".join([markdown_safe(line[0]), *line[1:]]) + " |" for line in rows]
        blocks.append("\n".join([*lines, *_notes(table, "\n- {}", markdown_safe)]))
    return "\n\n".join(blocks) + "\n"


def markdown_safe(text: str) -> str:
    return "".join(f"\\{char}" if char in _MARKDOWN else char for char in text)


def _latex(tables: Sequence[ResultTable], intervals: bool) -> str:
    """Tabulars for the package booktabs, the notes as comments."""
    blocks: list[str] = []
    for table in tables:
        head, rows = _lines(table, intervals, r"$\pm$")
        lines = [f"% {one_line(table.split)}", *(f"% {one_line(note)}" for note in table.notes)]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
        lines.append(" & ".join(latex_safe(text) for text in head) + r" \\")
        lines.append(r"\midrule")
        lines += [
            " & ".join([latex_safe(line[0]), *(latex_figure(text) for text in line[1:])]) + r" \\" for line in rows
        ]
        blocks.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(blocks) + "\n"


def latex_safe(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def latex_figure(text: str) -> str:
    """Minus signs as such, and brackets kept away from a row's end, where LaTeX would read them as a length."""
    text = text.replace("[", "{[}").replace("]", "{]}")
    return "--" if text == "-" else text.replace("-", "$-$")


def _csv(tables: Sequence[ResultTable], _: bool) -> str:
    """A line for each split and row; each figure with its deviation and interval in columns of their own."""
    used = list(dict.fromkeys(column for table in tables for column in table.columns))
    parts = ("", " std", " low", " high")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"{title_of(column)}{part}" for column in used for part in parts]
    writer.writerow([spreadsheet_safe(text) for text in ("split", "row", "seeds", "games", "from paper", *heads)])
    for table in tables:
        for row in table.rows:
            names = [spreadsheet_safe(one_line(table.split)), spreadsheet_safe(one_line(row.name))]
            figures = [_number(value) for column in used for value in _values(row, column)]
            writer.writerow([*names, row.seeds or "", row.games or "", int(row.from_paper), *figures])
    return out.getvalue()


def _values(row: TableRow, column: str) -> tuple[float | None, ...]:
    cell = row.cells.get(column)
    return (None,) * 4 if cell is None else (cell.value, cell.std, cell.low, cell.high)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def spreadsheet_safe(text: str) -> str:
    """A name that a spreadsheet would take for a formula is given an apostrophe."""
    return f"'{text}" if text[:1] in tuple("=+-@＝＋－＠") else text


def _json(tables: Sequence[ResultTable], _: bool) -> str:
    return json.dumps([asdict(table) for table in tables], indent=1, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Sequence[ResultTable], bool], str]] = {
    "text": _text,
    "md": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
