"""What a chart is made of, its frame and its axes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from isentrope.report.scale import Scale, decimals, nice_ticks
from isentrope.report.text import percent, safe

COLORS = 8
LETTER = 7.8  # width of a letter at the largest size that the style sheet asks for
LEFT, RIGHT, TOP, BOTTOM, GAP = 46, 14, 12, 40, 30


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
    panels: list[Panel]
    label: str  # what is shown, for readers who cannot see it
    shares: bool = False  # y runs from 0 to 1 and is shown in percent
    full: bool = False  # with shares: always the whole range
    zero: bool = True  # y starts at zero
    width: int = 460
    height: int = 240
    left: float = LEFT  # room for the labels of the y axis
    points: int = 400  # of a line: more would not be seen at this size, only paid for


def frame(chart: Chart, inside: str, hover: Mapping[str, object] | None) -> str:
    if hover is not None:
        cursor = f'<line class="cursor" x1="-9" x2="-9" y1="{TOP}" y2="{chart.height - BOTTOM}"/>'
        data = f' data-hover="{safe(json.dumps(hover, separators=(",", ":")))}"'
    else:
        cursor = data = ""
    return (
        f'<svg class="chart" viewBox="0 0 {chart.width} {chart.height}" role="img" aria-label="{safe(chart.label)}"'
        f'{data} xmlns="http://www.w3.org/2000/svg">{inside}{cursor}</svg>'
    )


def panel_edges(chart: Chart) -> list[tuple[float, float]]:
    total = sum(panel.width for panel in chart.panels)
    room = chart.width - chart.left - RIGHT - GAP * (len(chart.panels) - 1)
    edges: list[tuple[float, float]] = []
    left = float(chart.left)
    for panel in chart.panels:
        right = left + room * panel.width / total
        edges.append((left, right))
        left = right + GAP
    return edges


def with_room(chart: Chart, ticks: list[float]) -> Chart:
    """The chart with a left edge that the longest label fits in front of."""
    longest = max(len(text) for text in _labels(chart, ticks))
    return replace(chart, left=max(LEFT, math.ceil(12 + LETTER * longest)))


def _labels(chart: Chart, ticks: list[float]) -> list[str]:
    places = decimals(ticks)
    return [percent(tick, max(0, places - 2)) if chart.shares else _tick(tick, places) for tick in ticks]


def y_grid(chart: Chart, scale: Scale, ticks: list[float]) -> str:
    parts: list[str] = []
    for tick, text in zip(ticks, _labels(chart, ticks), strict=True):
        y = scale(tick)
        parts.append(f'<text class="tick" x="{chart.left - 8:g}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        for left, right in panel_edges(chart):
            line = "axis" if tick == ticks[0] else "grid"
            parts.append(f'<line class="{line}" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return "".join(parts)


def x_axis(panel: Panel, scale: Scale, height: int, left: float, right: float) -> str:
    some = nice_ticks(scale.low, scale.high, max(2, int((right - left) / 56)), least=1.0)  # steps are whole
    ticks = [tick for tick in some if scale.holds(tick)]
    places = decimals(ticks)
    parts = [x_label(scale(tick), height, _tick(tick, places)) for tick in ticks]
    return "".join([*parts, x_title(panel, height, left, right)])


def mark_lines(panel: Panel, scale: Scale, height: int) -> str:
    """What is marked within the panel's range."""
    parts: list[str] = []
    for x, text in panel.marks:
        if scale.holds(x):
            at = scale(x)
            parts.append(f'<line class="change" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
            fits = at + 4 + LETTER * len(text) <= scale.end + RIGHT
            place = f'x="{at + 4:.1f}"' if fits else f'x="{at - 4:.1f}" text-anchor="end"'
            parts.append(f'<text class="tick" {place} y="{TOP + 10}">{safe(text)}</text>')
    return "".join(parts)


def x_label(x: float, height: int, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{text}</text>'


def x_title(panel: Panel, height: int, left: float, right: float) -> str:
    text = panel.title or panel.x_name
    middle = (left + right) / 2
    return f'<text class="name" x="{middle:.1f}" y="{height - 7}" text-anchor="middle">{safe(text)}</text>'


def _tick(value: float, places: int) -> str:
    if places > 4 or abs(value) >= 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e") if value else "0"
    return f"{value:,.{places}f}"
