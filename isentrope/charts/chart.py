"""Description of a chart before it is drawn. SVG, PDF and the pages' script all draw from this description.

A chart has one or more panels side by side that share the y axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

COLORS = 8  # of lines, each with a dash of its own; then they begin anew
SMOOTHED_FROM = 25  # values; fewer need no smoothing


@dataclass(frozen=True)
class Series:
    name: str
    x: list[float]
    y: list[float | None]  # None: not measured, the line has a gap
    low: list[float | None] | None = None  # a band, with `high`
    high: list[float | None] | None = None
    color: int = 0
    markers: bool = False
    smooth: bool = False  # a thick moving mean over the thin line
    raw: bool = True  # with smooth: show the thin line
    key: str = ""  # of the metric, for its explanation

    @property
    def empty(self) -> bool:
        return all(value is None for value in self.y)

    @property
    def smooths(self) -> bool:
        """Whether it is drawn as a moving mean: it is to be, and there is enough of it."""
        return self.smooth and len(self.y) >= SMOOTHED_FROM


@dataclass(frozen=True)
class Shade:
    """A phase of the run, behind the lines."""

    first: float
    last: float  # included
    name: str


@dataclass(frozen=True)
class Flag:
    """An alarm, at its step; the number is that of a list on the page."""

    step: float
    number: int
    text: str


@dataclass(frozen=True)
class Panel:
    series: list[Series]
    x_name: str = "step"
    width: float = 1.0  # relative to the other panels
    title: str = ""
    marks: tuple[tuple[float, str], ...] = ()  # where something changed: a thin upright line, and what it says
    shades: tuple[Shade, ...] = ()
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class Chart:
    title: str
    panels: list[Panel]
    shares: bool = False  # y runs from 0 to 1 and is shown in percent
    full: bool = False  # with shares: always the whole range
    zero: bool = True  # y starts at zero
    bars: bool = False  # the series of the only panel are layers of stacked bars, not lines
    key: str = ""  # of the metric
    unit: str = ""
    note: str = ""  # what bands and marks are
    caption: str = ""

    @property
    def series(self) -> list[Series]:
        """The lines of all panels; one that stands in several panels once."""
        return list({(line.name, line.color): line for panel in self.panels for line in panel.series}.values())

    @property
    def named(self) -> str:
        """The title with its unit, for a picture that has its caption elsewhere."""
        return self.title + (f" ({self.unit})" if self.unit else "")


def moving_mean(values: Sequence[float | None], *, one_sided: bool = False) -> list[float | None]:
    """Mean of the neighbours on both sides, a twentieth of all values together.

    Towards the ends there are equally many on both sides, so that a peak stays in its place; `one_sided`: as many as
    there are, so that the ends do not jump.
    """
    widest, last = max(1, len(values) // 40), len(values) - 1
    means: list[float | None] = []
    for i, value in enumerate(values):
        reach = widest if one_sided else min(widest, i, last - i)
        near = [other for other in values[max(0, i - reach) : i + reach + 1] if other is not None]
        means.append(None if value is None or not near else sum(near) / len(near))
    return means


def smoothed(series: Series, *, one_sided: bool = False) -> Series:
    """The line and its band as moving means; a short one as it is."""
    if len(series.x) < SMOOTHED_FROM:
        return series
    mean = partial(moving_mean, one_sided=one_sided)
    low, high = (None if column is None else mean(column) for column in (series.low, series.high))
    return replace(series, y=mean(series.y), low=low, high=high)


def thinned(series: Series, most: int) -> Series:
    """At most about `most` points: more would not be seen, only paid for."""
    stride = -(-len(series.x) // most)
    if stride <= 1:
        return series
    kept = sorted({*range(0, len(series.x), stride), len(series.x) - 1})
    low, high = (None if column is None else [column[i] for i in kept] for column in (series.low, series.high))
    return replace(series, x=[series.x[i] for i in kept], y=[series.y[i] for i in kept], low=low, high=high)
