"""Charts as SVG: the lines of a chart, and the picture around them with its title, its one legend and its notes;
and strips, the phases and alarms of several runs over the same steps.

Colours are classes (`c0` to `c7`): in a page its style sheet decides about light and dark, a picture brings its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from isentrope.charts import axes
from isentrope.charts.axes import LETTER, Scale
from isentrope.charts.chart import Chart, Flag, Panel, Series, Shade, moving_mean, thinned
from isentrope.charts.style import PALETTE, plain_chart_style
from isentrope.charts.text import safe

WIDTH, HEIGHT = 400, 250  # of a chart, in CSS pixels
INCHES = 3.4  # what a column of a paper is wide
_POINTS = 400  # of a line: more would not be seen at this size
_ROW = 17  # of the legend
_LETTERS = 66  # that a line of the notes has room for in a picture of the usual width


def element(inside: str, width: float, height: float, label: str, top: float = 0) -> str:
    """A chart's own element, as it stands in a page or in a picture."""
    return (
        f'<svg class="chart" viewBox="0 {top:g} {width:g} {height:g}" role="img" aria-label="{safe(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    )


def document(inside: str, width: float, height: float, label: str, inches: float, style: str = "") -> str:
    """A file of its own, on white, in light colours and without variables, which not every viewer knows."""
    ink = PALETTE["ink"][0]
    own = f".l{{font:11px system-ui,sans-serif;fill:{ink}}}.l.h{{font-weight:600}}"
    own += f".chart .h{{font:600 15px system-ui,sans-serif;fill:{ink}}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{inches:g}in" height="{inches * height / width:.3f}in" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{safe(label)}">'
        f"<style>{plain_chart_style()}{own}{style}</style>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{inside}</svg>\n'
    )


def picture(*charts: Chart, title: str = "", width: int = WIDTH, height: int = HEIGHT, inches: float = INCHES) -> str:
    """One chart, or several side by side with one legend, as a file. `width` and `height` are those of each chart."""
    whole = width * max(1, len(charts))
    label = title or charts[0].title
    series = list({(line.name, line.color): line for chart in charts for line in chart.series}.values())
    notes = wrap("; ".join(dict.fromkeys(chart.note for chart in charts if chart.note)), _LETTERS * whole // WIDTH)
    names, head = legend(series, notes, 22, whole)
    drawn = "".join(
        f'<svg x="{width * number}" y="{head}" width="{width}" height="{height}">{lines(chart, width, height)}</svg>'
        for number, chart in enumerate(charts)
    )
    shown = title or charts[0].named
    inside = f'<text class="l h" x="12" y="15">{safe(shown)}</text>{names}{drawn}'
    return document(inside, whole, height + head, label, inches)


def legend(series: Sequence[Series], notes: Sequence[str], top: int, width: int) -> tuple[str, int]:
    """Names beside their lines, in as many rows as they need, then the notes; and where the chart begins."""
    parts: list[str] = []
    x, y = 12.0, top
    for name, line in [*((line.name, line) for line in series), *((note, None) for note in notes)]:
        room = 44 + 0.8 * LETTER * len(name)
        if x > 12 and (line is None or x + room > width):
            x, y = 12.0, y + _ROW
        if line is not None:
            parts.append(f'<path class="line c{line.color}" d="M{x:.0f} {y + 8}h24"/>')
        start = x + 30 if line is not None else x
        parts.append(f'<text class="l" x="{start:.0f}" y="{y + 12}">{safe(name)}</text>')
        x += room
    return "".join(parts), y + _ROW + 2


def key(color: int) -> str:
    """A piece of a line with its colour and its dash, for legends of pages."""
    return f'<svg class="key" viewBox="0 0 34 8" aria-hidden="true"><path class="line c{color}" d="M2 4H32"/></svg>'


def brand() -> str:
    curve = "M2 6C9 6 9 14 15 14s6-8 13-8"
    return f'<svg viewBox="0 0 30 20" aria-hidden="true"><path d="{curve}"/><path d="M2 10h26"/></svg>'


def lines(chart: Chart, width: int, height: int) -> str:
    """The chart itself, without title and legend."""
    ticks = axes.y_range(chart)
    y_scale, edges = Scale(ticks[0], ticks[-1], height - axes.BOTTOM, axes.TOP), axes.panel_edges(chart, width, ticks)
    parts = [axes.y_grid(chart, y_scale, ticks, edges)]
    for panel, (left, right) in zip(chart.panels, edges, strict=True):
        panel = replace(panel, series=[thinned(line, _POINTS) for line in panel.series])
        across = axes.x_scale(panel, left, right)
        parts.append(axes.phase_bands(panel, across, axes.TOP, height - axes.BOTTOM - axes.TOP))
        parts.append(axes.x_axis(panel.title or panel.x_name, across, height, left, right))
        parts.append(axes.mark_lines(panel, across, height))
        parts.append(axes.alarm_flags(panel, across, axes.TOP + 1, height - axes.BOTTOM, 7))
        parts += [_band(line, across, y_scale) for line in panel.series]
        parts += [_line(line, across, y_scale) for line in panel.series]
    return element("".join(parts), width, height, chart.title)


def _line(series: Series, across: Scale, up: Scale) -> str:
    if series.smooths:
        thin = _path(series.x, series.y, across, up, f"line thin c{series.color}") if series.raw else ""
        return thin + _path(series.x, moving_mean(series.y), across, up, f"line c{series.color}")
    points = [(across(x), up(y)) for x, y in zip(series.x, series.y, strict=True) if y is not None]
    dots = [f'<circle class="dot c{series.color}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>' for x, y in points]
    line = _path(series.x, series.y, across, up, f"line c{series.color}")
    return "".join([line, *(dots if series.markers or len(dots) == 1 else [])])


def _path(xs: list[float], ys: list[float | None], across: Scale, up: Scale, style: str) -> str:
    commands: list[str] = []
    pen_down = False
    for x, y in zip(xs, ys, strict=True):
        if y is not None:
            commands.append(f"{'L' if pen_down else 'M'}{across(x):.1f} {up(y):.1f}")
        pen_down = y is not None
    return f'<path class="{style}" d="{"".join(commands)}"/>' if commands else ""


def _band(series: Series, across: Scale, up: Scale) -> str:
    if series.low is None or series.high is None:
        return ""
    rows = zip(series.x, series.low, series.high, strict=True)
    known = [(across(x), up(low), up(high)) for x, low, high in rows if low is not None and high is not None]
    if len(known) == 1:  # a band without width would not be seen
        x, low, high = known[0]
        return f'<line class="line c{series.color}" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
    if not known:
        return ""
    edge = [f"{x:.1f} {high:.1f}" for x, _, high in known] + [f"{x:.1f} {low:.1f}" for x, low, _ in reversed(known)]
    return f'<path class="band c{series.color}" d="M{"L".join(edge)}Z"/>'


_STRIP, _BAR = 40, 16  # heights
_MOST_FLAGS = 60


@dataclass(frozen=True)
class Strip:
    """A run from its first step to its last."""

    name: str
    first: int
    last: int
    shades: tuple[Shade, ...] = ()
    flags: tuple[Flag, ...] = ()


def strips(runs: Sequence[Strip], width: int) -> str:
    """Eruptions and subsidence shaded, alarms flagged; nothing without runs."""
    if not runs:
        return ""
    height = axes.TOP + _STRIP * len(runs) + axes.BOTTOM
    scale = Scale(min(run.first for run in runs) - 0.5, max(run.last for run in runs) + 0.5, 12, width - axes.RIGHT)
    letters = int((width - 24) / LETTER)
    parts: list[str] = []
    for number, run in enumerate(runs):
        top = axes.TOP + _STRIP * number
        short = run.name if len(run.name) <= letters else run.name[: letters - 1] + "…"
        parts.append(f'<text class="run" x="12" y="{top + 11}">{safe(short)}</text>{_strip(run, scale, top + 17)}')
    axis = axes.x_axis("step", scale, height, 12, width - axes.RIGHT)
    return element("".join(parts) + axis, width, height, "Phases and alarms of the runs over their steps")


def _strip(run: Strip, scale: Scale, top: float) -> str:
    def bar(style: str, first: float, last: float) -> str:
        x = scale(first - 0.5)
        return f'<rect class="{style}" x="{x:.1f}" y="{top}" width="{scale(last + 0.5) - x:.1f}" height="{_BAR}"/>'

    ground = [bar("strip-ground", shade.first, shade.last) for shade in run.shades if shade.name != "descent"]
    panel = Panel([], shades=run.shades, flags=run.flags[:_MOST_FLAGS])
    flags = axes.alarm_flags(panel, scale, top, top + _BAR, top + _BAR / 2)
    return "".join([bar("strip-none", run.first, run.last), *ground, axes.phase_bands(panel, scale, top, _BAR), flags])
