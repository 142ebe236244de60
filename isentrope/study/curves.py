"""Learning curves of a study: the mean over seeds, with its interval where there are seeds enough for one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from isentrope.charts.chart import COLORS, Chart, Panel, Series, smoothed
from isentrope.charts.svg import picture
from isentrope.charts.text import file_name, short
from isentrope.core.stats import band
from isentrope.metrics.temperature import footnotes, marked
from isentrope.report.figures import meaning, unit_of
from isentrope.runs.atomic import write_atomically
from isentrope.study.cells import Cell
from isentrope.study.families import Family, families
from isentrope.study.read import DONE, StudyData
from isentrope.study.tables import LEAST_SEEDS, entropy_notes

BAND = f"band: 95% interval of the mean over seeds, from {LEAST_SEEDS} seeds up"
SMOOTH = "line: moving mean over a twentieth of the steps"
ENTROPY = "entropy/token"
VALID = "valid_ratio"
_FEW = 3  # lines with which there is room for what was measured behind the moving means
_BEYOND = 3.0  # times the middle one of the lines' largest values


@dataclass(frozen=True)
class Drawn:
    name: str  # of a file, without its ending; no two charts have the same
    family: Family
    chart: Chart


def charts(data: StudyData) -> Iterator[Drawn]:
    """Success, entropy and validity of each family of cells of which there is something to see."""
    plan = data.study.plan
    titles = {
        f"eval/{plan.split}/success": f"Success on {plan.split} games",
        ENTROPY: "Token entropy",
        VALID: "Valid actions",
    }
    taken: set[str] = set()
    noted = entropy_notes(data)
    for family in _worth_drawing(data):
        for key, title in titles.items():
            measured_rarely, shares = key.startswith("eval/"), key != ENTROPY
            heat = {cell.name: noted.get(cell.name) for cell in family.cells if key == ENTROPY}
            drawn = [_series(data, cell, key, number, heat.get(cell.name)) for number, cell in enumerate(family.cells)]
            series = [one for one in drawn if one is not None]
            if not series:
                continue
            notes = [SMOOTH] if not measured_rarely else []
            notes += [BAND] if any(one.low is not None for one in series) else []
            notes += footnotes(heat)
            series = series if measured_rarely else moving_means(series if shares else within_sight(series))
            name = _free(f"{file_name(family.name)}-{_SHORT.get(key, 'success')}", taken)
            unit = "" if shares else unit_of(key)
            panels, note = [Panel(series)], "; ".join(notes)
            title = f"{title}: {family.name}"
            chart = Chart(title, panels, shares, shares, key=key, unit=unit, note=note, caption=meaning(key))
            yield Drawn(name, family, chart)


def _worth_drawing(data: StudyData) -> Iterator[Family]:
    """A baseline is drawn without others only if nothing that is compared with it is done, and then once."""
    done = {run.cell for run in data.runs if run.status == DONE}
    seen = {cell.against for cell in data.study.cells if cell.name in done}
    for family in families(data.study.cells):
        there = {cell.name for cell in family.cells} & done
        others = there - {family.base}
        if len(others) >= family.least or (there and family.base and family.base not in seen):
            seen.add(family.base)
            yield family


_SHORT = {ENTROPY: "entropy", VALID: "valid"}


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number, free = number + 1, f"{name}-{number + 1}"
    taken.add(free)
    return free


def _series(data: StudyData, cell: Cell, key: str, number: int, note: str | None) -> Series | None:
    curves = [run.series(key) for run in data.cell(cell.name, DONE)]
    curves = [curve for curve in curves if curve[0]]
    if not curves:
        return None
    found = band(curves)
    several = len(curves) >= LEAST_SEEDS
    return Series(
        name=f"{marked(cell.name, note)} ({len(curves)} seed{'s' if len(curves) > 1 else ''})",
        x=[float(step) for step in found.steps],
        y=[point.value for point in found.points],
        low=[_within(point.low, key) for point in found.points] if several else None,
        high=[_within(point.high, key) for point in found.points] if several else None,
        color=number % COLORS,
        markers=key.startswith("eval/"),
        key=key,
    )


def _within(value: float | None, key: str) -> float | None:
    """An interval of a share does not leave 0 to 1, and one of an entropy not 0."""
    if value is None:
        return None
    return max(0.0, value) if key == ENTROPY else min(1.0, max(0.0, value))


def moving_means(series: Sequence[Series]) -> list[Series]:
    """Moving means. Where lines are few and without bands, what was measured stands thin behind them."""
    return [
        replace(one, smooth=True, raw=len(series) <= _FEW) if one.low is None or one.high is None else smoothed(one)
        for one in series
    ]


def within_sight(series: Sequence[Series]) -> list[Series]:
    """A line far beyond the others would press them flat: it is cut off, and its name says how far it goes."""
    limit = _BEYOND * median(_top(one) for one in series)
    return [_cut(one, limit) if _top(one) > limit else one for one in series]


def _cut(series: Series, limit: float) -> Series:
    seen = [value is not None and value <= limit for value in series.y]
    columns = [
        None if column is None else [value if kept else None for value, kept in zip(column, seen, strict=True)]
        for column in (series.y, series.low)
    ]
    high = None if series.high is None else [None if value is None else min(limit, value) for value in series.high]
    name = f"{series.name}, beyond the chart up to {short(_top(series))}"
    return replace(series, name=name, y=columns[0] or [], low=columns[1], high=high)


def _top(series: Series) -> float:
    return max((value for value in series.y if value is not None), default=0.0)


def write_curves(data: StudyData, folder: Path) -> list[Path]:
    paths: list[Path] = []
    for one in charts(data):
        write_atomically(folder / f"{one.name}.svg", picture(one.chart).encode("utf-8", "replace"))
        paths.append(folder / f"{one.name}.svg")
    return paths
