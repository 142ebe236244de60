"""One picture of all methods: what each changes in Succ. against its baseline, with the interval over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.charts.forest import Row, forest_file
from isentrope.core.stats import Mean, bootstrap
from isentrope.study.grid import differences as apart
from isentrope.study.grid import make_grid
from isentrope.study.read import StudyData
from isentrope.study.tables import LEAST_SEEDS

_MANY = 5  # pairs of a cell that stands in a grid too
_TITLE = "What each method changes in success"
_NOTE = "mean over pairs of seeds with its 95 % interval; filled: the interval is clear of 0"


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
    rows: list[Row] = []
    for one in effects:
        points, elsewhere = one.points, f" ({one.study})" if one.study != usual else ""
        assert points.interval is not None
        name = f"{one.cell} − {one.against}{elsewhere}"
        rows.append(Row(name, points.value, points.interval.low, points.interval.high, points.count))
    return forest_file(_TITLE, _NOTE, "points of success against the baseline", rows)
