"""The results of a study as text, Markdown, LaTeX, CSV and an HTML page, from its run folders or its compact form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isentrope.analysis import tables as written
from isentrope.analysis.tables import Table, markdown_safe, one_line, spreadsheet_safe
from isentrope.charts.grid import grid_file, grid_in_page
from isentrope.charts.svg import picture
from isentrope.charts.text import clipped, safe
from isentrope.metrics.temperature import marked
from isentrope.report.shell import document, figure, nav, section
from isentrope.runs.atomic import write_atomically
from isentrope.study.cells import shared_settings
from isentrope.study.curves import charts
from isentrope.study.grid import NOTE, PICTURE, TITLE, as_table, make_grid
from isentrope.study.measures import Measure
from isentrope.study.read import DONE, StudyData
from isentrope.study.tables import TITLES, Counted, Figure, Over, StudyTable, make_tables, notes, state

FILES = {"md": "tables.md", "latex": "tables.tex", "html": "index.html", "csv": "tables.csv"}
_CSV_HEAD = (
    "table", "cell", "tags", "against", "measure", "seeds", "reached", "value", "low", "high", "by_seed", "note",
)  # fmt: skip
_FOOT = "Written by Isentrope from the files in the runs' folders."
_SETTINGS_SHOWN = 400  # letters of a cell's settings


def render(data: StudyData, form: str) -> str:
    return FORMS[form](data)


def write_results(data: StudyData, folder: Path) -> list[Path]:
    """All forms, and the curves as SVG."""
    files = {name: render(data, form) for form, name in FILES.items()}
    if (grid := make_grid(data)) is not None:
        files[PICTURE] = grid_file(as_table(grid))
    files |= {f"{one.name}.svg": picture(one.chart) for one in charts(data)}
    for name, told in files.items():
        write_atomically(folder / name, told.encode("utf-8", "replace"))
    return [folder / name for name in files]


def lines_of(table: StudyTable) -> Table:
    """The table as text. A column that no row has is left out."""
    used = [n for n in range(len(table.measures)) if any(row.figures[n] is not None for row in table.rows)]
    head = [*table.names, *(one_line(table.measures[n].title) for n in used)]
    rows: list[list[str]] = []
    for row in table.rows:
        against = [one_line(row.against)] if "against" in table.names else []
        seeds = str(row.seeds) if row.seeds == row.planned else f"{row.seeds} of {row.planned}"
        figures = [_figure(row.figures[n], table.measures[n], table.differences) for n in used]
        rows.append([marked(one_line(row.cell), row.note), *against, seeds, *figures])
    return Table(head, rows, len(table.names) - 1)


def _figure(figure: Figure, measure: Measure, signed: bool) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, Counted):
        told = "-" if figure.value is None else _number(figure.value, measure)
        return f"{told} ({figure.reached}/{len(figure.by_seed)})"
    told = _number(figure.value, measure, signed)
    if figure.low is not None and figure.high is not None:
        return f"{told} [{_number(figure.low, measure)}, {_number(figure.high, measure)}]"
    if len(figure.by_seed) == 1:
        return told
    return f"{told} ({' and '.join(_number(value, measure, signed) for value in figure.by_seed.values())})"


def _number(value: float, measure: Measure, signed: bool = False) -> str:
    shown = round(value * measure.scale, measure.places) + 0.0  # a zero has no sign
    return f"{'+' if signed and shown > 0 else ''}{shown:.{measure.places}f}"


def _legend(measures: Sequence[Measure]) -> str:
    return "; ".join(f"{measure.title}: {measure.meaning}" for measure in measures) + "."


def _text(data: StudyData) -> str:
    tables = [f"{table.title}\n\n{written.text(lines_of(table))}" for table in make_tables(data)]
    told = "\n".join(one_line(note) for note in notes(data))
    return "\n\n".join([f"{one_line(data.name)}: {state(data)}", *tables, told]) + "\n"


def _markdown(data: StudyData) -> str:
    blocks = [f"# {markdown_safe(one_line(data.name))}", state(data)]
    for table in make_tables(data):
        blocks.append(markdown_table(table))
        if not table.differences:
            blocks.append(markdown_safe(_legend(table.measures)))
    return "\n\n".join([*blocks, markdown_notes(data)]) + "\n"


def markdown_table(table: StudyTable) -> str:
    return f"**{table.title}**\n\n{written.markdown(lines_of(table))}"


def markdown_notes(data: StudyData) -> str:
    return "\n".join(f"- {markdown_safe(one_line(note))}" for note in notes(data))


def _latex(data: StudyData) -> str:
    """The notes as comments."""
    told = "\n".join(f"% {one_line(note)}" for note in (data.name, state(data), *notes(data)))
    tables = [f"% {table.title}\n{written.latex(lines_of(table))}" for table in make_tables(data)]
    return "\n\n".join([told, *tables]) + "\n"


def _csv(data: StudyData) -> str:
    """A line for each cell and measure, in the measure's own unit: what a program reads. Fewer than three seeds have no
    low and no high; by_seed has what each seed has, as in 0=0.84 1=0.86, `never` where it did not get there."""
    rows: list[list[str]] = []
    for table in make_tables(data):
        for row in table.rows:
            tags = " ".join(f"{key}={value}" for key, value in row.tags.items())
            *names, note = (spreadsheet_safe(one_line(name)) for name in (row.cell, tags, row.against, row.note))
            rows += [
                [table.key, *names, measure.key, *_cells(figure), note]
                for measure, figure in zip(table.measures, row.figures, strict=True)
                if figure is not None
            ]
    return written.csv_text(_CSV_HEAD, rows)


def _cells(figure: Over | Counted) -> list[str]:
    if isinstance(figure, Counted):
        told = [str(figure.reached), _exact(figure.value), "", ""]
    else:
        told = ["", *(_exact(value) for value in (figure.value, figure.low, figure.high))]
    seeds = [f"{seed}={'never' if value is None else _exact(value)}" for seed, value in figure.by_seed.items()]
    return [str(len(seeds)), *told, " ".join(seeds)]


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _page(data: StudyData) -> str:
    """Tables and curves in one HTML file."""
    tables, grid = make_tables(data), make_grid(data)
    sections = {title: "".join(_card(one) for one in tables if one.key == kind) for kind, title in TITLES.items()}
    if grid is not None:
        drawn = f'<p class="small">{NOTE}</p><div class="scroll">{grid_in_page(as_table(grid))}</div>'
        sections[TITLE] = f'<div class="card said">{drawn}</div>{sections[TITLE]}'
    drawn = "".join(figure(one.chart) for one in charts(data))
    sections["Curves"] = f'<div class="grid">{drawn}</div>' if drawn else ""
    sections["Cells"] = _settings(data)
    told = "".join(f"<li>{safe(note)}</li>" for note in notes(data))
    head = f"<header><h1>{safe(data.name)}</h1></header>"
    head += f'<div class="card said"><h3>{safe(state(data))}</h3><ul class="notes">{told}</ul></div>'
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    return document(data.name, nav([title for title, inside in sections.items() if inside]) + head + body, _FOOT)


def _card(table: StudyTable) -> str:
    lines = lines_of(table)
    head, *rows = [[safe(cell) for cell in row] for row in (lines.head, *lines.rows)]
    made = written.html(head, rows, "dense")
    told = "" if table.differences else f'<p class="small">{safe(_legend(table.measures))}</p>'
    return f'<div class="card table"><h3>{safe(table.title)}</h3><div class="scroll">{made}</div>{told}</div>'


def _settings(data: StudyData) -> str:
    """Each cell with its tags and what it sets by itself."""
    common = shared_settings(data.study.cells)
    rows: list[list[str]] = []
    for cell in data.study.cells:
        tags = ", ".join(f"{key}={value}" for key, value in cell.tags.items())
        done = f"{len(data.cell(cell.name, DONE))} of {len(cell.seeds)}"
        own = clipped(" ".join(cell.settings[len(common) :]), _SETTINGS_SHOWN)
        rows.append([safe(cell.name), safe(tags), done, safe(own)])
    made = written.html(("cell", "tags", "seeds done", "settings of its own"), rows, "settings-table dense")
    told = f'<p class="small">All runs: {safe(" ".join(common) or "as the recipe says")}</p>'
    return f'<div class="card table">{told}<div class="scroll">{made}</div></div>'


FORMS = {"text": _text, "md": _markdown, "latex": _latex, "html": _page, "csv": _csv}
