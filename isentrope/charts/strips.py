"""Phases and alarms of several runs as strips over the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.charts.axes import BOTTOM, LETTER, RIGHT, TOP, Scale, alarm_flags, phase_bands, x_axis
from isentrope.charts.chart import Flag, Panel, Shade
from isentrope.charts.svg import element
from isentrope.charts.text import safe

_ROW, _BAR = 40, 16
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
    height = TOP + _ROW * len(runs) + BOTTOM
    scale = Scale(min(run.first for run in runs) - 0.5, max(run.last for run in runs) + 0.5, 12, width - RIGHT)
    letters = int((width - 24) / LETTER)
    parts: list[str] = []
    for number, run in enumerate(runs):
        top = TOP + _ROW * number
        short = run.name if len(run.name) <= letters else run.name[: letters - 1] + "…"
        parts.append(f'<text class="run" x="12" y="{top + 11}">{safe(short)}</text>{_strip(run, scale, top + 17)}')
    axis = x_axis("step", scale, height, 12, width - RIGHT)
    return element("".join(parts) + axis, width, height, "Phases and alarms of the runs over their steps")


def _strip(run: Strip, scale: Scale, top: float) -> str:
    def bar(style: str, first: float, last: float) -> str:
        x = scale(first - 0.5)
        return f'<rect class="{style}" x="{x:.1f}" y="{top}" width="{scale(last + 0.5) - x:.1f}" height="{_BAR}"/>'

    ground = [bar("strip-ground", shade.first, shade.last) for shade in run.shades if shade.name != "descent"]
    panel = Panel([], shades=run.shades, flags=run.flags[:_MOST_FLAGS])
    flags = alarm_flags(panel, scale, top, top + _BAR, top + _BAR / 2)
    return "".join([bar("strip-none", run.first, run.last), *ground, phase_bands(panel, scale, top, _BAR), flags])
