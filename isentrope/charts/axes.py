"""Scales, ticks at round numbers, axes, and what stands behind the lines of a chart: marks, phases and alarms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isentrope.charts.chart import Chart, Panel
from isentrope.charts.text import percent, safe

LETTER = 7.8  # width of a letter at the largest size that the style sheet asks for
LEFT, RIGHT, TOP, BOTTOM, GAP = 46, 14, 12, 40, 30
_FLAG = 6.5  # radius of an alarm's number


@dataclass(frozen=True)
class Scale:
    """Maps low..high to start..end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        slack = 1e-9 * (self.high - self.low)
        return self.low - slack <= value <= self.high + slack


def nice_ticks(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """About `count` intervals of 1, 2 or 5 times a power of ten, none below `least`, that cover low..high."""
    room = (high - low) or 1.0
    rough = room / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    step = max(step, least)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def decimals(ticks: list[float]) -> int:
    """Places after the point that tell neighbouring ticks apart."""
    if len(ticks) < 2:
        return 0 if not ticks or ticks[0] == int(ticks[0]) else 2
    return max(0, math.ceil(-math.log10(abs(ticks[1] - ticks[0])) - 1e-9))


def spread(values: list[float], *, zero: bool, most: float | None) -> tuple[float, float]:
    """The range of an axis that shows all values, never empty."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    return (low, high) if most is None else (low, min(high, most))


def y_range(chart: Chart) -> list[float]:
    """The ticks of the y axis, from its lower end to its upper."""
    lines = [line for panel in chart.panels for line in panel.series]
    columns = [column for line in lines for column in (line.y, line.low or [], line.high or [])]
    values = [value for column in columns for value in column if value is not None]
    low, high = (0.0, 1.0) if chart.full else spread(values, zero=chart.zero, most=1.0 if chart.shares else None)
    return nice_ticks(low, high, 5)


def x_scale(panel: Panel, left: float, right: float) -> Scale:
    xs = [x for series in panel.series for x in series.x]
    low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
    if low == high:  # one point stands in the middle
        low, high = low - 1, high + 1
    return Scale(low, high, left + 4, right - 4)


def panel_edges(chart: Chart, width: int, ticks: list[float]) -> list[tuple[float, float]]:
    """Where each panel begins and ends. The first one leaves room for the longest label of the y axis."""
    left = float(max(LEFT, math.ceil(12 + LETTER * max(len(text) for text in tick_labels(chart, ticks)))))
    total = sum(panel.width for panel in chart.panels)
    room = width - left - RIGHT - GAP * (len(chart.panels) - 1)
    edges: list[tuple[float, float]] = []
    for panel in chart.panels:
        right = left + room * panel.width / total
        edges.append((left, right))
        left = right + GAP
    return edges


def tick_labels(chart: Chart, ticks: list[float]) -> list[str]:
    places = decimals(ticks)
    return [percent(tick, max(0, places - 2)) if chart.shares else _tick(tick, places) for tick in ticks]


def y_grid(chart: Chart, scale: Scale, ticks: list[float], edges: list[tuple[float, float]]) -> str:
    parts: list[str] = []
    for tick, text in zip(ticks, tick_labels(chart, ticks), strict=True):
        y = scale(tick)
        parts.append(f'<text class="tick" x="{edges[0][0] - 8:g}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        for left, right in edges:
            line = "axis" if tick == ticks[0] else "grid"
            parts.append(f'<line class="{line}" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return "".join(parts)


def x_axis(title: str, scale: Scale, height: int, left: float, right: float) -> str:
    around = nice_ticks(scale.low, scale.high, max(2, int((right - left) / 56)), least=1.0)  # steps are whole
    ticks = [tick for tick in around if scale.holds(tick)]
    places = decimals(ticks)
    parts = [
        f'<text class="tick" x="{scale(tick):.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">'
        f"{_tick(tick, places)}</text>"
        for tick in ticks
    ]
    middle = f'x="{(left + right) / 2:.1f}" y="{height - 7}"'
    return "".join([*parts, f'<text class="name" {middle} text-anchor="middle">{safe(title)}</text>'])


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


def phase_bands(panel: Panel, scale: Scale, y: float, height: float) -> str:
    """Each phase but descent, from half a step before its first to half a step after its last, within the scale."""
    parts: list[str] = []
    for shade in panel.shades:
        first, last = max(shade.first - 0.5, scale.low), min(shade.last + 0.5, scale.high)
        if shade.name == "descent" or last <= first:
            continue
        x, width = scale(first), scale(last) - scale(first)
        told = f"<title>{safe(shade.name)}, steps {shade.first:g} to {shade.last:g}</title>"
        rect = f'<rect class="phase {safe(shade.name)}" x="{x:.1f}" width="{width:.1f}"'
        parts.append(f'{rect} y="{y:g}" height="{height:g}">{told}</rect>')
        # told by more than colour: only an eruption has a bar along its top
        parts.append(f'{rect.replace("phase ", "phase top ", 1)} y="{y:g}" height="3"/>')
    return "".join(parts)


def alarm_flags(panel: Panel, scale: Scale, top: float, bottom: float, middle: float) -> str:
    """A thin line at the step of each alarm, and its number at the height `middle` where there is room."""
    parts: list[str] = []
    free = float("-inf")
    for flag in panel.flags:
        if not scale.holds(flag.step):
            continue
        x = scale(flag.step)
        head = ""
        if x - _FLAG >= free:
            free = x + _FLAG
            head = f'<circle cx="{x:.1f}" cy="{middle:g}" r="{_FLAG}"/>'
            head += f'<text x="{x:.1f}" y="{middle + 3.3:g}" text-anchor="middle">{flag.number}</text>'
        told = f"<title>step {flag.step:g}: {safe(flag.text)}</title>"
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:g}"/>'
        parts.append(f'<g class="flag">{told}{line}{head}</g>')
    return "".join(parts)


def _tick(value: float, places: int) -> str:
    if places > 4 or abs(value) >= 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e") if value else "0"
    return f"{value:,.{places}f}"
