"""Curves for the claims' pages: a line for each cell, the mean over its finished seeds with the interval of that mean.

lines = panels_of(data, figure)        # what is drawn, before it is drawn
text = draw(data, figure)              # SVG; None where no run has the metric
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from isentrope.charts.chart import COLORS, Chart, Panel, Series, smoothed
from isentrope.charts.forest import Row, forest_file
from isentrope.charts.svg import picture
from isentrope.core.stats import Mean, band, bootstrap
from isentrope.metrics.temperature import footnotes, marked
from isentrope.report.figures import unit_of
from isentrope.study.grid import differences as apart
from isentrope.study.grid import make_grid
from isentrope.study.read import DONE, StudyData, StudyRun
from isentrope.study.tables import LEAST_SEEDS, entropy_notes

# -- the forest plot of all methods: the change in Succ. against its baseline, with the interval over seeds


_MANY = 5  # pairs of a cell that stands in a grid too
_TITLE = "What each method changes in success"
_NOTE = "mean over pairs of seeds with its 95 % interval; filled: the interval is clear of 0"


@dataclass(frozen=True)
class Effect:
    study: str
    cell: str
    against: str
    points: Mean  # of Succ., in points, over pairs of seeds


def effects_of(studies: Sequence[StudyData]) -> list[Effect]:
    """Of every cell with pairs enough, the largest first. Where a grid shows how changes do on several baselines, of
    those in it only the cells with most pairs: with all of them nobody would look at any."""
    found: list[Effect] = []
    for data in studies:
        grid = make_grid(data)
        shown = {entry.cell for change in grid.changes for entry in change.entries.values()} if grid else set[str]()
        for cell in data.study.cells:
            pairs = differences(data, cell.name)
            if len(pairs) >= (_MANY if cell.name in shown else LEAST_SEEDS):
                points = bootstrap([pairs[seed] for seed in sorted(pairs)])
                found.append(Effect(data.name, cell.name, cell.against, points))
    return sorted(found, key=lambda one: (-one.points.value, one.study, one.cell))


def differences(data: StudyData, cell: str) -> dict[int, float]:
    """A cell's Succ. less that of its baseline, in points, by seed."""
    found = next((one for one in data.study.cells if one.name == cell), None)
    return {seed: 100 * share for seed, share in apart(data, found).items()} if found else {}


def forest(studies: Sequence[StudyData]) -> str | None:
    """SVG; None if nothing has pairs enough."""
    effects = effects_of(studies)
    if not effects:
        return None
    usual, _ = Counter(one.study for one in effects).most_common(1)[0]
    rows: list[Row] = []
    for one in effects:
        points, elsewhere = one.points, f" ({one.study})" if one.study != usual else ""
        assert points.interval is not None
        name = f"{one.cell} − {one.against}{elsewhere}"
        rows.append(Row(name, points.value, points.interval.low, points.interval.high, points.count))
    return forest_file(_TITLE, _NOTE, "points of success against the baseline", rows)


STUDY = "household"  # that most figures are made from, and the pages' numbers
SUCCESS = "success"  # stands for the success on the study's split
WIDTH, HEIGHT, INCHES = 720, 300, 7.5
BAND = f"95 % interval of the mean over seeds, from {LEAST_SEEDS} seeds up"
SMOOTHED = "smoothed over a twentieth of the steps"
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


def draw(data: StudyData, figure: Figure) -> str | None:
    """The figure as SVG, the same bytes for the same numbers; None if there is nothing to draw."""
    panels = panels_of(data, figure)
    if not panels:
        return None
    note = "; ".join(text for text in (_notes(figure, panels), *footnotes(_heat(data, figure))) if text)
    unit = "" if figure.shares else unit_of(_key(data, figure))
    chart = Chart(figure.title, panels, shares=figure.shares, unit=unit, note=note)
    return picture(chart, width=WIDTH, height=HEIGHT, inches=INCHES)


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
        lines.append(smoothed(named, one_sided=True) if figure.smooth else named)
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


def _key(data: StudyData, figure: Figure) -> str:
    return f"eval/{data.study.plan.split}/success" if figure.key == SUCCESS else figure.key


def _count(seeds: int) -> str:
    return f"{seeds} seed" if seeds == 1 else f"{seeds} seeds"


def _seeds(counts: Set[int]) -> str:
    drawn = sorted(counts - {0})
    return _count(drawn[0]) if len(drawn) == 1 else f"{drawn[0]} to {drawn[-1]} seeds"
