"""The comparison of several runs: one HTML file, as the report of one run is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.compare import Choices, make_tables
from isentrope.analysis.result_table import AVERAGE, BEST, KIND, ResultTable, lines_of
from isentrope.analysis.rows import Row, Source, read_source
from isentrope.analysis.tables import html
from isentrope.charts.chart import COLORS
from isentrope.charts.svg import Strip, key, strips
from isentrope.charts.text import clipped, safe, unbroken
from isentrope.config.text import value_to_toml
from isentrope.core.errors import ConfigError, RunError
from isentrope.diagnosis.doctor import diagnose
from isentrope.metrics.temperature import MARK, entropy_temperature
from isentrope.report.groups import Group, differences, grouped
from isentrope.report.overlay import SEEDS_BAND, overlays
from isentrope.report.shell import alarm_list, document, figure, nav, phase_key, section
from isentrope.report.story import open_run, story_of
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import Run, leaves

_FOOT = "Written by Isentrope from the files in the runs' folders."
_MOST_WORDS = 4000
_MOST_LETTERS = 240  # of the names under each chart
_MOST_OPEN = 6  # of so many runs everything is said at once, of more on demand
_MOST_VALUE = 160  # letters of a setting
_MANY_COLUMNS = 6  # more are set closer


def write_comparison(runs: Sequence[Path], rows: Mapping[str, Sequence[Path]], out: Path) -> Path:
    write_atomically(out, comparison(read_groups(runs, rows)).encode("utf-8", "replace"))
    return out


def read_groups(runs: Sequence[Path], rows: Mapping[str, Sequence[Path]]) -> list[Group]:
    """`rows`: runs that are to be seeds of one line, by its name."""
    found = {path: open_run(path) for path in (*runs, *(path for row in rows.values() for path in row))}
    alone = [found[path] for path in dict.fromkeys(runs)]
    return grouped(alone, {name: [found[path] for path in dict.fromkeys(row)] for name, row in rows.items()})


def comparison(groups: Sequence[Group]) -> str:
    runs = named(groups)
    # whether every chart can name its lines; else the names would take more room than the lines
    short = sum(len(group.label) + 6 for group in groups) <= _MOST_LETTERS
    sections = {"Results": results(groups), "Phases and alarms": _stories(runs)}
    for title, drawn in overlays(groups).items():
        sizes = ["whole" if one.key.startswith("eval/") else "half" for one in drawn]
        figures = "".join(figure(one, size, named=short) for one, size in zip(drawn, sizes, strict=True))
        sections["Success" if title == "Learning" else title] = f'<div class="grid">{figures}</div>'
    sections["Settings"] = settings(groups)
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    title = f"{len(runs)} runs"
    names = " · ".join(group.name for group in groups)
    told = f'<p class="names">{safe(clipped(names, 400))}</p>' if short else ""
    head = f"<header><h1>{title}</h1>{told}</header>"
    page = nav([title for title, inside in sections.items() if inside]) + head + _lines(groups, short) + body
    return document(f"{title}: {clipped(names, 100)}", page, _FOOT)


def _lines(groups: Sequence[Group], short: bool) -> str:
    """Which line is which run, once for the whole page."""
    rows: list[str] = []
    for number, group in enumerate(groups):
        heats = (entropy_temperature(leaves(run.config), run.of_kind("train")) for run in group.runs)
        heat = next(filter(None, heats), "")
        told = safe(_described(group.runs[0])) + (f" · {MARK} {safe(heat)}" if heat else "")
        seeds = ", ".join(str(run.setting("run.seed", "?")) for run in group.runs)
        several = f" · {len(group.runs)} seeds ({safe(clipped(seeds, 60))}): their mean" if len(group.runs) > 1 else ""
        rows.append(f'<li class="stroke">{key(number % COLORS)}<b>{safe(group.name)}</b>{several} · {told}</li>')
    notes = ["Lines are smoothed over a twentieth of the run where there are 25 steps or more."]
    if any(len(group.runs) > 1 for group in groups):
        seeds = "at the steps that all of them have"
        notes.insert(0, f"Runs that differ only in run.seed are drawn as one line, {seeds}; {SEEDS_BAND}.")
    if not short:
        notes.append("Small charts leave the names out; rest the pointer on one for them.")
    if len(groups) > COLORS:
        notes.append(f"There are more lines than the {COLORS} colours and dashes, which begin anew.")
    return f'<div class="card said"><ul class="lines">{"".join(rows)}</ul><p class="small">{" ".join(notes)}</p></div>'


def _described(run: Run) -> str:
    methods = run.config.get("methods")
    parts = [run.setting("task.world"), run.setting("policy.model"), run.setting("learn.algorithm")]
    if run.kind == "train" and isinstance(methods, list) and methods:
        parts.append(" + ".join(str(name) for name in cast("list[object]", methods)))
    return ", ".join(clipped(str(part), 80) for part in parts if part is not None) or "no settings"


def named(groups: Sequence[Group]) -> list[tuple[str, Run]]:
    """Every run with a name of its own: that of its group, and its own where the group has several."""
    members = [(group, run) for group in groups for run in group.runs]
    return [(f"{group.name}: {run.name}" if len(group.runs) > 1 else group.name, run) for group, run in members]


def _stories(runs: Sequence[tuple[str, Run]]) -> str:
    told = [(name, run, story_of(run)) for name, run in runs]
    rows: list[Strip] = []
    for name, run, story in told:
        if steps := [int(record["step"]) for record in run.of_kind("train")]:
            rows.append(Strip(name, min(steps), max(steps), story.shades, story.flags))
    wide, narrow = strips(rows, 1060), strips(rows, 420)
    parts: list[str] = []
    if wide:
        shading = phase_key({shade.name for _, _, story in told for shade in story.shades})
        parts.append(
            f'<figure class="card whole two strips"><h3>Where each run was</h3><ul class="legend">{shading}</ul>'
            f'<div class="picture"><div class="wide">{wide}</div><div class="narrow">{narrow}</div></div>'
            "<figcaption>From the first step to the last. Numbers are alarms, listed below.</figcaption></figure>"
        )
    is_open = " open" if len(told) <= _MOST_OPEN else ""
    for name, run, story in told:
        words = clipped(diagnose(run).words(), _MOST_WORDS)
        if words or story.alarms:
            parts.append(
                f'<details class="card said"{is_open}><summary>{safe(name)}</summary><p>{unbroken(safe(words))}</p>'
                f"{alarm_list(story.alarms)}</details>"
            )
    return "".join(parts)


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
