"""A forest plot: effects with their intervals, a row each, over one axis with zero in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.charts.axes import LETTER, Scale, nice_ticks
from isentrope.charts.style import PALETTE
from isentrope.charts.svg import document, element
from isentrope.charts.text import safe, signed

REACH = 25.0  # what lies farther out is an arrow at the edge, or the others would be a heap
_WIDTH, _ROW, _HEAD, _FOOT, _RIGHT, _INCHES = 720, 22, 66, 48, 200, 7.5


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    low: float
    high: float
    pairs: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def forest_file(title: str, note: str, x_name: str, rows: Sequence[Row]) -> str:
    """As an SVG file."""
    inside, height = _drawn(rows, x_name)
    head = f'<text class="h" x="14" y="24">{safe(title)}</text><text x="14" y="44">{safe(note)}</text>'
    return document(f'<g class="chart">{head}{inside}</g>', _WIDTH, height, title, _INCHES, _style())


def forest_in_page(title: str, x_name: str, rows: Sequence[Row]) -> str:
    """Without title and note, which a page has beside it."""
    inside, height = _drawn(rows, x_name)
    drawn = element(inside, _WIDTH, height - _HEAD + 24, title, top=_HEAD - 24)
    return f'<div class="forest">{drawn}</div>'


def _drawn(rows: Sequence[Row], x_name: str) -> tuple[str, int]:
    """Axis and rows, and the height down to their end."""
    left = 24 + 0.9 * LETTER * max(len(row.name) for row in rows)
    within = [x for row in rows for x in (row.value, row.low, row.high) if abs(x) <= REACH]
    ticks = nice_ticks(min([*within, -1.0]), max([*within, 1.0]), 6, least=1.0)
    scale = Scale(ticks[0], ticks[-1], left, _WIDTH - _RIGHT)
    bottom = _HEAD + _ROW * len(rows)
    drawn = [_row(row, scale, _HEAD + _ROW * (number + 0.5), left) for number, row in enumerate(rows)]
    head = f'<text class="tick" x="{_WIDTH - 14}" y="{_HEAD - 10}" text-anchor="end">points [95 %], pairs</text>'
    return f"{head}{_grid(ticks, scale, bottom, x_name)}{''.join(drawn)}", bottom + _FOOT


def _grid(ticks: Sequence[float], scale: Scale, bottom: int, x_name: str) -> str:
    parts: list[str] = []
    for tick in ticks:
        kind = "zero" if tick == 0 else "grid"
        x = scale(tick)
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD - 4}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{signed(tick, 0)}</text>')
    middle = f'x="{(scale.start + scale.end) / 2:.1f}" y="{bottom + 36}"'
    return "".join([*parts, f'<text class="name" {middle} text-anchor="middle">{safe(x_name)}</text>'])


def _row(row: Row, scale: Scale, y: float, left: float) -> str:
    kind = "apart" if row.is_clear else "open"
    start, end = (scale(min(scale.high, max(scale.low, x))) for x in (row.low, row.high))
    drawn = f'<line class="{kind}" x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>' if end > start else ""
    if scale.holds(row.value):
        drawn += f'<circle class="{kind}" cx="{scale(row.value):.1f}" cy="{y:.1f}" r="4"/>'
    drawn += _arrow(kind, scale.start, y, -1) if row.low < scale.low else ""
    drawn += _arrow(kind, scale.end, y, 1) if row.high > scale.high else ""
    told = f"{signed(row.value)} [{signed(row.low)}, {signed(row.high)}], {row.pairs}"
    return (
        f'<text class="who" x="{left - 10:.1f}" y="{y + 4:.1f}" text-anchor="end">{safe(row.name)}</text>{drawn}'
        f'<text class="tick" x="{_WIDTH - 14}" y="{y + 4:.1f}" text-anchor="end">{told}</text>'
    )


def _arrow(kind: str, x: float, y: float, way: int) -> str:
    return f'<path class="{kind} arrow" d="M{x + 7 * way:.1f} {y:.1f}l{-8 * way} -4v8z"/>'


def _style() -> str:
    ink, soft, blue = PALETTE["ink"][0], PALETTE["soft"][0], PALETTE["s2"][0]
    return (
        f".chart .who{{fill:{ink}}}"
        f".chart .zero{{stroke:{ink};stroke-opacity:.7}}.chart line.open{{stroke:{soft};stroke-width:1.6}}"
        f".chart line.apart{{stroke:{blue};stroke-width:2.4}}.chart circle.apart,.chart .apart.arrow{{fill:{blue}}}"
        f".chart circle.open{{fill:#ffffff;stroke:{soft};stroke-width:1.8}}.chart .open.arrow{{fill:{soft}}}"
    )
