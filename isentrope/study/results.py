"""The results of a study as text, Markdown, LaTeX, CSV and an HTML page, from its run folders or its compact form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from isentrope.analysis import tables as written
from isentrope.analysis.tables import Table, markdown_safe, one_line, spreadsheet_safe
from isentrope.charts.forest import Row, forest_in_page
from isentrope.charts.grid import grid_file, grid_in_page
from isentrope.charts.svg import picture
from isentrope.charts.text import clipped, safe
from isentrope.core.stats import bootstrap
from isentrope.metrics.temperature import marked
from isentrope.report.shell import document, figure, nav, section
from isentrope.runs.atomic import write_atomically
from isentrope.study.cells import shared_settings
from isentrope.study.curves import Drawn, charts
from isentrope.study.grid import NOTE, PICTURE, TITLE, as_table, differences, make_grid
from isentrope.study.measures import Measure
from isentrope.study.read import DONE, StudyData
from isentrope.study.tables import LEAST_SEEDS, TITLES, Counted, Figure, Over, StudyTable, make_tables, notes, state

FILES = {"md": "tables.md", "latex": "tables.tex", "html": "index.html", "csv": "tables.csv"}
_CSV_HEAD = (
    "table", "cell", "tags", "against", "measure", "seeds", "reached", "value", "low", "high", "by_seed", "note",
)  # fmt: skip
_FOOT = "Written by Isentrope from the files in the runs' folders."
_MOST_NAME, _MOST_ROWS, _MOST_FACTS = 60, 40, 6
_FOREST_NOTE = (
    "Succ. less that of the cell it is compared with, paired by seed, with its 95 % interval; "
    "filled and thick: the interval leaves zero out"
)
_MARKS = "▲ above and ▼ below: the 95 % interval leaves zero out."
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
    """Tables and curves in one HTML file, its picture first."""
    tables, curves = make_tables(data), list(charts(data))
    sections = {title: "".join(_card(one) for one in tables if one.key == kind) for kind, title in TITLES.items()}
    drawn = "".join(figure(one.chart) for one in curves)
    sections["Curves"] = f'<div class="grid">{drawn}</div>' if drawn else ""
    sections["Cells"] = _settings(data)
    sections["How it was run"] = _machines(data)
    told = "".join(f"<li>{safe(note)}</li>" for note in notes(data))
    head = f'<header><h1>{safe(data.name)}</h1><p class="names">{safe(state(data))}</p></header>'
    head += _picture(data, curves)
    head += (
        f'<details class="card said"><summary>How to read the tables</summary><ul class="notes">{told}</ul></details>'
    )
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    return document(data.name, nav([title for title, inside in sections.items() if inside]) + head + body, _FOOT)


def _picture(data: StudyData, curves: Sequence[Drawn]) -> str:
    """What the study says at one look: the grid of changes, else the differences to the baselines, else success."""
    if (grid := make_grid(data)) is not None:
        return _pictured(TITLE, NOTE, grid_in_page(as_table(grid)))
    rows: list[Row] = []
    for cell in data.study.cells:
        found = bootstrap(list(pairs.values())) if len(pairs := differences(data, cell)) >= LEAST_SEEDS else None
        if found is not None and found.interval is not None:
            value, ends = 100 * found.value, found.interval
            name = clipped(f"{cell.name} − {cell.against}", _MOST_NAME)
            rows.append(Row(name, value, 100 * ends.low, 100 * ends.high, found.count))
    if 0 < len(rows) <= _MOST_ROWS:
        title = "Differences in success"
        return _pictured(title, _FOREST_NOTE, forest_in_page(title, "points of success (Succ.)", rows))
    success = next((one.chart for one in curves if one.chart.key.startswith("eval/")), None)
    return f'<div class="grid first">{figure(success, "whole")}</div>' if success is not None else ""


def _pictured(title: str, note: str, drawn: str) -> str:
    told = f'<h3>{safe(title)}</h3><p class="small">{safe(note[0].upper() + note[1:])}.</p>'
    return f'<div class="card said">{told}<div class="scroll">{drawn}</div></div>'


def _machines(data: StudyData) -> str:
    """On what, when, by which versions and commands, as far as the runs recorded it."""
    runs = [run for run in (*data.warmups.values(), *data.runs) if run.begun]
    dates = sorted(run.begun[:10] for run in runs)
    told = {"begun": dates[0] if dates[:1] == dates[-1:] else f"{dates[0]} to {dates[-1]}"} if dates else {}
    facts = {"machine": [run.machine for run in runs], "versions": [run.versions or run.version for run in runs]}
    for name, every in facts.items():
        counts = Counter(filter(None, (f"isentrope {one}" if one[:1].isdigit() else one for one in every)))
        words = [
            text if len(counts) == 1 else f"{text} ({count} runs)" for text, count in counts.most_common(_MOST_FACTS)
        ]
        told |= {name: "; ".join(words)} if words else {}
    rows = "".join(f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in told.items())
    commands = [f"<h4>{safe(run.name)}</h4><pre>{safe(run.command)}</pre>" for run in runs if run.command][:1]
    return f'<div class="card started"><dl class="facts-row">{rows}</dl>{"".join(commands)}</div>' if rows else ""


def _card(table: StudyTable) -> str:
    lines = lines_of(table)
    signs = _signs(table)
    head = [safe(cell) for cell in lines.head]
    rows = [
        [_shown(cell, sign) for cell, sign in zip(row, marks, strict=True)]
        for row, marks in zip(lines.rows, signs, strict=True)
    ]
    made = written.html(head, rows, "dense")
    told = _MARKS if any(map(any, signs)) else "" if table.differences else safe(_legend(table.measures))
    told = f'<p class="small">{told}</p>' if told else ""
    return f'<div class="card table"><h3>{safe(table.title)}</h3><div class="scroll">{made}</div>{told}</div>'


def _signs(table: StudyTable) -> list[list[int]]:
    """Of each cell of the written table: 1 or -1 where it is a difference whose interval leaves zero out, else 0."""
    used = [n for n in range(len(table.measures)) if any(row.figures[n] is not None for row in table.rows)]
    names = [0] * len(table.names)
    return [names + [_sign(row.figures[n]) if table.differences else 0 for n in used] for row in table.rows]


def _sign(figure: Figure) -> int:
    if not isinstance(figure, Over) or figure.low is None or figure.high is None:
        return 0
    return int(figure.low > 0) - int(figure.high < 0)


def _shown(text: str, sign: int) -> str:
    """A figure and its interval, between which a line may end."""
    value, bracket, rest = text.partition(" [")
    told = safe(value) + (f' <span class="ends">[{safe(rest)}</span>' if bracket else "")
    return f'<b class="clear">{"▲" if sign > 0 else "▼"}\u00a0{told}</b>' if sign else told


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
