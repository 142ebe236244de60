"""The success of one or more runs as a picture of its own, for a README: the warm-up, then the learning."""

from __future__ import annotations

from pathlib import Path

from isentrope.report.axes import COLORS, Chart, Panel, Series
from isentrope.report.figures import eval_series
from isentrope.report.style import PALETTE, plain_chart_style
from isentrope.report.svg import line_chart
from isentrope.report.text import safe
from isentrope.runs.folder import Run

_WIDTH, _HEIGHT, _HEAD = 900, 330, 74
_MEAN = COLORS  # the colour class after those of the runs


def success_plot_svg(runs: list[Path], split: str = "unseen", title: str = "") -> str:
    """Success on a split over the steps, a line with its 95 % interval per run, and the mean of several runs."""
    found = [Run.open(run) for run in runs]
    warmups = _distinct([run.warmup() for run in found])
    before = [eval_series(warmup.records, split, "warm-up", 5) for warmup in warmups]
    before = [series for series in before if not series.empty]
    during = [eval_series(run.records, split, _name(run), number % 5) for number, run in enumerate(found)]
    during = [series for series in during if not series.empty]
    if len(during) > 1:
        during.append(_mean(during))
    panels = [Panel(before, "warm-up step", 0.45, "warm-up (imitation) steps")] if before else []
    panels.append(Panel(during, "step", 1.0, "reinforcement learning steps"))
    label = title or f"Success on {split} games"
    chart = line_chart(Chart(panels, label, True, True, width=_WIDTH - 20, height=_HEIGHT), hover=False)
    ink = PALETTE["ink"][0]
    style = plain_chart_style() + f".chart .line.c{_MEAN}{{stroke:{ink};stroke-width:3}}"
    style += f".chart text.h{{font:600 17px system-ui,sans-serif;fill:{ink}}}.chart text.l{{font-size:13px}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + _HEAD}" role="img" '
        f'aria-label="{safe(label)}"><style>{style}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        f'<g class="chart"><text class="h" x="24" y="34">{safe(label)}</text>{_legend([*before[:1], *during])}</g>'
        f'<svg x="10" y="{_HEAD}" width="{_WIDTH - 20}" height="{_HEIGHT}">{chart}</svg></svg>\n'
    )


def _name(run: Run) -> str:
    seed = run.setting("run.seed")
    return run.name if seed is None else f"seed {seed}"


def _distinct(runs: list[Run | None]) -> list[Run]:
    """Several seeds often start from one warm-up, which is drawn once."""
    return list({run.path.resolve(): run for run in runs if run is not None}.values())


def _mean(series: list[Series]) -> Series:
    """The mean over the runs, at the steps that all of them were evaluated at."""
    values = [dict(zip(one.x, one.y, strict=True)) for one in series]
    steps = [x for x in series[0].x if all(one.get(x) is not None for one in values)]
    means: list[float | None] = [sum(one[step] or 0.0 for one in values) / len(values) for step in steps]
    return Series(f"mean of {len(series)}", steps, means, color=_MEAN)


def _legend(series: list[Series]) -> str:
    parts: list[str] = []
    x = 24.0
    for one in series:
        parts.append(f'<line class="line c{one.color}" x1="{x:.0f}" x2="{x + 18:.0f}" y1="57" y2="57"/>')
        parts.append(f'<text class="l" x="{x + 25:.0f}" y="61">{safe(one.name)}</text>')
        x += 48 + 7.2 * len(one.name)
    return "".join(parts)
