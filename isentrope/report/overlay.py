"""One metric of several runs in one chart; several seeds are drawn as their mean with a band."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from isentrope.core.stats import mean_and_std
from isentrope.metrics.temperature import footnotes, marked, note_for
from isentrope.report.axes import COLORS, Chart, Panel, Series
from isentrope.report.figures import Figure, eval_series, legend_of, meaning, series_of, splits_of, unit_of
from isentrope.report.groups import Group
from isentrope.report.plots import IMITATION, SECTIONS, Plot, expand
from isentrope.report.svg import line_chart, moving_mean
from isentrope.runs.folder import Run, leaves
from isentrope.runs.log import Record

SEEDS_BAND = "band: ± one standard deviation over the seeds"
GAMES_BAND = "band: 95% interval over the games"
BOTH_BANDS = "bands: 95% interval over the games; of several seeds, ± one standard deviation over them"
_SMOOTHED_FROM = 25  # numbers; fewer need no smoothing


@dataclass(frozen=True)
class Overlay:
    """A chart before it is drawn."""

    key: str
    title: str
    series: list[Series]
    plot: Plot
    band: str
    caption: str = ""

    def chart(self, width: int, height: int, points: int = 200) -> Chart:
        plot = self.plot
        panel = Panel(self.series)
        return Chart([panel], self.title, plot.shares, plot.full, plot.zero, width, height, points=points)


def overlays(groups: Sequence[Group]) -> dict[str, list[Overlay]]:
    """All that can be drawn, by section."""
    found: dict[str, list[Overlay]] = {}
    for title, plots in SECTIONS.items():
        kind = "sft" if title == IMITATION else "train"
        drawn = [one for plot in plots for one in _of_plot(groups, plot, kind)]
        if title == "Learning":
            first = Plot("Success in training", {"success/all": ""}, shares=True, full=True)
            drawn = [*evaluations(groups), *_of_plot(groups, first, kind), *drawn]
        if drawn:
            found[title] = drawn
    return found


def evaluations(groups: Sequence[Group]) -> Iterator[Overlay]:
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
        title = f"Success on {split} games"
        plot = Plot(title, {}, "Share of the games solved.", True, True)
        yield Overlay(f"eval/{split}/success", title, series, plot, band, plot.caption)


def _of_plot(groups: Sequence[Group], plot: Plot, kind: str) -> Iterator[Overlay]:
    runs = [run for group in groups for run in group.runs]
    names = expand(plot.keys, {key for run in runs for record in run.of_kind(kind) for key in record})
    for key, name in names.items():
        overlay = overlay_of(groups, key, plot, kind)
        if overlay is not None:
            single = list(plot.keys) == [key]
            yield replace(overlay, title=plot.title if single else f"{plot.title}: {name}")


def overlay_of(groups: Sequence[Group], key: str, plot: Plot, kind: str) -> Overlay | None:
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
            series.append(replace(_smoothed(mean) if plot.smooth else mean, markers=plot.markers))
    if not series:
        return None
    series = [replace(one, raw=len(series) <= 3) for one in series]
    told = [SEEDS_BAND] if any(one.low is not None for one in series) else []
    return Overlay(key, plot.title, series, plot, "; ".join([*told, *footnotes(notes)]), meaning(key))


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
    steps = [x for x in lines[0].x if all(one.get(x) is not None for one in values)]
    least = 0.0 if all(value is None or value >= 0 for line in lines for value in line.y) else -math.inf
    means: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    for step in steps:
        mean, std = mean_and_std([one[step] or 0.0 for one in values])
        below, above = mean - (std or 0.0), mean + (std or 0.0)
        means.append(mean)
        low.append(max(least, below))
        high.append(above if most is None else min(most, above))
    return replace(lines[0], x=steps, y=means, low=low, high=high)


def _smoothed(series: Series) -> Series:
    if len(series.x) < _SMOOTHED_FROM or series.low is None or series.high is None:
        return series
    return replace(series, y=moving_mean(series.y), low=moving_mean(series.low), high=moving_mean(series.high))


def figure_of(overlay: Overlay, size: str = "half", named: bool = True) -> Figure:
    """`named`: small charts have a legend too."""
    legend = legend_of(overlay.series) if named or size == "whole" else []
    unit = "" if overlay.plot.shares else unit_of(overlay.key)
    if size == "whole":
        pictures = [line_chart(overlay.chart(1060, 320)), line_chart(overlay.chart(420, 300))]
    else:
        pictures = [line_chart(overlay.chart(460, 240))]
    return Figure(overlay.title, overlay.caption, pictures, legend, size, unit, band=overlay.band)
