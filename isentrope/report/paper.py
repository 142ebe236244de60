"""Figures for papers: one metric each, a line for each run or row of seeds, as SVG or PDF. Text stays text in both.

SVG is our own. PDF is drawn by matplotlib, which the extra `figures` brings, from the same lines.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap

from isentrope.core.errors import RunError
from isentrope.report.axes import LETTER, Series
from isentrope.report.figures import unit_of
from isentrope.report.groups import Group
from isentrope.report.overlay import Overlay, overlay_of, overlays
from isentrope.report.plots import Plot
from isentrope.report.style import PALETTE, plain_chart_style
from isentrope.report.svg import line_chart
from isentrope.report.text import safe
from isentrope.runs.atomic import write_atomically

WIDTH, HEIGHT = 400, 250  # of the chart, in CSS pixels
INCHES = 3.4  # what a column of a paper is wide
_LINE = 17  # of the legend
_LETTERS = 66  # that a line of it has room for


def write_figures(groups: Sequence[Group], keys: Sequence[str], folder: Path, form: str) -> list[Path]:
    """One file for each metric, named after it; without `keys`, for every metric that a report shows."""
    if form == "pdf":
        check_matplotlib()
    paths: list[Path] = []
    for overlay in chosen(groups, keys):
        path = folder / f"{file_name(overlay.key)}.{form}"
        if form == "pdf":
            from isentrope.report.paper_pdf import picture_pdf

            data = picture_pdf(overlay)
        else:
            data = picture_svg(overlay).encode("utf-8", "replace")
        write_atomically(path, data)
        paths.append(path)
    return paths


def chosen(groups: Sequence[Group], keys: Sequence[str]) -> list[Overlay]:
    everything = {one.key: one for drawn in overlays(groups).values() for one in drawn}
    if not keys:
        if not everything:
            raise RunError("nothing has been measured in these runs yet; wait for the first step")
        return list(everything.values())
    return [everything.get(key) or _other(groups, key) for key in dict.fromkeys(keys)]


def _other(groups: Sequence[Group], key: str) -> Overlay:
    """A metric that the report does not show."""
    for kind in ("train", "eval", "sft"):
        unit = unit_of(key)
        found = overlay_of(groups, key, Plot(key, {key: key}, smooth=kind == "train", markers=kind == "eval"), kind)
        if found is not None:
            return Overlay(found.key, key, found.series, found.plot, found.band, unit)
    known = {key for group in groups for run in group.runs for record in run.records for key in record}
    near = get_close_matches(key, sorted(known), 3, 0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else "; docs/metrics.md lists them"
    raise RunError(f"--metric {key}: none of these runs measured it{hint}")


def file_name(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.") or "figure"


def y_label(overlay: Overlay) -> str:
    """The title with its unit: a figure in a paper has its caption elsewhere."""
    unit = "" if overlay.plot.shares else unit_of(overlay.key)
    return overlay.title + (f" ({unit})" if unit else "")


def picture_svg(overlay: Overlay, width: int = WIDTH, height: int = HEIGHT, inches: float = INCHES) -> str:
    """`width` and `height` of the chart are in CSS pixels, `inches` is how wide the picture wants to be shown."""
    chart = line_chart(overlay.chart(width, height, points=400), hover=False)
    legend, head = _legend(overlay, 22, width)
    ink = PALETTE["ink"][0]
    style = plain_chart_style() + f".l{{font:11px system-ui,sans-serif;fill:{ink}}}.l.h{{font-weight:600}}"
    whole = height + head
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{inches:g}in" height="{inches * whole / width:.3f}in" '
        f'viewBox="0 0 {width} {whole}" role="img" aria-label="{safe(overlay.title)}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text class="l h" x="12" y="15">{safe(y_label(overlay))}</text>'
        f'{legend}<svg x="0" y="{head}" width="{width}" height="{height}">{chart}</svg></svg>\n'
    )


def _legend(overlay: Overlay, top: int, width: int) -> tuple[str, int]:
    """Names beside their lines, in as many rows as they need, and what the bands are; and where the chart begins."""
    parts: list[str] = []
    x, y = 12.0, top
    names: list[tuple[str, Series | None]] = [(one.name, one) for one in overlay.series]
    names += [(line, None) for line in wrap(overlay.band, _LETTERS * width // WIDTH)]
    for name, series in names:
        room = 44 + 0.8 * LETTER * len(name)
        if x > 12 and (series is None or x + room > width):
            x, y = 12.0, y + _LINE
        if series is not None:
            parts.append(f'<path class="line c{series.color}" d="M{x:.0f} {y + 8}h24"/>')
        start = x + 30 if series is not None else x
        parts.append(f'<text class="l" x="{start:.0f}" y="{y + 12}">{safe(name)}</text>')
        x += room
    return "".join(parts), y + _LINE + 2


def check_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise RunError(
            "figures as PDF are drawn by matplotlib, which is not installed: pip install 'isentrope[figures]'; "
            "or write SVG: --format svg"
        )
