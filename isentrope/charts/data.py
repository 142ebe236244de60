"""A chart as data for the pages' script, which draws it with uPlot: {panels, shares, full, zero, bars, unit}."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from isentrope.charts.chart import Chart, Panel, Series, moving_mean, thinned
from isentrope.charts.text import visible

_POINTS = 1000  # of a line: enough to zoom into, and a page stays small
_DIGITS = 5


def as_json(chart: Chart) -> str:
    """Ready to stand in a script element of type application/json: no text in it can end the element."""
    names = [(line.name, line.color) for line in chart.series]
    data: dict[str, Any] = {"panels": [_panel(panel, names) for panel in chart.panels]}
    data |= {name: getattr(chart, name) for name in ("shares", "full", "zero", "bars", "unit")}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _panel(panel: Panel, names: Sequence[tuple[str, int]]) -> dict[str, Any]:
    lines = [thinned(line, _POINTS) for line in panel.series]
    steps = list(dict.fromkeys(tuple(line.x) for line in lines))  # most lines have the same ones
    return {
        "x_name": panel.x_name,
        "title": panel.title,
        "width": panel.width,
        "steps": [[int(x) if x == int(x) else x for x in column] for column in steps],
        "lines": [_line(line, steps.index(tuple(line.x)), names.index((line.name, line.color))) for line in lines],
        "marks": [[x, visible(text)] for x, text in panel.marks],
        "shades": [[shade.first, shade.last, shade.name] for shade in panel.shades if shade.name != "descent"],
        "flags": [[flag.step, flag.number, visible(flag.text)] for flag in panel.flags],
    }


def _line(line: Series, steps: int, place: int) -> dict[str, Any]:
    """`place` is that of the line in the legend. What is thick is `y`; `raw` stands thin behind a moving mean."""
    data: dict[str, Any] = {"name": visible(line.name), "place": place, "color": line.color, "steps": steps}
    data["y"] = _rounded(moving_mean(line.y) if line.smooths else line.y)
    if line.smooths:
        data["measured"] = _rounded(line.y)
        data["raw"] = line.raw
    if line.low is not None and line.high is not None:
        data["low"], data["high"] = _rounded(line.low), _rounded(line.high)
    if line.markers or sum(value is not None for value in line.y) == 1:
        data["markers"] = True
    return data


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.{_DIGITS}g}") for value in values]
