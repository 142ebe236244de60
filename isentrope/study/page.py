"""The page of a study: its tables and curves in one HTML file."""

from __future__ import annotations

from collections.abc import Sequence

from isentrope.charts.grid import grid_in_page
from isentrope.charts.text import clipped, safe
from isentrope.report.shell import document, figure, nav, section
from isentrope.study.cells import shared_settings
from isentrope.study.curves import charts
from isentrope.study.grid import NOTE, TITLE, as_table, make_grid
from isentrope.study.read import DONE, StudyData
from isentrope.study.tables import TITLES, notes, state

_FOOT = "Written by Isentrope from the files in the runs' folders."
_MOST_SETTINGS = 400


def page(data: StudyData, tables: Sequence[tuple[str, str]]) -> str:
    """`tables` has the kind of each table and its markup."""
    sections = {title: "".join(made for key, made in tables if key == kind) for kind, title in TITLES.items()}
    sections[TITLE] = _grid(data) + sections[TITLE]
    drawn = "".join(figure(one.chart) for one in charts(data))
    sections["Curves"] = f'<div class="grid">{drawn}</div>' if drawn else ""
    sections["Cells"] = _cells(data)
    told = "".join(f"<li>{safe(note)}</li>" for note in notes(data))
    head = f"<header><h1>{safe(data.name)}</h1></header>"
    head += f'<div class="card said"><h3>{safe(state(data))}</h3><ul class="notes">{told}</ul></div>'
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    return document(data.name, nav([title for title, inside in sections.items() if inside]) + head + body, _FOOT)


def _grid(data: StudyData) -> str:
    grid = make_grid(data)
    if grid is None:
        return ""
    drawn = grid_in_page(as_table(grid))
    return f'<div class="card said"><p class="small">{NOTE}</p><div class="scroll">{drawn}</div></div>'


def _cells(data: StudyData) -> str:
    common = shared_settings(data.study.cells)
    rows = "".join(
        f'<tr><th scope="row">{safe(cell.name)}</th>'
        f"<td>{safe(', '.join(f'{key}={value}' for key, value in cell.tags.items()))}</td>"
        f"<td>{len(data.cell(cell.name, DONE))} of {len(cell.seeds)}</td>"
        f"<td>{safe(clipped(' '.join(cell.settings[len(common) :]), _MOST_SETTINGS))}</td></tr>"
        for cell in data.study.cells
    )
    head = "<tr><th>cell</th><th>tags</th><th>seeds done</th><th>settings of its own</th></tr>"
    table = f'<table class="settings-table dense"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    told = f'<p class="small">All runs: {safe(" ".join(common) or "as the recipe says")}</p>'
    return f'<div class="card table">{told}<div class="scroll">{table}</div></div>'
