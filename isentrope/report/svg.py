"""Small line charts and stacked bars as SVG text.

A chart has one or more panels side by side that share the y axis. Colours are classes (`c0` to `c7`), so the
page's style sheet decides about light and dark. The values under the pointer travel in a `data-hover` attribute:

    {"names": [...], "colors": [...], "stops": [[x, "step 3", [[series, y, "41%"], ...]], ...]}
"""

from __future__ import annotations

from dataclasses import replace

from isentrope.report.axes import (
    BOTTOM,
    TOP,
    Chart,
    Panel,
    Series,
    frame,
    mark_lines,
    panel_edges,
    with_room,
    x_axis,
    x_label,
    x_title,
    y_grid,
)
from isentrope.report.events_drawn import alarm_flags, phase_bands
from isentrope.report.scale import Scale, nice_ticks, spread
from isentrope.report.text import percent, short

__all__ = ["Chart", "Panel", "Series", "line_chart", "moving_mean", "stacked_bars"]

_FEW_POINTS = 25  # fewer need no smoothing


def line_chart(chart: Chart, *, hover: bool = True) -> str:
    panels = [replace(panel, series=[_thinned(one, chart.points) for one in panel.series]) for panel in chart.panels]
    y_scale, y_ticks = _y_axis(chart)
    chart = with_room(chart, y_ticks)
    parts = [y_grid(chart, y_scale, y_ticks)]
    stops: list[list[object]] = []
    names = list(dict.fromkeys((series.name, series.color) for panel in panels for series in panel.series))
    for panel, (left, right) in zip(panels, panel_edges(chart), strict=True):
        x_scale = _x_scale(panel, left, right)
        parts += [phase_bands(panel, x_scale, chart.height), x_axis(panel, x_scale, chart.height, left, right)]
        parts += [mark_lines(panel, x_scale, chart.height), alarm_flags(panel, x_scale, chart.height)]
        parts += [_band(series, x_scale, y_scale) for series in panel.series]
        parts += [_line(series, x_scale, y_scale) for series in panel.series]
        stops += _stops(panel, chart, x_scale, y_scale, names)
    data = {"names": [name for name, _ in names], "colors": [color for _, color in names], "stops": stops}
    return frame(chart, "".join(parts), data if hover else None)


def stacked_bars(chart: Chart, unit: str) -> str:
    """Each series a layer; x are the positions of the bars. One panel, values not negative."""
    layers = chart.panels[0].series
    xs = layers[0].x
    totals = [sum(layer.y[i] or 0.0 for layer in layers) for i in range(len(xs))]
    y_ticks = nice_ticks(0.0, max([*totals, 1e-9]), 4)
    y_scale = Scale(0.0, y_ticks[-1], chart.height - BOTTOM, TOP)
    chart = with_room(chart, y_ticks)
    (left, right) = panel_edges(chart)[0]
    share = (right - left) / max(len(xs), 1)
    wide = min(54.0, share * 0.84)
    centres = [left + share * (i + 0.5) for i in range(len(xs))]
    parts = [y_grid(chart, y_scale, y_ticks)]
    stops: list[list[object]] = []
    floor = [0.0] * len(xs)
    for layer in layers:
        for i, value in enumerate(layer.y):
            top, bottom = y_scale(floor[i] + (value or 0.0)), y_scale(floor[i])
            floor[i] += value or 0.0
            parts.append(
                f'<rect class="bar c{layer.color}" x="{centres[i] - wide / 2:.1f}" y="{top:.1f}" '
                f'width="{wide:.1f}" height="{bottom - top:.1f}"/>'
            )
    for i, x in enumerate(xs):
        rows = [[n, None, f"{short(layer.y[i] or 0.0)} {unit}"] for n, layer in enumerate(layers)]
        stops.append([round(centres[i], 1), f"{chart.panels[0].x_name} {x:g}", rows])
    shown = range(0, len(xs), max(1, -(-len(xs) // 8)))
    parts += [x_label(centres[i], chart.height, f"{xs[i]:g}") for i in shown]
    parts.append(x_title(chart.panels[0], chart.height, left, right))
    hover = {"names": [s.name for s in layers], "colors": [s.color for s in layers], "stops": stops}
    return frame(chart, "".join(parts), hover)


def _y_axis(chart: Chart) -> tuple[Scale, list[float]]:
    values: list[float] = []
    for panel in chart.panels:
        for series in panel.series:
            for column in (series.y, series.low or [], series.high or []):
                values += [value for value in column if value is not None]
    low, high = (0.0, 1.0) if chart.full else spread(values, zero=chart.zero, most=1.0 if chart.shares else None)
    ticks = nice_ticks(low, high, 5)
    return Scale(ticks[0], ticks[-1], chart.height - BOTTOM, TOP), ticks


def _x_scale(panel: Panel, left: float, right: float) -> Scale:
    xs = [x for series in panel.series for x in series.x]
    low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
    if low == high:  # one point stands in the middle
        low, high = low - 1, high + 1
    return Scale(low, high, left + 4, right - 4)


def _line(series: Series, x_scale: Scale, y_scale: Scale) -> str:
    if series.smooth and len(series.y) >= _FEW_POINTS:
        thin = _path(series.x, series.y, x_scale, y_scale, f"line thin c{series.color}") if series.raw else ""
        return thin + _path(series.x, moving_mean(series.y), x_scale, y_scale, f"line c{series.color}")
    parts = [_path(series.x, series.y, x_scale, y_scale, f"line c{series.color}")]
    points = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
    if series.markers or len(points) == 1:
        parts += [
            f'<circle class="dot c{series.color}" cx="{x_scale(x):.1f}" cy="{y_scale(y):.1f}" r="3.2"/>'
            for x, y in points
        ]
    return "".join(parts)


def _path(xs: list[float], ys: list[float | None], x_scale: Scale, y_scale: Scale, style: str) -> str:
    commands: list[str] = []
    pen_down = False
    for x, y in zip(xs, ys, strict=True):
        if y is not None:
            commands.append(f"{'L' if pen_down else 'M'}{x_scale(x):.1f} {y_scale(y):.1f}")
        pen_down = y is not None
    return f'<path class="{style}" d="{"".join(commands)}"/>' if commands else ""


def _band(series: Series, x_scale: Scale, y_scale: Scale) -> str:
    if series.low is None or series.high is None:
        return ""
    rows = zip(series.x, series.low, series.high, strict=True)
    known = [(x_scale(x), y_scale(low), y_scale(high)) for x, low, high in rows if low is not None and high is not None]
    if len(known) == 1:  # a band without width would not be seen
        x, low, high = known[0]
        return f'<line class="line c{series.color}" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
    if not known:
        return ""
    edge = [f"{x:.1f} {high:.1f}" for x, _, high in known] + [f"{x:.1f} {low:.1f}" for x, low, _ in reversed(known)]
    return f'<path class="band c{series.color}" d="M{"L".join(edge)}Z"/>'


def _stops(
    panel: Panel, chart: Chart, x_scale: Scale, y_scale: Scale, names: list[tuple[str, int]]
) -> list[list[object]]:
    rows: dict[float, list[list[object]]] = {}
    for series in panel.series:
        number = names.index((series.name, series.color))
        for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            if y is not None:
                text = percent(y, 1) if chart.shares else short(y)
                low, high = (series.low or [None] * (i + 1))[i], (series.high or [None] * (i + 1))[i]
                if low is not None and high is not None:
                    ends = (percent(low), percent(high)) if chart.shares else (short(low), short(high))
                    text += f" ({ends[0]} to {ends[1]})"
                rows.setdefault(x, []).append([number, round(y_scale(y), 1), text])
    return [[round(x_scale(x), 1), f"{panel.x_name} {x:g}", rows[x]] for x in sorted(rows)]


def moving_mean(values: list[float | None]) -> list[float | None]:
    """Mean of equally many neighbours on both sides, a twentieth of the run together: a peak stays in its place."""
    widest = max(1, len(values) // 40)
    means: list[float | None] = []
    for i, value in enumerate(values):
        reach = min(widest, i, len(values) - 1 - i)
        near = [other for other in values[i - reach : i + reach + 1] if other is not None]
        means.append(None if value is None else sum(near) / len(near))
    return means


def _thinned(series: Series, most: int) -> Series:
    stride = -(-len(series.x) // most)
    if stride <= 1:
        return series
    kept = sorted({*range(0, len(series.x), stride), len(series.x) - 1})
    return replace(
        series,
        x=[series.x[i] for i in kept],
        y=[series.y[i] for i in kept],
        low=None if series.low is None else [series.low[i] for i in kept],
        high=None if series.high is None else [series.high[i] for i in kept],
    )
