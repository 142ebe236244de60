"""The comparison of several runs: one HTML file, as the report of one run is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from isentrope.config.text import value_to_toml
from isentrope.errors import ConfigError, RunError
from isentrope.report.axes import COLORS
from isentrope.report.groups import Group, differences, grouped
from isentrope.report.overlay import SEEDS_BAND, figure_of, overlays
from isentrope.report.read import Run, read_run
from isentrope.report.shell import alarm_list, document, figure, key, nav, phase_key, section
from isentrope.report.story import check_run, diagnosis_of, story_of
from isentrope.report.strips import named, strips
from isentrope.report.text import clipped, safe
from isentrope.results.layout import KIND, ResultTable
from isentrope.results.render import figure as figure_text
from isentrope.results.render import title_of
from isentrope.results.rows import Row
from isentrope.results.source import Source, read_source
from isentrope.results.table import Choices, make_tables
from isentrope.rollout.files import write_atomically

_FOOT = "Written by Isentrope from the files in the runs' folders."
_MOST_VALUE = 160
_MOST_WORDS = 4000


def write_comparison(runs: Sequence[Path], rows: Mapping[str, Sequence[Path]], out: Path) -> Path:
    """Write the page and return its path."""
    write_atomically(out, comparison(read_groups(runs, rows)).encode("utf-8", "replace"))
    return out


def read_groups(runs: Sequence[Path], rows: Mapping[str, Sequence[Path]]) -> list[Group]:
    """`rows`: runs that are to be seeds of one line, by its name."""
    found = {path: read_run(path) for path in (*runs, *(path for row in rows.values() for path in row))}
    for run in found.values():
        check_run(run)
    alone = [found[path] for path in dict.fromkeys(runs)]
    return grouped(alone, {name: [found[path] for path in dict.fromkeys(row)] for name, row in rows.items()})


def comparison(groups: Sequence[Group]) -> str:
    runs = named(groups)
    sections = {"Results": _results(groups), "Phases and alarms": _stories(runs)}
    for title, drawn in overlays(groups).items():
        sizes = ["whole" if one.key.startswith("eval/") else "half" for one in drawn]
        figures = "".join(figure(figure_of(one, size)) for one, size in zip(drawn, sizes, strict=True))
        sections["Success" if title == "Learning" else title] = f'<div class="grid">{figures}</div>'
    sections["Settings"] = _settings(groups)
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    title = f"{len(runs)} runs"
    names = " · ".join(group.name for group in groups)
    head = f'<header><h1>{title}</h1><p class="names">{safe(clipped(names, 400))}</p></header>'
    page = nav([title for title, inside in sections.items() if inside]) + head + _lines(groups) + body
    return document(f"{title}: {clipped(names, 100)}", page, _FOOT)


def _lines(groups: Sequence[Group]) -> str:
    """Which line is which run, once for the whole page."""
    rows: list[str] = []
    for number, group in enumerate(groups):
        told = safe(_described(group.runs[0]))
        seeds = ", ".join(str(run.setting("run", "seed", "?")) for run in group.runs)
        several = f" · {len(group.runs)} seeds ({safe(clipped(seeds, 60))}): their mean" if len(group.runs) > 1 else ""
        rows.append(f'<li class="stroke">{key(number % COLORS)}<b>{safe(group.name)}</b>{several} · {told}</li>')
    notes = ["Lines are smoothed over a twentieth of the run where there are 25 steps or more."]
    if any(len(group.runs) > 1 for group in groups):
        seeds = "at the steps that all of them have"
        notes.insert(0, f"Runs that differ only in run.seed are drawn as one line, {seeds}; {SEEDS_BAND}.")
    if len(groups) > COLORS:
        notes.append(f"There are more lines than the {COLORS} colours and dashes, which begin anew.")
    return f'<div class="card said"><ul class="lines">{"".join(rows)}</ul><p class="small">{" ".join(notes)}</p></div>'


def _described(run: Run) -> str:
    methods = run.config.get("methods")
    parts = [run.setting("task", "world"), run.setting("policy", "model"), run.setting("learn", "algorithm")]
    if run.kind == "train" and isinstance(methods, list) and methods:
        parts.append(" + ".join(str(name) for name in cast("list[object]", methods)))
    return ", ".join(clipped(str(part), 80) for part in parts if part is not None) or "no settings"


def _results(groups: Sequence[Group]) -> str:
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
    head = "".join(f"<th>{safe(title_of(column))}</th>" for column in columns)
    rows = [
        f'<tr><th scope="row">{safe(row.name)}</th><td>{row.seeds or "-"}</td><td>{row.games or "-"}</td>'
        + "".join(f"<td>{safe(figure_text(row.cells.get(column), column, False))}</td>" for column in columns)
        + "</tr>"
        for row in table.rows
    ]
    several = any(row.seeds > 1 for row in table.rows)
    told = "Percent of the games solved at the last evaluation; in brackets the 95% interval over the games"
    told += ", of several seeds mean ± standard deviation over them." if several else "."
    notes = "".join(f"<li>{safe(clipped(note, 400))}</li>" for note in table.notes)
    return (
        f'<div class="card table"><h3>{safe(table.split)} games</h3><div class="scroll"><table><thead><tr><th>run</th>'
        f"<th>seeds</th><th>games</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="small">{told}</p><ul class="notes">{notes}</ul></div>'
    )


def _stories(runs: Sequence[tuple[str, Run]]) -> str:
    told = [(name, run, story_of(run)) for name, run in runs]
    wide, narrow = strips(told, 1060), strips(told, 420)
    parts: list[str] = []
    if wide:
        shading = phase_key({shade.name for _, _, story in told for shade in story.shades})
        parts.append(
            f'<figure class="card whole two strips"><h3>Where each run was</h3><ul class="legend">{shading}</ul>'
            f'<div class="picture"><div class="wide">{wide}</div><div class="narrow">{narrow}</div></div>'
            "<figcaption>From the first step to the last. Numbers are alarms, listed below.</figcaption></figure>"
        )
    for name, run, story in told:
        words = clipped(diagnosis_of(run).words(), _MOST_WORDS)
        if words or story.alarms:
            parts.append(
                f'<details class="card said" open><summary>{safe(name)}</summary><p>{safe(words)}</p>'
                f"{alarm_list(story.alarms)}</details>"
            )
    return "".join(parts)


def _settings(groups: Sequence[Group]) -> str:
    """A column for each line of the charts; where its seeds differ, all their values."""
    runs = [run for group in groups for run in group.runs]
    rows = differences(runs)
    if not rows:
        return '<p class="note">All settings are the same.</p>'
    head = "".join(f"<th>{safe(group.label)}</th>" for group in groups)
    lines: list[str] = []
    for name, values in rows.items():
        left = iter(values)
        cells = [[_value(next(left)) for _ in group.runs] for group in groups]
        texts = "".join(f"<td>{', '.join(cell if len(set(cell)) > 1 else cell[:1])}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{safe(name)}</th>{texts}</tr>')
    return (
        f'<div class="card scroll"><table class="settings-table"><thead><tr><th>setting</th>{head}</tr></thead>'
        f'<tbody>{"".join(lines)}</tbody></table><p class="small">Settings that are the same in all runs are left out.'
        "</p></div>"
    )


def _value(value: Any) -> str:
    return '<span class="try">not set</span>' if value is None else safe(clipped(value_to_toml(value), _MOST_VALUE))
