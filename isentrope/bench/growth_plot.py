"""The picture of how a step's time grows: one chart per size, with the line that growth in proportion would follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isentrope.bench.work import Spent
from isentrope.charts.chart import Chart, Panel, Series
from isentrope.charts.svg import picture

_COLORS = {"whole step": 0, "rollout": 1, "update": 2, "linear": 7}


def growth_svg(sizes: Mapping[str, Sequence[tuple[int, Spent]]]) -> str:
    """Seconds over size: the step and its two parts, and the straight line through the smallest size and zero."""
    charts = [_chart(axis, points) for axis, points in sizes.items()]
    title = "Seconds of a training step as it grows"
    return picture(*charts, title=title, width=330, height=260, inches=3.4 * max(1, len(charts)))


def _chart(axis: str, points: Sequence[tuple[int, Spent]]) -> Chart:
    sizes = [float(size) for size, _ in points]
    first = points[0][1].step / sizes[0] if points else 0.0
    lines: dict[str, list[float | None]] = {
        "whole step": [spent.step for _, spent in points],
        "rollout": [spent.rollout for _, spent in points],
        "update": [spent.update for _, spent in points],
        "linear": [first * size for size in sizes],
    }
    series = [Series(name, sizes, line, color=_COLORS[name]) for name, line in lines.items()]
    return Chart(f"Seconds of a step over {axis}", [Panel(series, axis)])
