"""Phases and alarms in a chart: shaded steps behind the lines, and numbered flags above them."""

from __future__ import annotations

from isentrope.report.axes import BOTTOM, TOP, Panel
from isentrope.report.scale import Scale
from isentrope.report.text import safe

_FLAG = 6.5  # radius


def phase_bands(panel: Panel, scale: Scale, height: int) -> str:
    """Each phase but descent, from half a step before its first to half a step after its last, within the panel."""
    parts: list[str] = []
    for shade in panel.shades:
        first, last = max(shade.first - 0.5, scale.low), min(shade.last + 0.5, scale.high)
        if shade.name == "descent" or last <= first:
            continue
        x, width = scale(first), scale(last) - scale(first)
        told = f"<title>{safe(shade.name)}, steps {shade.first:g} to {shade.last:g}</title>"
        rect = f'<rect class="phase {safe(shade.name)}" x="{x:.1f}" width="{width:.1f}"'
        parts.append(f'{rect} y="{TOP}" height="{height - BOTTOM - TOP}">{told}</rect>')
        # told by more than colour: only an eruption has a bar along its top
        parts.append(f'{rect.replace("phase ", "phase top ", 1)} y="{TOP}" height="3"/>')
    return "".join(parts)


def alarm_flags(panel: Panel, scale: Scale, height: int) -> str:
    """A thin line at the step of each alarm, with its number above where there is room."""
    parts: list[str] = []
    free = float("-inf")
    for flag in panel.flags:
        if not scale.holds(flag.step):
            continue
        x = scale(flag.step)
        head = ""
        if x - _FLAG >= free:
            free = x + _FLAG
            head = f'<circle cx="{x:.1f}" cy="{_FLAG + 0.5}" r="{_FLAG}"/>'
            head += f'<text x="{x:.1f}" y="{_FLAG + 3.8}" text-anchor="middle">{flag.number}</text>'
        told = f"<title>step {flag.step:g}: {safe(flag.text)}</title>"
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 1}" y2="{height - BOTTOM}"/>'
        parts.append(f'<g class="flag">{told}{line}{head}</g>')
    return "".join(parts)
