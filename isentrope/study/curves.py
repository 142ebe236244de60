"""Learning curves of a study: the mean over seeds with the interval of that mean, a chart for each baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from isentrope.report.axes import COLORS, Series
from isentrope.report.figures import Figure, meaning
from isentrope.report.overlay import Overlay, figure_of
from isentrope.report.paper import file_name, picture_svg
from isentrope.report.plots import Plot
from isentrope.rollout.files import write_atomically
from isentrope.study.cells import Cell
from isentrope.study.read import DONE, StudyData
from isentrope.study.statistics import band

BAND = "band: 95% interval of the mean over seeds"
ENTROPY = "entropy/token"
VALID = "valid_ratio"


def charts(data: StudyData) -> Iterator[tuple[str, Overlay]]:
    """A name and a chart: success, entropy and validity for each baseline with the cells that are compared with it."""
    plan = data.study.plan
    plots = {
        f"eval/{plan.split}/success": Plot(f"Success on {plan.split} games", {}, shares=True, full=True, markers=True),
        ENTROPY: Plot("Token entropy", {}),
        VALID: Plot("Valid actions", {}, shares=True, full=True),
    }
    for name, cells in families(data.study.cells):
        for key, plot in plots.items():
            drawn = [_series(data, cell, key, number) for number, cell in enumerate(cells)]
            series = [one for one in drawn if one is not None]
            if series:
                overlay = Overlay(key, f"{plot.title}: {name}", series, plot, BAND, meaning(key))
                yield f"{file_name(name)}-{file_name(key)}", overlay


def families(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Each baseline with the cells that are compared with it, as many at a time as there are colours; then the rest."""
    against = {cell.against for cell in cells}
    alone = [cell for cell in cells if not cell.against and cell.name not in against]
    for base in (cell for cell in cells if cell.name in against):
        others = [cell for cell in cells if cell.against == base.name]
        parts = [others[at : at + COLORS - 1] for at in range(0, len(others), COLORS - 1)]
        for number, part in enumerate(parts, start=1):
            yield base.name if len(parts) == 1 else f"{base.name} ({number})", [base, *part]
    for at in range(0, len(alone), COLORS):
        yield f"others ({at // COLORS + 1})", alone[at : at + COLORS]


def _series(data: StudyData, cell: Cell, key: str, number: int) -> Series | None:
    curves = [run.series(key) for run in data.cell(cell.name, DONE)]
    curves = [curve for curve in curves if curve[0]]
    if not curves:
        return None
    found = band(curves)
    several = len(curves) > 1
    return Series(
        name=f"{cell.name} ({len(curves)} seeds)" if several else cell.name,
        x=[float(step) for step in found.steps],
        y=[point.value for point in found.points],
        low=[_within(point.low, key) for point in found.points] if several else None,
        high=[_within(point.high, key) for point in found.points] if several else None,
        color=number % COLORS,
        markers=key.startswith("eval/"),
        key=key,
    )


def _within(value: float | None, key: str) -> float | None:
    """An interval of a share does not leave 0 to 1, and one of an entropy not 0."""
    if value is None:
        return None
    return max(0.0, value) if key == ENTROPY else min(1.0, max(0.0, value))


def figures(data: StudyData) -> list[Figure]:
    return [figure_of(overlay, "half") for _, overlay in charts(data)]


def write_curves(data: StudyData, folder: Path) -> list[Path]:
    paths: list[Path] = []
    for name, overlay in charts(data):
        write_atomically(folder / f"{name}.svg", picture_svg(overlay).encode("utf-8", "replace"))
        paths.append(folder / f"{name}.svg")
    return paths
