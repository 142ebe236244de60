"""The tables of a comparison: results, and the settings in which the runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isentrope.analysis.compare import Choices, make_tables
from isentrope.analysis.result_table import AVERAGE, BEST, KIND, ResultTable, lines_of
from isentrope.analysis.rows import Row
from isentrope.analysis.source import Source, read_source
from isentrope.analysis.tables import html
from isentrope.config.text import value_to_toml
from isentrope.core.errors import ConfigError, RunError
from isentrope.report.groups import Group, differences
from isentrope.report.text import clipped, safe

_MOST_VALUE = 160
_MANY_COLUMNS = 6  # more are set closer


def results(groups: Sequence[Group]) -> str:
    rows: list[Row] = []
    notes: list[str] = []
    for group in groups:
        sources: list[Source] = []
        for run in group.runs:
            try:
                sources.append(read_source(run.path))
            except RunError:
                notes.append(f"{run.name} has no evaluation that can be read.")
        rows += [Row(group.name, tuple(sources))] if sources else []
    if not rows:
        return ""
    try:
        tables = make_tables(rows, Choices(mixed=True))
    except (RunError, ConfigError) as error:
        return f'<p class="note">{safe(error)}</p>'
    parts = [_table(table) for table in tables]
    return "".join(parts) + "".join(f'<p class="note">{safe(note)}</p>' for note in notes)


def _table(table: ResultTable) -> str:
    columns = sorted(table.columns, key=lambda column: column.startswith(KIND))  # success over all first
    lines = lines_of(table, columns, first="run")
    names = [row.name for row in table.rows]
    rows = [[safe(name), *map(safe, row[1:])] for name, row in zip(names, lines.rows, strict=True)]
    made = html([safe(cell) for cell in lines.head], rows, "dense" if len(columns) > _MANY_COLUMNS else "")
    several = any(row.seeds > 1 for row in table.rows)
    told = "Percent of the games solved at the last evaluation; in brackets the 95% interval over the games"
    told += ", of several seeds mean ± standard deviation over them." if several else "."
    told += " Avg. is the mean over the task types." if AVERAGE in columns else ""
    told += " Succ.* is the best evaluation of a run, Succ. where it settled." if BEST in columns else ""
    merged = merged_notes(table.notes, names)
    notes = "".join(f"<li>{safe(clipped(note, 400))}</li>" for note in merged)
    return (
        f'<div class="card table"><h3>{safe(table.split)} games</h3><div class="scroll">{made}</div>'
        f'<p class="small">{told}</p><ul class="notes">{notes}</ul></div>'
    )


def merged_notes(notes: Sequence[str], rows: Sequence[str]) -> list[str]:
    """Notes "ROW: text" of the same text as one; what holds for every row needs no names."""
    told: dict[str, list[str]] = {}
    longest_first = sorted(rows, key=len, reverse=True)
    for note in notes:
        row = next((name for name in longest_first if note.startswith(f"{name}: ")), None)
        told.setdefault(note if row is None else note[len(row) + 2 :], []).extend([] if row is None else [row])
    every = set(rows) if len(rows) > 1 else set[str]()
    return [f"{', '.join(who)}: {text}" if who and set(who) != every else text for text, who in told.items()]


def settings(groups: Sequence[Group]) -> str:
    """A column for each line of the charts, or a row if there are more lines than settings; all values of its seeds."""
    rows = differences([run for group in groups for run in group.runs])
    if not rows:
        return '<p class="note">All settings are the same.</p>'
    columns: list[list[str]] = []
    for values in rows.values():
        left = iter(values)
        cells = [[_value(next(left)) for _ in group.runs] for group in groups]
        columns.append([", ".join(cell if len(set(cell)) > 1 else cell[:1]) for cell in cells])
    labels, names = [group.label for group in groups], list(rows)
    if len(labels) > len(names):
        corner, head, body = "run", names, zip(labels, zip(*columns, strict=True), strict=True)
    else:
        corner, head, body = "setting", labels, zip(names, columns, strict=True)
    made = [(safe(name), *cells) for name, cells in body]  # values are markup; names are not
    table = html([corner, *map(safe, head)], made, "settings-table")
    told = "Settings that are the same in all runs are left out."
    return f'<div class="card scroll">{table}<p class="small">{told}</p></div>'


def _value(value: Any) -> str:
    return '<span class="try">not set</span>' if value is None else safe(clipped(value_to_toml(value), _MOST_VALUE))
