"""The picture of how a step's time grows: one chart per size, with the line that growth in proportion would follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isentrope.bench.work import Spent
from isentrope.report.axes import Chart, Panel, Series
from isentrope.report.style import PALETTE, plain_chart_style
from isentrope.report.svg import line_chart
from isentrope.report.text import safe

_WIDTH, _HEIGHT, _HEAD = 330, 260, 66
_PARTS = ("whole step", "rollout", "update", "linear")


def growth_svg(found: Mapping[str, Sequence[tuple[int, Spent]]]) -> str:
    """Seconds over size: the step and its two parts, and the straight line through the smallest size and zero."""
    ink = PALETTE["ink"][0]
    style = plain_chart_style() + f".chart text.h{{font:600 17px system-ui,sans-serif;fill:{ink}}}"
    style += f".chart text.l{{font-size:13px}}.chart .line.c7{{stroke:{ink};stroke-dasharray:3 4;stroke-width:1.5}}"
    charts = [_chart(axis, points, number) for number, (axis, points) in enumerate(found.items())]
    width = _WIDTH * max(1, len(charts)) + 20
    title = "Seconds of a training step as it grows"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT + _HEAD}" role="img" '
        f'aria-label="{safe(title)}"><style>{style}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<g class="chart"><text class="h" x="24" y="30">{safe(title)}</text>{_legend()}</g>{"".join(charts)}</svg>\n'
    )


def _chart(axis: str, points: Sequence[tuple[int, Spent]], number: int) -> str:
    sizes: list[float] = [float(size) for size, _ in points]
    first = points[0][1].step / sizes[0] if points else 0.0
    lines = [
        [spent.step for _, spent in points],
        [spent.rollout for _, spent in points],
        [spent.update for _, spent in points],
        [first * size for size in sizes],
    ]
    series = [Series(_PARTS[i], sizes, list(line), color=_color(i)) for i, line in enumerate(lines)]
    label = f"Seconds of a step over {axis}"
    chart = line_chart(Chart([Panel(series, axis, 1.0, axis)], label, width=_WIDTH, height=_HEIGHT), hover=False)
    x = 10 + number * _WIDTH
    return f'<svg x="{x}" y="{_HEAD}" width="{_WIDTH}" height="{_HEIGHT}">{chart}</svg>'


def _color(part: int) -> int:
    return 7 if part == len(_PARTS) - 1 else part


def _legend() -> str:
    parts: list[str] = []
    x = 24
    for i, name in enumerate(_PARTS):
        parts.append(f'<line class="line c{_color(i)}" x1="{x}" x2="{x + 18}" y1="52" y2="52"/>')
        parts.append(f'<text class="l" x="{x + 25}" y="56">{name}</text>')
        x += 120
    return "".join(parts)
