"""The comparison of several runs: one HTML file, as the report of one run is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from isentrope.metrics.temperature import MARK, entropy_temperature
from isentrope.report.axes import COLORS
from isentrope.report.compare_tables import results, settings
from isentrope.report.groups import Group, grouped
from isentrope.report.overlay import SEEDS_BAND, figure_of, overlays
from isentrope.report.shell import alarm_list, document, figure, key, nav, phase_key, section
from isentrope.report.story import check_run, diagnosis_of, story_of
from isentrope.report.strips import named, strips
from isentrope.report.text import clipped, safe, unbroken
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import Run, leaves

_FOOT = "Written by Isentrope from the files in the runs' folders."
_MOST_WORDS = 4000
_MOST_LETTERS = 240  # of the names under each chart
_MOST_OPEN = 6  # of so many runs everything is said at once, of more on demand


def write_comparison(runs: Sequence[Path], rows: Mapping[str, Sequence[Path]], out: Path) -> Path:
    """Write the page and return its path."""
    write_atomically(out, comparison(read_groups(runs, rows)).encode("utf-8", "replace"))
    return out


def read_groups(runs: Sequence[Path], rows: Mapping[str, Sequence[Path]]) -> list[Group]:
    """`rows`: runs that are to be seeds of one line, by its name."""
    found = {path: Run.open(path) for path in (*runs, *(path for row in rows.values() for path in row))}
    for run in found.values():
        check_run(run)
    alone = [found[path] for path in dict.fromkeys(runs)]
    return grouped(alone, {name: [found[path] for path in dict.fromkeys(row)] for name, row in rows.items()})


def comparison(groups: Sequence[Group]) -> str:
    runs = named(groups)
    short = _names_are_short(groups)
    sections = {"Results": results(groups), "Phases and alarms": _stories(runs)}
    for title, drawn in overlays(groups).items():
        sizes = ["whole" if one.key.startswith("eval/") else "half" for one in drawn]
        figures = "".join(figure(figure_of(one, size, short)) for one, size in zip(drawn, sizes, strict=True))
        sections["Success" if title == "Learning" else title] = f'<div class="grid">{figures}</div>'
    sections["Settings"] = settings(groups)
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    title = f"{len(runs)} runs"
    names = " · ".join(group.name for group in groups)
    told = f'<p class="names">{safe(clipped(names, 400))}</p>' if short else ""
    head = f"<header><h1>{title}</h1>{told}</header>"
    page = nav([title for title, inside in sections.items() if inside]) + head + _lines(groups) + body
    return document(f"{title}: {clipped(names, 100)}", page, _FOOT)


def _names_are_short(groups: Sequence[Group]) -> bool:
    """Whether every chart can name its lines; else the names would take more room than the lines."""
    return sum(len(group.label) + 6 for group in groups) <= _MOST_LETTERS


def _lines(groups: Sequence[Group]) -> str:
    """Which line is which run, once for the whole page."""
    rows: list[str] = []
    for number, group in enumerate(groups):
        heat = next(
            filter(None, (entropy_temperature(leaves(run.config), run.of_kind("train")) for run in group.runs)), ""
        )
        told = safe(_described(group.runs[0])) + (f" · {MARK} {safe(heat)}" if heat else "")
        seeds = ", ".join(str(run.setting("run.seed", "?")) for run in group.runs)
        several = f" · {len(group.runs)} seeds ({safe(clipped(seeds, 60))}): their mean" if len(group.runs) > 1 else ""
        rows.append(f'<li class="stroke">{key(number % COLORS)}<b>{safe(group.name)}</b>{several} · {told}</li>')
    notes = ["Lines are smoothed over a twentieth of the run where there are 25 steps or more."]
    if any(len(group.runs) > 1 for group in groups):
        seeds = "at the steps that all of them have"
        notes.insert(0, f"Runs that differ only in run.seed are drawn as one line, {seeds}; {SEEDS_BAND}.")
    if not _names_are_short(groups):
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
    is_open = " open" if len(told) <= _MOST_OPEN else ""
    for name, run, story in told:
        words = clipped(diagnosis_of(run).words(), _MOST_WORDS)
        if words or story.alarms:
            parts.append(
                f'<details class="card said"{is_open}><summary>{safe(name)}</summary><p>{unbroken(safe(words))}</p>'
                f"{alarm_list(story.alarms)}</details>"
            )
    return "".join(parts)
