"""One picture of all methods: what each changes in Succ. against its baseline, with the interval over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.core.stats import Mean, bootstrap
from isentrope.report.axes import LETTER
from isentrope.report.scale import Scale, nice_ticks
from isentrope.report.style import PALETTE, plain_chart_style
from isentrope.report.text import safe
from isentrope.study.grid import differences as apart
from isentrope.study.grid import make_grid
from isentrope.study.grid_chart import signed
from isentrope.study.read import StudyData
from isentrope.study.tables import LEAST_SEEDS

REACH = 25.0  # points: what lies farther out is an arrow at the edge, or the others would be a heap
_MANY = 5  # pairs of a cell that stands in a grid too
_WIDTH, _ROW, _HEAD, _FOOT, _RIGHT = 720, 22, 66, 48, 200
_TITLE = "What each method changes in success"


@dataclass(frozen=True)
class Effect:
    study: str
    cell: str
    against: str
    points: Mean  # of Succ., in points, over pairs of seeds


def effects_of(studies: Sequence[StudyData]) -> list[Effect]:
    """Of every cell with pairs enough, the largest first. Where a grid shows how changes do on several baselines, of
    those in it only the cells with most pairs: with all of them nobody would look at any."""
    found: list[Effect] = []
    for data in studies:
        grid = make_grid(data)
        shown = {entry.cell for change in grid.changes for entry in change.entries.values()} if grid else set[str]()
        for cell in data.study.cells:
            pairs = differences(data, cell.name)
            if len(pairs) >= (_MANY if cell.name in shown else LEAST_SEEDS):
                points = bootstrap([pairs[seed] for seed in sorted(pairs)])
                found.append(Effect(data.name, cell.name, cell.against, points))
    return sorted(found, key=lambda one: (-one.points.value, one.study, one.cell))


def differences(data: StudyData, cell: str) -> dict[int, float]:
    """A cell's Succ. less that of its baseline, in points, by seed."""
    found = next((one for one in data.study.cells if one.name == cell), None)
    return {seed: 100 * share for seed, share in apart(data, found).items()} if found else {}


def forest(studies: Sequence[StudyData]) -> str | None:
    """SVG; None if nothing has pairs enough."""
    effects = effects_of(studies)
    if not effects:
        return None
    usual, _ = Counter(one.study for one in effects).most_common(1)[0]
    names = [f"{one.cell} − {one.against}" + (f" ({one.study})" if one.study != usual else "") for one in effects]
    left = 24 + 0.9 * LETTER * max(len(name) for name in names)
    seen = [x for one in effects for x in (one.points.value, *_ends(one.points)) if abs(x) <= REACH]
    ticks = nice_ticks(min([*seen, -1.0]), max([*seen, 1.0]), 6, least=1.0)
    scale = Scale(ticks[0], ticks[-1], left, _WIDTH - _RIGHT)
    bottom = _HEAD + _ROW * len(effects)
    parts = [_grid(ticks, scale, bottom)]
    for number, (one, name) in enumerate(zip(effects, names, strict=True)):
        parts.append(_row(one.points, name, scale, _HEAD + _ROW * number + _ROW / 2, left))
    return _document("".join(parts), bottom + _FOOT)


def _ends(points: Mean) -> tuple[float, float]:
    assert points.interval is not None
    return points.interval.low, points.interval.high


def _grid(ticks: Sequence[float], scale: Scale, bottom: int) -> str:
    parts: list[str] = []
    for tick in ticks:
        kind = "zero" if tick == 0 else "grid"
        x = scale(tick)
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD - 4}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{signed(tick, 0)}</text>')
    middle = (scale.start + scale.end) / 2
    name = "points of success against the baseline"
    parts.append(f'<text class="name" x="{middle:.1f}" y="{bottom + 36}" text-anchor="middle">{name}</text>')
    return "".join(parts)


def _row(points: Mean, name: str, scale: Scale, y: float, left: float) -> str:
    low, high = _ends(points)
    kind = "apart" if points.sign else "open"
    start, end = (scale(min(scale.high, max(scale.low, x))) for x in (low, high))
    drawn = f'<line class="{kind}" x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>' if end > start else ""
    if scale.holds(points.value):
        drawn += f'<circle class="{kind}" cx="{scale(points.value):.1f}" cy="{y:.1f}" r="4"/>'
    drawn += _arrow(kind, scale.start, y, -1) if low < scale.low else ""
    drawn += _arrow(kind, scale.end, y, 1) if high > scale.high else ""
    told = f"{signed(points.value)} [{signed(low)}, {signed(high)}], {points.count}"
    return (
        f'<text class="who" x="{left - 10:.1f}" y="{y + 4:.1f}" text-anchor="end">{safe(name)}</text>{drawn}'
        f'<text class="tick" x="{_WIDTH - 14}" y="{y + 4:.1f}" text-anchor="end">{told}</text>'
    )


def _arrow(kind: str, x: float, y: float, way: int) -> str:
    return f'<path class="{kind} arrow" d="M{x + 7 * way:.1f} {y:.1f}l{-8 * way} -4v8z"/>'


def _document(inside: str, height: int) -> str:
    ink, soft, blue = PALETTE["ink"][0], PALETTE["soft"][0], PALETTE["s2"][0]
    style = plain_chart_style() + (
        f".chart .h{{font:600 15px system-ui,sans-serif;fill:{ink}}}.chart .who{{fill:{ink}}}"
        f".chart .zero{{stroke:{ink};stroke-opacity:.7}}.chart line.open{{stroke:{soft};stroke-width:1.6}}"
        f".chart line.apart{{stroke:{blue};stroke-width:2.4}}.chart circle.apart,.chart .apart.arrow{{fill:{blue}}}"
        f".chart circle.open{{fill:#ffffff;stroke:{soft};stroke-width:1.8}}.chart .open.arrow{{fill:{soft}}}"
    )
    note = "mean over pairs of seeds with its 95 % interval; filled: the interval is clear of 0"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="7.5in" height="{7.5 * height / _WIDTH:.3f}in" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{_TITLE}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/><g class="chart">'
        f'<text class="h" x="14" y="24">{_TITLE}</text><text x="14" y="44">{note}</text>'
        f'<text class="tick" x="{_WIDTH - 14}" y="{_HEAD - 10}" text-anchor="end">points [95 %], pairs</text>'
        f"{inside}</g></svg>\n"
    )
