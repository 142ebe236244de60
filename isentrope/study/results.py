"""The results of a study as text, Markdown, LaTeX, HTML and CSV, from its run folders or its compact form alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from isentrope.charts.grid import grid_file
from isentrope.charts.text import safe
from isentrope.metrics.temperature import marked
from isentrope.results.render import aligned, latex_figure, latex_safe, markdown_safe, one_line, spreadsheet_safe
from isentrope.rollout.files import write_atomically
from isentrope.study.curves import write_curves
from isentrope.study.grid import PICTURE, as_table, make_grid
from isentrope.study.measure_list import Measure
from isentrope.study.page import page
from isentrope.study.read import StudyData
from isentrope.study.tables import Counted, Figure, Over, Row, StudyTable, make_tables, notes, state

FILES = {"md": "tables.md", "latex": "tables.tex", "html": "index.html", "csv": "tables.csv"}


def render(data: StudyData, form: str) -> str:
    return FORMS[form](data)


def write_results(data: StudyData, folder: Path) -> list[Path]:
    """All forms, and the curves as SVG."""
    paths: list[Path] = []
    for form, name in FILES.items():
        write_atomically(folder / name, render(data, form).encode("utf-8", "replace"))
        paths.append(folder / name)
    grid = make_grid(data)
    if grid is not None:
        write_atomically(folder / PICTURE, grid_file(as_table(grid)).encode("utf-8", "replace"))
        paths.append(folder / PICTURE)
    return paths + write_curves(data, folder)


def lines_of(table: StudyTable) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table as text. A column that no row has is left out."""
    used = [n for n in range(len(table.measures)) if any(row.figures[n] is not None for row in table.rows)]
    head = [*table.names, *(one_line(table.measures[n].title) for n in used)]
    rows = [[*_names(table, row), *(_text(row.figures[n], table, n) for n in used)] for row in table.rows]
    return head, rows


def _names(table: StudyTable, row: Row) -> list[str]:
    seeds = str(row.seeds) if row.seeds == row.planned else f"{row.seeds} of {row.planned}"
    return [marked(one_line(row.cell), row.note), *([one_line(row.against)] if "against" in table.names else []), seeds]


def _names_in(table: StudyTable) -> int:
    """How many columns hold names, which come from files."""
    return len(table.names) - 1


def _text(figure: Figure, table: StudyTable, number: int) -> str:
    measure = table.measures[number]
    if figure is None:
        return "-"
    if isinstance(figure, Counted):
        told = "-" if figure.value is None else _number(figure.value, measure)
        return f"{told} ({figure.reached}/{len(figure.by_seed)})"
    told = _number(figure.value, measure, signed=table.differences)
    if figure.low is not None and figure.high is not None:
        return f"{told} [{_number(figure.low, measure)}, {_number(figure.high, measure)}]"
    if len(figure.by_seed) == 1:
        return told
    return f"{told} ({' and '.join(_number(value, measure, table.differences) for value in figure.by_seed.values())})"


def _number(value: float, measure: Measure, signed: bool = False) -> str:
    shown = round(value * measure.scale, measure.places) + 0.0  # a zero has no sign
    return f"{'+' if signed and shown > 0 else ''}{shown:.{measure.places}f}"


def _plain_text(data: StudyData) -> str:
    blocks = [f"{one_line(data.name)}: {state(data)}"]
    for table in make_tables(data):
        blocks.append("\n".join([table.title, "", *aligned(*lines_of(table))]))
    return "\n\n".join([*blocks, "\n".join(one_line(note) for note in notes(data))]) + "\n"


def _markdown(data: StudyData) -> str:
    blocks = [f"# {markdown_safe(one_line(data.name))}", state(data)]
    for table in make_tables(data):
        blocks.append(markdown_table(table))
        if not table.differences:
            blocks.append(markdown_safe(_legend(table.measures)))
    blocks.append(markdown_notes(data))
    return "\n\n".join(blocks) + "\n"


def markdown_table(table: StudyTable) -> str:
    head, rows = lines_of(table)
    top = " | ".join(markdown_safe(text) for text in head)
    lines = [f"**{table.title}**", "", f"| {top} |", "|---|" + "---:|" * (len(head) - 1)]
    names = _names_in(table)
    told = [[*(markdown_safe(text) for text in row[:names]), *row[names:]] for row in rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in told)])


def markdown_notes(data: StudyData) -> str:
    return "\n".join(f"- {markdown_safe(one_line(note))}" for note in notes(data))


def _legend(measures: Sequence[Measure]) -> str:
    return "; ".join(f"{measure.title}: {measure.meaning}" for measure in measures) + "."


def _latex(data: StudyData) -> str:
    """Tabulars for the package booktabs, the notes as comments."""
    blocks = ["\n".join(f"% {one_line(note)}" for note in (data.name, state(data), *notes(data)))]
    for table in make_tables(data):
        head, rows = lines_of(table)
        lines = [f"% {table.title}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
        lines += [" & ".join(latex_safe(text) for text in head) + r" \\", r"\midrule"]
        names = _names_in(table)
        lines += [
            " & ".join([*(latex_safe(text) for text in row[:names]), *(latex_figure(text) for text in row[names:])])
            + r" \\"
            for row in rows
        ]
        blocks.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(blocks) + "\n"


def _csv(data: StudyData) -> str:
    """A line for each cell and measure, in the measure's own unit: what a program reads. Fewer than three seeds have no
    low and no high; by_seed has what each seed has, as in 0=0.84 1=0.86, `never` where it did not get there."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["table", "cell", "tags", "against", "measure", "seeds", "reached", "value", "low", "high", "by_seed", "note"]
    )
    for table in make_tables(data):
        for row in table.rows:
            tags = " ".join(f"{key}={value}" for key, value in row.tags.items())
            names = [spreadsheet_safe(one_line(text)) for text in (row.cell, tags, row.against)]
            for measure, figure in zip(table.measures, row.figures, strict=True):
                if figure is not None:
                    note = spreadsheet_safe(one_line(row.note))
                    writer.writerow([table.key, *names, measure.key, *_cells(figure), note])
    return out.getvalue()


def _cells(figure: Over | Counted) -> list[str]:
    if isinstance(figure, Counted):
        told = [str(figure.reached), _exact(figure.value), "", ""]
    else:
        told = ["", *(_exact(value) for value in (figure.value, figure.low, figure.high))]
    seeds = [f"{seed}={'never' if value is None else _exact(value)}" for seed, value in figure.by_seed.items()]
    return [str(len(seeds)), *told, " ".join(seeds)]


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _html(data: StudyData) -> str:
    return page(data, [_html_table(table) for table in make_tables(data)])


def _html_table(table: StudyTable) -> tuple[str, str]:
    head, rows = lines_of(table)
    top = "".join(f"<th>{safe(text)}</th>" for text in head)
    body = "".join(
        f'<tr><th scope="row">{safe(row[0])}</th>{"".join(f"<td>{safe(text)}</td>" for text in row[1:])}</tr>'
        for row in rows
    )
    told = "" if table.differences else f'<p class="small">{safe(_legend(table.measures))}</p>'
    return table.key, (
        f'<div class="card table"><h3>{safe(table.title)}</h3><div class="scroll"><table class="dense"><thead><tr>{top}'
        f"</tr></thead><tbody>{body}</tbody></table></div>{told}</div>"
    )


FORMS: dict[str, Callable[[StudyData], str]] = {
    "text": _plain_text,
    "md": _markdown,
    "latex": _latex,
    "html": _html,
    "csv": _csv,
}
