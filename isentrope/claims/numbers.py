"""The numbers behind a paper's page: a row for each cell that its figures show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isentrope.analysis.tables import markdown_table
from isentrope.claims.figures import Figure
from isentrope.claims.forest import differences
from isentrope.claims.pages import safe_cell
from isentrope.core.stats import bootstrap
from isentrope.metrics.temperature import footnotes, marked
from isentrope.study.measures import measured
from isentrope.study.read import DONE, StudyData, StudyRun
from isentrope.study.tables import LEAST_SEEDS, entropy_notes

_HEAD = ("cell", "seeds", "start", "half way", "Succ.", "against its baseline", "late entropy", "runs that erupt")
_LATE = _HEAD.index("late entropy")
_LEGEND = (
    "Success on {split} games in percent: before the first step, half way, and at the end (Succ.: mean of the "
    "evaluations in the last {share:g} % of the steps); the difference in Succ. to the baseline, in points, paired by "
    "seed; token entropy over that last part, in nats; runs in which the phase detector finds an eruption. In "
    "brackets: 95 % interval over seeds, from {least} seeds up; two seeds are both told."
)


def cells_of(figures: Sequence[Figure]) -> list[str]:
    return list(dict.fromkeys(cell for figure in figures for part in figure.parts for cell in part.cells))


def numbers(data: StudyData, cells: Sequence[str]) -> str:
    """Cells without a finished run are left out; entropies at another temperature than 1 are marked."""
    notes = entropy_notes(data)
    rows: list[list[str]] = []
    for cell in cells:
        runs = data.cell(cell, DONE)
        if runs:
            row = _row(data, cell, runs)
            row[_LATE] = marked(row[_LATE], notes.get(cell))
            rows.append([safe_cell(text) for text in row])
    plan = data.study.plan
    legend = _LEGEND.format(split=safe_cell(plan.split), share=100 * plan.converged, least=LEAST_SEEDS)
    heat = {cell: note for cell, note in notes.items() if cell in cells}
    told = [legend, *(safe_cell(f"{one}.") for one in footnotes(heat))]
    return f"{markdown_table(_HEAD, rows, figures=True)}\n\n{' '.join(told)}\n"


def _row(data: StudyData, cell: str, runs: Sequence[StudyRun]) -> list[str]:
    found = {run.seed: measured(run, data.study.plan) for run in runs}

    def column(key: str, scale: float, places: int, most: float) -> str:
        return over_seeds({seed: scale * one[key] for seed, one in found.items() if key in one}, places, 0.0, most)

    pairs = differences(data, cell)
    apart = over_seeds(pairs, 1, signed=True)
    half = {run.seed: 100 * value for run in runs if (value := _half_way(data, run)) is not None}
    erupting = sum(one.get("eruptions", 0) > 0 for one in found.values())
    return [
        cell,
        str(len(runs)),
        column("start", 100, 1, 100.0),
        over_seeds(half, 1, 0.0, 100.0),
        column("succ", 100, 1, 100.0),
        f"{apart} ({len(pairs)} of them)" if 0 < len(pairs) < len(runs) else apart,
        column("entropy_late", 1, 3, math.inf),
        f"{erupting} of {len(runs)}",
    ]


def _half_way(data: StudyData, run: StudyRun) -> float | None:
    """The last evaluation in the first half of the steps."""
    steps, values = run.series(f"eval/{data.study.plan.split}/success")
    before = [value for step, value in zip(steps, values, strict=True) if 0 < step <= run.steps / 2]
    return before[-1] if before else None


def over_seeds(
    values: Mapping[int, float], places: int, least: float = -math.inf, most: float = math.inf, signed: bool = False
) -> str:
    """The mean with its interval, which stays where values can be; with two seeds both; nothing for none."""

    def told(value: float) -> str:
        rounded = round(value, places) + 0.0  # a zero has no sign
        return f"{rounded:{'+' if signed and rounded else ''}.{places}f}".replace("-", "−")

    if len(values) < LEAST_SEEDS:
        return " and ".join(told(values[seed]) for seed in sorted(values))
    mean = bootstrap([values[seed] for seed in sorted(values)])
    assert mean.interval is not None
    ends = mean.interval.within(least, most)
    return f"{told(mean.value)} [{told(ends.low)}, {told(ends.high)}]"
