"""Phases and alarms of several runs, a strip for each over the same steps."""

from __future__ import annotations

from collections.abc import Sequence

from isentrope.report.axes import BOTTOM, LETTER, RIGHT, TOP, Chart, Panel, frame, x_axis
from isentrope.report.groups import Group
from isentrope.report.scale import Scale
from isentrope.report.story import Story
from isentrope.report.text import safe
from isentrope.runs.folder import Run

_ROW, _BAR = 40, 16
_MOST_NAMED = 60


def strips(runs: Sequence[tuple[str, Run, Story]], width: int) -> str:
    """A strip from the first step of each run to its last: eruptions and subsidence shaded, alarms flagged."""
    spans = [_steps(run) for _, run, _ in runs]
    known = [span for span in spans if span is not None]
    if not known:
        return ""
    height = TOP + _ROW * len(known) + BOTTOM
    low, high = min(a for a, _ in known), max(b for _, b in known)
    scale = Scale(low - 0.5, high + 0.5, 12, width - RIGHT)
    chart = Chart([Panel([])], "Phases and alarms of the runs over their steps", width=width, height=height)
    parts: list[str] = []
    y = TOP
    for (name, _, story), span in zip(runs, spans, strict=True):
        if span is None:
            continue
        letters = int((width - 24) / LETTER)
        short = name if len(name) <= letters else name[: letters - 1] + "…"
        parts.append(f'<text class="run" x="12" y="{y + 11}">{safe(short)}</text>')
        parts.append(_strip(story, span, scale, y + 17))
        y += _ROW
    return frame(chart, "".join(parts) + x_axis(Panel([]), scale, height, 12, width - RIGHT), None)


def _strip(story: Story, span: tuple[int, int], scale: Scale, y: float) -> str:
    def bar(style: str, first: float, last: float, height: float, told: str = "") -> str:
        x = scale(first - 0.5)
        rect = f'<rect class="{style}" x="{x:.1f}" y="{y}" width="{scale(last + 0.5) - x:.1f}" height="{height}"'
        return f"{rect}><title>{told}</title></rect>" if told else f"{rect}/>"

    parts = [bar("strip-none", *span, _BAR)]
    for shade in story.shades:
        if shade.name != "descent":
            told = f"{safe(shade.name)}, steps {shade.first:g} to {shade.last:g}"
            parts.append(bar("strip-ground", shade.first, shade.last, _BAR))
            parts.append(bar(f"phase {safe(shade.name)}", shade.first, shade.last, _BAR, told))
            parts.append(bar(f"phase top {safe(shade.name)}", shade.first, shade.last, 3))
    free = float("-inf")
    for flag in story.flags[:_MOST_NAMED]:
        x = scale(flag.step)
        told = f"<title>step {flag.step:g}: {safe(flag.text)}</title>"
        head = ""
        if x - 7 >= free:
            free = x + 7
            head = f'<circle cx="{x:.1f}" cy="{y + _BAR / 2:g}" r="6.5"/>'
            head += f'<text x="{x:.1f}" y="{y + _BAR / 2 + 3.3:g}" text-anchor="middle">{flag.number}</text>'
        parts.append(f'<g class="flag">{told}<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + _BAR}"/>{head}</g>')
    return "".join(parts)


def _steps(run: Run) -> tuple[int, int] | None:
    steps = [int(record["step"]) for record in run.of_kind("train")]
    return (min(steps), max(steps)) if steps else None


def named(groups: Sequence[Group]) -> list[tuple[str, Run]]:
    """Every run with a name of its own: that of its group, and its own where the group has several."""
    return [
        (group.name if len(group.runs) == 1 else f"{group.name}: {run.name}", run)
        for group in groups
        for run in group.runs
    ]
