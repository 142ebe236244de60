"""Curves for the claims' pages: a line for each cell, the mean over its finished seeds with the interval of that mean.

lines = panels_of(data, figure)        # what is drawn, before it is drawn
text = draw(data, figure)              # SVG; None where no run has the metric
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import fmean

from isentrope.core.stats import band
from isentrope.metrics.temperature import footnotes, marked
from isentrope.report.axes import COLORS, Chart, Panel, Series
from isentrope.report.overlay import Overlay
from isentrope.report.paper import picture_svg
from isentrope.report.plots import Plot
from isentrope.study.read import DONE, StudyData, StudyRun
from isentrope.study.tables import LEAST_SEEDS, entropy_notes

STUDY = "household"  # that most figures are made from, and the pages' numbers
SUCCESS = "success"  # stands for the success on the study's split
WIDTH, HEIGHT, INCHES = 720, 300, 7.5
BAND = f"95 % interval of the mean over seeds, from {LEAST_SEEDS} seeds up"
SMOOTHED = "smoothed over a twentieth of the steps"
_SMOOTHED_FROM = 25  # steps; fewer need no smoothing
Curves = dict[int, tuple[Sequence[int], Sequence[float]]]  # steps and values, by seed


@dataclass(frozen=True)
class Part:
    """One panel: cells and what the legend calls them. A figure with several has one y axis for all."""

    cells: Mapping[str, str]
    title: str = ""
    key: str = ""  # a metric of its own instead of the figure's


@dataclass(frozen=True)
class Figure:
    name: str  # of the file, without its ending
    title: str
    key: str  # a metric, or SUCCESS
    parts: tuple[Part, ...]
    by_seed: tuple[str, ...] = ()  # cells of which each seed is a line
    banded: tuple[str, ...] = ()  # cells with a band, where all would be a heap; none named: all
    last: int = 0  # the step up to which it is drawn; 0: all
    smooth: bool = False
    shares: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    study: str = STUDY  # that it is made from


@dataclass(frozen=True)
class Panels(Overlay):
    """An overlay whose lines stand in several panels."""

    panels: tuple[Panel, ...] = ()

    def chart(self, width: int, height: int, points: int = 200) -> Chart:
        plot = self.plot
        return Chart(list(self.panels), self.title, plot.shares, plot.full, plot.zero, width, height, points=points)


def draw(data: StudyData, figure: Figure) -> str | None:
    """The figure as SVG, the same bytes for the same numbers; None if there is nothing to draw."""
    panels = panels_of(data, figure)
    series = list({(one.name, one.color): one for panel in panels for one in panel.series}.values())
    if not series:
        return None
    plot = Plot(figure.title, {}, shares=figure.shares, zero=True)
    told = "; ".join(text for text in (_notes(figure, panels), *footnotes(_heat(data, figure))) if text)
    overlay = Panels(_key(data, figure), figure.title, series, plot, told, panels=tuple(panels))
    return picture_svg(overlay, WIDTH, HEIGHT, INCHES)


def _heat(data: StudyData, figure: Figure) -> dict[str, str]:
    """By what the legend calls a cell: that its entropies are not at temperature 1."""
    if not figure.key.startswith("entropy/"):
        return {}
    notes = entropy_notes(data)
    labels = [(cell, label or cell) for part in figure.parts for cell, label in part.cells.items()]
    return {label: notes[cell] for cell, label in labels if cell in notes}


def _notes(figure: Figure, panels: Sequence[Panel]) -> str:
    """What bands are, and that lines are smoothed."""
    notes = [SMOOTHED] if figure.smooth else []
    if any(one.low is not None for panel in panels for one in panel.series):
        labels = {cell: label for part in figure.parts for cell, label in part.cells.items()}
        names = dict.fromkeys(labels[cell] for cell in figure.banded)
        whose = f" of {' and '.join(names)}" if names else ""
        notes.insert(0, f"band{whose}: {BAND}")
    return "; ".join(notes)


def panels_of(data: StudyData, figure: Figure) -> list[Panel]:
    """What is drawn, panel by panel; a panel without lines is left out."""
    colors: dict[str, int] = {}
    panels: list[Panel] = []
    heat = _heat(data, figure)
    for part in figure.parts:
        lines: list[Series] = []
        counts = set[int]()
        ours = replace(figure, key=_key(data, replace(figure, key=part.key or figure.key)))
        for cell, label in part.cells.items():
            curves = _curves(data, ours, cell)
            counts.add(len(curves))
            shown = marked(label, heat.get(label or cell))
            lines += _lines(curves, ours, cell, shown, colors, alone=len(figure.parts) == 1)
        if lines:
            title = f"{part.title}, {_seeds(counts)}; step" if part.title else ""
            panels.append(Panel(lines, title=title, marks=figure.marks))
    return panels


def _lines(curves: Curves, figure: Figure, cell: str, label: str, colors: dict[str, int], alone: bool) -> list[Series]:
    if not curves:
        return []
    if cell in figure.by_seed:
        made = [(f"{label}seed {seed}", _mean_line([curve], figure.shares)) for seed, curve in sorted(curves.items())]
    else:
        told = f" ({_count(len(curves))})" if alone else ""
        made = [(f"{label}{told}", _mean_line(list(curves.values()), figure.shares))]
    markers = figure.key.startswith(("eval/", "probe/"))
    lines: list[Series] = []
    for name, line in made:
        if figure.banded and cell not in figure.banded:
            line = replace(line, low=None, high=None)
        color = colors.setdefault(name, len(colors)) % COLORS
        named = replace(line, name=name, color=color, markers=markers, key=figure.key)
        lines.append(_smoothed(named) if figure.smooth else named)
    return lines


def _curves(data: StudyData, figure: Figure, cell: str) -> Curves:
    """What there is to draw of a cell: runs without the metric are left out."""
    curves = {run.seed: _curve(run, figure.key, figure.last) for run in data.cell(cell, DONE)}
    return {seed: curve for seed, curve in curves.items() if curve[0]}


def _curve(run: StudyRun, key: str, last: int) -> tuple[Sequence[int], Sequence[float]]:
    steps, values = run.series(key)
    count = sum(step <= last for step in steps) if last else len(steps)
    return steps[:count], values[:count]


def _mean_line(curves: Sequence[tuple[Sequence[int], Sequence[float]]], shares: bool) -> Series:
    """The mean at the steps that all have; with enough of them the interval, which stays where values can be."""
    found = band(curves)
    most = 1.0 if shares else float("inf")
    least = 0.0 if all(value >= 0 for _, values in curves for value in values) else -float("inf")
    line = Series("", [float(step) for step in found.steps], [point.value for point in found.points])
    if len(curves) < LEAST_SEEDS:
        return line
    ends = [(point.low, point.high) for point in found.points]
    low = [None if low is None else max(least, low) for low, _ in ends]
    high = [None if high is None else min(most, high) for _, high in ends]
    return replace(line, low=low, high=high)


def _smoothed(line: Series) -> Series:
    if len(line.x) < _SMOOTHED_FROM:
        return line
    low, high = (None if ends is None else _moving_mean(ends) for ends in (line.low, line.high))
    return replace(line, y=_moving_mean(line.y), low=low, high=high)


def _moving_mean(values: Sequence[float | None]) -> list[float | None]:
    """Over a twentieth of all values; at the ends over those that there are: a single one would look like a turn."""
    reach = max(1, len(values) // 40)
    means: list[float | None] = []
    for at in range(len(values)):
        near = [value for value in values[max(0, at - reach) : at + reach + 1] if value is not None]
        means.append(fmean(near) if near else None)
    return means


def _key(data: StudyData, figure: Figure) -> str:
    return f"eval/{data.study.plan.split}/success" if figure.key == SUCCESS else figure.key


def _count(seeds: int) -> str:
    return f"{seeds} seed" if seeds == 1 else f"{seeds} seeds"


def _seeds(counts: Set[int]) -> str:
    drawn = sorted(counts - {0})
    return _count(drawn[0]) if len(drawn) == 1 else f"{drawn[0]} to {drawn[-1]} seeds"
