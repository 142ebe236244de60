"""A chart as PDF, by matplotlib, which the extra `figures` brings: vectors, and text that stays text."""

from __future__ import annotations

import importlib
import io
from textwrap import fill, wrap
from typing import Any

from isentrope.charts.chart import Chart, Series, moving_mean
from isentrope.charts.style import DASHES, PALETTE
from isentrope.charts.text import visible
from isentrope.core.errors import RunError
from isentrope.core.needs import install_command, is_here

_SIZE = (3.4, 2.4)  # inches: a column of a paper


def check_matplotlib() -> None:
    if not is_here("matplotlib"):
        raise RunError(
            f"figures as PDF are drawn by matplotlib, which is not installed: {install_command('figures')}; "
            "or write SVG: --format svg"
        )


def picture_pdf(chart: Chart) -> bytes:
    # the figure alone, without pyplot: no window, no backend of the user's, nothing global is changed
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    backend: Any = importlib.import_module("matplotlib.backends.backend_pdf")
    # fonts as TrueType (42): the text can be searched and edited; no part of a name is taken for mathematics
    style = {"pdf.fonttype": 42, "font.size": 8, "text.usetex": False, "text.parse_math": False}
    with matplotlib.rc_context(style):
        figure = figures.Figure(figsize=_SIZE, layout="constrained")
        backend.FigureCanvasPdf(figure)
        axes = figure.add_subplot()
        for series in chart.series:
            _draw(axes, series)
        _frame(axes, chart)
        _legend(figure, chart, fill(visible(chart.named), 58))
        data = io.BytesIO()
        figure.savefig(data, format="pdf", metadata={"CreationDate": None})  # equal runs give equal files
    return data.getvalue()


def _legend(figure: Any, chart: Chart, title: str) -> None:
    """Above the axes, where it hides no line: what is shown, what the bands are, and the names of the lines."""
    if len(chart.series) == 1 and not chart.note:
        figure.suptitle(title, x=0.02, horizontalalignment="left", fontsize=7.5)
        return
    longest = max(len(series.name) for series in chart.series)
    columns = max(1, min(3, 54 // (longest + 8)))
    legend = figure.legend(loc="outside upper left", fontsize=6.5, frameon=False, ncols=columns, handlelength=2.6)
    legend.set_title("\n".join([title, *wrap(chart.note, 66)]), prop={"size": 7})
    legend.set_alignment("left")


def _draw(axes: Any, series: Series) -> None:
    colour = PALETTE[f"s{series.color}"][0]
    dash = [float(part) / 2 for part in DASHES[series.color].split()]
    line = {"color": colour, "linewidth": 1.2, "linestyle": (0, dash) if dash else "-", "dash_capstyle": "round"}
    y: list[float | None] = series.y
    if series.smooths:
        if series.raw:
            axes.plot(series.x, _gaps(y), color=colour, linewidth=0.5, alpha=0.32)
        y = moving_mean(y)
    marker = {"marker": "o", "markersize": 3, "markerfacecolor": "white"} if series.markers or len(y) == 1 else {}
    axes.plot(series.x, _gaps(y), label=visible(series.name), **line, **marker)
    if series.low is not None and series.high is not None:
        axes.fill_between(series.x, _gaps(series.low), _gaps(series.high), color=colour, alpha=0.14, linewidth=0)


def _frame(axes: Any, chart: Chart) -> None:
    ticker: Any = importlib.import_module("matplotlib.ticker")
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=6))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    if chart.shares:
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=None))
    if chart.full:
        axes.set_ylim(0, 1)
    elif chart.zero:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0) if low < 0 else 0, high if high > 0 else 0)


def _gaps(values: list[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
