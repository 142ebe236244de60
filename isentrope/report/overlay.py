"""Charts of several runs, one metric each, for pages and as files for papers; seeds are drawn as mean and band."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from isentrope.charts.chart import COLORS, Chart, Panel, Series, smoothed
from isentrope.charts.pdf import check_matplotlib, picture_pdf
from isentrope.charts.svg import picture
from isentrope.charts.text import file_name
from isentrope.core.command import command
from isentrope.core.errors import RunError
from isentrope.core.stats import mean_and_std
from isentrope.metrics.temperature import footnotes, marked, note_for
from isentrope.report.figures import eval_series, meaning, series_of, splits_of, unit_of
from isentrope.report.groups import Group
from isentrope.report.plots import IMITATION, SECTIONS, Plot, expand
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import Run, leaves
from isentrope.runs.log import Record

SEEDS_BAND = "band: ± one standard deviation over the seeds"
GAMES_BAND = "band: 95% interval over the games"
BOTH_BANDS = "bands: 95% interval over the games; of several seeds, ± one standard deviation over them"


def overlays(groups: Sequence[Group]) -> dict[str, list[Chart]]:
    """All that can be drawn, by section."""
    sections: dict[str, list[Chart]] = {}
    for title, plots in SECTIONS.items():
        kind = "sft" if title == IMITATION else "train"
        charts = [chart for plot in plots for chart in _of_plot(groups, plot, kind)]
        if title == "Learning":
            first = Plot("Success in training", {"success/all": ""}, shares=True, full=True)
            charts = [*evaluations(groups), *_of_plot(groups, first, kind), *charts]
        if charts:
            sections[title] = charts
    return sections


def evaluations(groups: Sequence[Group]) -> Iterator[Chart]:
    """Success on each split."""
    splits = list(dict.fromkeys(split for group in groups for run in group.runs for split in splits_of(run)))
    for split in sorted(splits, key=lambda split: (split != "unseen", split)):
        series: list[Series] = []
        for number, group in enumerate(groups):
            lines = [eval_series(run.records, split, group.label, number % COLORS) for run in group.runs]
            lines = [line for line in lines if not line.empty]
            if lines:
                series.append(lines[0] if len(lines) == 1 else replace(over_seeds(lines, 1.0), markers=True))
        seeds = any(len(group.runs) > 1 for group in groups)
        alone = any(len(group.runs) == 1 for group in groups)
        band = BOTH_BANDS if seeds and alone else SEEDS_BAND if seeds else GAMES_BAND
        key, caption = f"eval/{split}/success", "Share of the games solved."
        yield Chart(f"Success on {split} games", [Panel(series)], True, True, key=key, note=band, caption=caption)


def _of_plot(groups: Sequence[Group], plot: Plot, kind: str) -> Iterator[Chart]:
    runs = [run for group in groups for run in group.runs]
    names = expand(plot.keys, {key for run in runs for record in run.of_kind(kind) for key in record})
    for key, name in names.items():
        chart = overlay_of(groups, key, plot, kind)
        if chart is not None:
            single = list(plot.keys) == [key]
            yield replace(chart, title=plot.title if single else f"{plot.title}: {name}")


def overlay_of(groups: Sequence[Group], key: str, plot: Plot, kind: str) -> Chart | None:
    """One metric of all groups; None if no run has it."""
    series: list[Series] = []
    notes = {group.label: _note(group, key, kind) for group in groups}
    for number, group in enumerate(groups):
        name = marked(group.label, notes[group.label])
        lines = [series_of(_records(run, plot, kind, key), key, name, number % COLORS) for run in group.runs]
        lines = [line for line in lines if not line.empty]
        if len(lines) == 1:
            series.append(replace(lines[0], smooth=plot.smooth, markers=plot.markers))
        elif lines:
            mean = over_seeds(lines, 1.0 if plot.shares else None)
            series.append(replace(smoothed(mean) if plot.smooth else mean, markers=plot.markers))
    if not series:
        return None
    series = [replace(line, raw=len(series) <= 3) for line in series]
    band = [SEEDS_BAND] if any(line.low is not None for line in series) else []
    return Chart(
        plot.title, [Panel(series)], plot.shares, plot.full, plot.zero, key=key, caption=meaning(key),
        unit="" if plot.shares else unit_of(key), note="; ".join([*band, *footnotes(notes)]),
    )  # fmt: skip


def _note(group: Group, key: str, kind: str) -> str | None:
    """What has to be said of a metric that the group's runs measured at another temperature than 1."""
    notes = (note_for(key, leaves(run.config), run.of_kind(kind)) for run in group.runs)
    return next((note for note in notes if note), None)


def _records(run: Run, plot: Plot, kind: str, key: str) -> list[Record]:
    records = run.of_kind(kind)
    return [{key: 0.0} | record if plot.beside in record else record for record in records] if plot.beside else records


def over_seeds(lines: Sequence[Series], most: float | None) -> Series:
    """Mean and standard deviation at the steps that all seeds have: where one ended, the mean would jump.

    `most`: of shares, which do not go beyond it. The band of what is never negative does not go below 0.
    """
    values = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    steps = [x for x in lines[0].x if all(column.get(x) is not None for column in values)]
    least = 0.0 if all(value is None or value >= 0 for line in lines for value in line.y) else -math.inf
    told = [mean_and_std([column[step] or 0.0 for column in values]) for step in steps]
    low = [max(least, mean - (std or 0.0)) for mean, std in told]
    high = [min(math.inf if most is None else most, mean + (std or 0.0)) for mean, std in told]
    return replace(lines[0], x=steps, y=[mean for mean, _ in told], low=[*low], high=[*high])


def write_figures(groups: Sequence[Group], keys: Sequence[str], folder: Path, form: str) -> list[Path]:
    """Figures for a paper, SVG or PDF: one file for each metric, named after it; without `keys`, for every metric that
    a report shows."""
    if form == "pdf":
        check_matplotlib()
    paths: list[Path] = []
    for chart in _chosen(groups, keys):
        path = folder / f"{file_name(chart.key)}.{form}"
        write_atomically(path, picture_pdf(chart) if form == "pdf" else picture(chart).encode("utf-8", "replace"))
        paths.append(path)
    return paths


def _chosen(groups: Sequence[Group], keys: Sequence[str]) -> list[Chart]:
    everything = {chart.key: chart for charts in overlays(groups).values() for chart in charts}
    if not keys:
        if not everything:
            raise RunError("nothing has been measured in these runs yet; wait for the first step")
        return list(everything.values())
    return [everything.get(key) or _other(groups, key) for key in dict.fromkeys(keys)]


def _other(groups: Sequence[Group], key: str) -> Chart:
    """A metric that the report does not show."""
    for kind in ("train", "eval", "sft"):
        plot = Plot(key, {key: key}, smooth=kind == "train", markers=kind == "eval")
        chart = overlay_of(groups, key, plot, kind)
        if chart is not None:
            return chart
    known = {key for group in groups for run in group.runs for record in run.records for key in record}
    near = get_close_matches(key, sorted(known), 3, 0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; {command('metrics')} lists them"
    raise RunError(f"--metric {key}: none of these runs measured it{hint}")
