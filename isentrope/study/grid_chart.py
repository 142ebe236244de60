"""The grid of changes and baselines as a picture: what raises success is blue, what lowers it orange."""

from __future__ import annotations

from isentrope.report.axes import LETTER
from isentrope.report.style import PALETTE, plain_chart_style
from isentrope.report.text import clipped, safe
from isentrope.study.grid import TITLE, Change, Grid

GRID = "changes.svg"
NOTE = "points of success (Succ.) against the baseline, small: pairs of seeds; over all: 95 % interval over baselines"
_STRONGEST = 10.0  # points: more is no darker, or the smaller ones would all look white
_UP, _DOWN, _DARKEST = (66, 133, 201), (224, 122, 42), 0.75
HEAD = 92  # above the first row
_COLUMN, _ROW, _LAST, _MOST_NAME = 84, 26, 170, 34


def grid_size(grid: Grid) -> tuple[int, int]:
    return round(_left(grid)) + _COLUMN * len(grid.baselines) + _LAST, HEAD + _ROW * len(grid.changes) + 14


def grid_marks(grid: Grid) -> str:
    """What stands inside of the picture's element, below its title."""
    left = _left(grid)
    heads = [
        f'<text x="{left + _COLUMN * (n + 0.5):.1f}" y="{HEAD - 10}" text-anchor="middle">{_name(name)}</text>'
        for n, name in enumerate(grid.baselines)
    ]
    heads.append(f'<text x="{_width(grid) - 14}" y="{HEAD - 10}" text-anchor="end">over all</text>')
    rows = [_row(change, grid, left, HEAD + _ROW * n) for n, change in enumerate(grid.changes)]
    return "".join([*heads, *rows])


def grid_svg(grid: Grid) -> str:
    """A picture of its own."""
    (width, height), ink = grid_size(grid), PALETTE["ink"][0]
    own = f".chart .h{{font:600 15px system-ui,sans-serif;fill:{ink}}}.chart .tinted{{fill:{ink}}}"
    style = f"{plain_chart_style()}{own}.chart .few{{font-size:10px}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width / 96:.3f}in" height="{height / 96:.3f}in" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{TITLE}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/><g class="chart">'
        f'<text class="h" x="14" y="24">{TITLE}</text><text x="14" y="46">{NOTE}</text>{grid_marks(grid)}</g></svg>\n'
    )


def _left(grid: Grid) -> float:
    return 26 + 0.95 * LETTER * max(len(_told(change)) for change in grid.changes)


def _width(grid: Grid) -> int:
    return grid_size(grid)[0]


def _told(change: Change) -> str:
    return clipped(change.name.replace("_", " "), _MOST_NAME)


def _name(text: str) -> str:
    return safe(clipped(text, _COLUMN // 7))


def _row(change: Change, grid: Grid, left: float, top: float) -> str:
    base = top + 0.66 * _ROW
    parts = [f'<text x="{left - 12:.1f}" y="{base:.1f}" text-anchor="end">{safe(_told(change))}</text>']
    for number, baseline in enumerate(grid.baselines):
        entry = change.entries.get(baseline)
        if entry is not None:
            parts.append(_entry(100 * entry.mean, len(entry.by_seed), left + _COLUMN * number, top))
    overall = change.overall
    told = signed(100 * overall.value)
    if overall.low is not None and overall.high is not None:
        told += f" [{signed(100 * overall.low)}, {signed(100 * overall.high)}]"
    weight = ' font-weight="650"' if overall.sign else ""
    parts.append(f'<text class="tick" x="{_width(grid) - 14}" y="{base:.1f}" text-anchor="end"{weight}>{told}</text>')
    return "".join(parts)


def _entry(points: float, pairs: int, x: float, top: float) -> str:
    fill = _colour(points)
    return (
        f'<rect x="{x + 1:.1f}" y="{top + 1:.1f}" width="{_COLUMN - 2}" height="{_ROW - 2}" rx="3" fill="{fill}"/>'
        f'<text class="tick tinted" x="{x + 0.62 * _COLUMN:.1f}" y="{top + 0.66 * _ROW:.1f}" text-anchor="end">'
        f"{signed(points)}</text>"
        f'<text class="tick tinted few" x="{x + _COLUMN - 10:.1f}" y="{top + 0.66 * _ROW:.1f}" text-anchor="end">'
        f"{pairs}</text>"
    )


def _colour(points: float) -> str:
    share = _DARKEST * min(1.0, abs(points) / _STRONGEST)
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in (_UP if points > 0 else _DOWN))


def signed(points: float, places: int = 1) -> str:
    shown = round(points, places) + 0.0  # a zero has no sign
    return f"{shown:+.{places}f}".replace("-", "−") if shown else f"{0:.{places}f}"
