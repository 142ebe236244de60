"""Learning curves of a study: the mean over seeds, with its interval where there are seeds enough for one.

A family is the cells that share a chart: few enough to tell their lines apart, the baseline always among them. Bare
algorithms stand together. The cells that are compared with a baseline are divided by method if they are many: a
method's variants stay together, methods without variants share a chart, and so do combinations. Families depend on the
plan alone, so a chart keeps its name when runs are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from isentrope.analysis.success import Points
from isentrope.charts.chart import COLORS, Chart, Panel, Series, smoothed
from isentrope.charts.text import file_name, short
from isentrope.core.stats import band
from isentrope.metrics.temperature import footnotes, marked
from isentrope.report.figures import meaning, unit_of
from isentrope.study.cells import Cell
from isentrope.study.read import DONE, StudyData
from isentrope.study.tables import LEAST_SEEDS, entropy_notes

FAMILY_LINES = 6  # lines beside the baseline
_ALGORITHM, _METHOD, _NO_METHOD, _JOINED = "algorithm", "method", "none", "+"


@dataclass(frozen=True)
class Family:
    name: str
    base: str  # the baseline, empty where there is none
    cells: tuple[Cell, ...]
    least: int = 1  # lines without which there is nothing to see


def families(cells: Sequence[Cell]) -> Iterator[Family]:
    against = {cell.against for cell in cells}
    bases = [cell for cell in cells if cell.name in against]
    bare = [cell for cell in cells if not cell.against and cell.tags.get(_METHOD, _NO_METHOD) == _NO_METHOD]
    together = list(_algorithms([cell for cell in cells if cell.name in against or cell in bare], against))
    yield from together
    for base in bases:
        parts = _parts([cell for cell in cells if cell.against == base.name])
        for name, part in parts:
            yield Family(base.name if len(parts) == 1 else f"{base.name}: {name}", base.name, (base, *part))
    shown = {*against, *(cell.name for family in together for cell in family.cells)}
    for name, part in _parts([cell for cell in cells if not cell.against and cell.name not in shown]):
        yield Family(name, "", tuple(part))


def _algorithms(bare: Sequence[Cell], against: Set[str]) -> Iterator[Family]:
    """Bare cells that differ in their algorithm alone. One with which nothing is compared has no other chart."""
    alike: dict[str, list[Cell]] = {}
    for base in (cell for cell in bare if _ALGORITHM in cell.tags):
        tags = {_METHOD: _NO_METHOD, **base.tags}
        rest = [f"{key} {tags[key]}" for key in tags if key != _ALGORITHM and (key, tags[key]) != (_METHOD, _NO_METHOD)]
        alike.setdefault(", ".join(["algorithms", *rest]), []).append(base)
    for name, group in alike.items():
        if len(group) > 1:
            for title, part in _numbered(name, group):
                yield Family(title, "", tuple(part), least=2 if all(cell.name in against for cell in part) else 1)


def _parts(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """A name for each part, and its cells. Two parts may have the same: a method may be called `others`."""
    if 0 < len(cells) <= FAMILY_LINES:
        return [("all", list(cells))]
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_kind(cell), []).append(cell)
    single = {kind: group[0] for kind, group in groups.items() if len(group) == 1 and _JOINED not in kind}
    joined = {kind: group[0] for kind, group in groups.items() if len(group) == 1 and _JOINED in kind}
    found = [part for kind, group in groups.items() if len(group) > 1 for part in _numbered(kind, group)]
    found += _numbered("others" if len(single) > 1 else "".join(single), list(single.values()))
    return found + _numbered("combined" if len(joined) > 1 else "".join(joined), list(joined.values()))


def _kind(cell: Cell) -> str:
    """Its method; in a study that varies something else, all tags but the last, which is what changes fastest."""
    if cell.tags.get(_METHOD, _NO_METHOD) != _NO_METHOD:
        return cell.tags[_METHOD]
    values = [value for key, value in cell.tags.items() if key != _METHOD]
    return " ".join(values[:-1] or values)


def _numbered(name: str, group: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """As many equal parts as it takes."""
    count = -(-len(group) // FAMILY_LINES)
    ends = [round(number * len(group) / count) for number in range(count + 1)] if count else []
    parts = [list(group[start:end]) for start, end in pairwise(ends)]
    return [(name if count == 1 else f"{name} ({n})", part) for n, part in enumerate(parts, start=1)]


BAND = f"band: 95% interval of the mean over seeds, from {LEAST_SEEDS} seeds up"
SMOOTH = "line: moving mean over a twentieth of the steps"
ENTROPY = "entropy/token"
VALID = "valid_ratio"
_RAW_LINES = 3  # lines with which there is room for what was measured behind the moving means
_BEYOND = 3.0  # times the middle one of the lines' largest values


@dataclass(frozen=True)
class Drawn:
    name: str  # of a file, without its ending; no two charts have the same
    family: Family
    chart: Chart


def charts(data: StudyData, wanted: Callable[[Family, str], bool] = lambda family, key: True) -> Iterator[Drawn]:
    """Success, entropy and validity of each family of cells of which there is something to see. Those of which family
    and metric are not `wanted` are left out; the others have the names that they have beside them."""
    plan = data.study.plan
    titles = {  # of a chart, and in the name of its file
        f"eval/{plan.split}/success": (f"Success on {plan.split} games", "success"),
        ENTROPY: ("Token entropy", "entropy"),
        VALID: ("Valid actions", "valid"),
    }
    taken: set[str] = set()
    noted = entropy_notes(data)
    for family in _worth_drawing(data):
        for key, (title, name) in titles.items():
            measured_rarely, shares = key.startswith("eval/"), key != ENTROPY
            heat = {cell.name: noted.get(cell.name) for cell in family.cells if key == ENTROPY}
            runs = [data.cell(cell.name, DONE) for cell in family.cells]
            measured = [[curve for run in several if (curve := run.series(key))[0]] for several in runs]
            if not any(measured):
                continue
            name = _free(f"{file_name(family.name)}-{name}", taken)
            if not wanted(family, key):
                continue
            lines = enumerate(zip(family.cells, measured, strict=True))
            series = [_series(curves, cell, key, n, heat.get(cell.name)) for n, (cell, curves) in lines if curves]
            notes = [SMOOTH] if not measured_rarely else []
            notes += [BAND] if any(one.low is not None for one in series) else []
            notes += footnotes(heat)
            series = series if measured_rarely else moving_means(series if shares else within_sight(series))
            title, unit, note = f"{title}: {family.name}", "" if shares else unit_of(key), "; ".join(notes)
            chart = Chart(title, [Panel(series)], shares, shares, key=key, unit=unit, note=note, caption=meaning(key))
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


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number, free = number + 1, f"{name}-{number + 1}"
    taken.add(free)
    return free


def _series(curves: Sequence[Points], cell: Cell, key: str, number: int, note: str | None) -> Series:
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
    few = len(series) <= _RAW_LINES
    return [replace(one, smooth=True, raw=few) if None in (one.low, one.high) else smoothed(one) for one in series]


def within_sight(series: Sequence[Series]) -> list[Series]:
    """A line far beyond the others would press them flat: it is cut off, and its name says how far it goes."""
    limit = _BEYOND * median(_top(one) for one in series)
    return [_cut(one, limit) if _top(one) > limit else one for one in series]


def _cut(series: Series, limit: float) -> Series:
    seen = [value is not None and value <= limit for value in series.y]
    y, low = (
        [value if kept else None for value, kept in zip(column, seen, strict=True)] if column else None
        for column in (series.y, series.low)
    )
    high = None if series.high is None else [None if value is None else min(limit, value) for value in series.high]
    name = f"{series.name}, beyond the chart up to {short(_top(series))}"
    return replace(series, name=name, y=y or [], low=low, high=high)


def _top(series: Series) -> float:
    return max((value for value in series.y if value is not None), default=0.0)
