"""`isentrope study --dry-run`: lists cells, settings and the expected time, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.text import Text

from isentrope.analysis.tables import rich_table
from isentrope.charts.text import duration, visible
from isentrope.core.process import usable_cores
from isentrope.study.cells import Cell, shared_settings
from isentrope.study.jobs import Checked
from isentrope.study.measures import all_seconds
from isentrope.study.plan import Study
from isentrope.study.read import DONE, StudyData, StudyRun, read_one


def show_plan(
    study: Study, jobs: Sequence[Checked], out: Path, side_by_side: int, console: Console, earlier: StudyData | None
) -> None:
    """Lists every cell; the jobs are those that make_jobs has checked. `earlier`: what was run elsewhere."""
    common = shared_settings(study.cells)
    last = _ends(study.cells, len(common))
    rows: list[list[str]] = []
    steps = {checked.job.folder.parent.name: checked.config.run.steps for checked in jobs if checked.job.steps}
    for cell in study.cells:
        if cell.name in steps:
            tags = ", ".join(f"{key}={value}" for key, value in cell.tags.items())
            own = " ".join(cell.settings[len(common) : len(cell.settings) - len(last)])
            row = (cell.name, tags, str(len(cell.seeds)), str(steps[cell.name]), cell.against, own)
            rows.append([visible(text) for text in row])
    head, title = ("cell", "tags", "seeds", "steps", "against", "settings of its own"), visible(study.name)
    title += f": {len(study.cells)} cells"
    console.print(rich_table(head, rows, right=("seeds", "steps"), fold=True, title=title, box=None))
    together = {one.partition("=")[0]: one for one in (*common, *last)}  # of two for one setting the last one wins
    console.print(Text(f"\nAll runs: {visible(' '.join(together.values())) or 'as the recipe says'}"))
    console.print(Text(_estimate(study, jobs, side_by_side, _finished(study, out, earlier))))


def _ends(cells: Sequence[Cell], after: int) -> tuple[str, ...]:
    """What the settings of all cells end with: what --set lays over them."""
    return shared_settings([replace(cell, settings=cell.settings[after:][::-1]) for cell in cells])[::-1]


def _estimate(study: Study, jobs: Sequence[Checked], side_by_side: int, done: Mapping[str, StudyRun]) -> str:
    runs = [checked for checked in jobs if checked.job.steps]
    left = [checked for checked in runs if checked.job.name not in done]
    at_once = side_by_side or study.plan.side_by_side
    told = f"{len(runs)} runs, {len(runs) - len(left)} of them done; {sum(c.job.steps for c in left):,} steps left"
    pace, whence = study.plan.seconds_per_step, "as seconds_per_step says"
    measured = [seconds / run.steps for run in done.values() if (seconds := all_seconds(run)) and run.steps]
    if measured:
        pace, whence = median(measured), f"as in the {len(measured)} runs that are done, beside others"
    if not pace:
        return f"{told}. How long a step takes is not known yet: run one cell (--only) first, or set seconds_per_step."
    alone = sum(c.job.steps for c in left) * pace
    width = at_once or usable_cores()
    whole = (
        f"{duration(alone)} one after the other, {duration(alone / width)} with {width} at a time if they do not slow"
    )
    return f"{told}. {pace:.2f} s a step, {whence}: {whole} each other."


def _finished(study: Study, out: Path, earlier: StudyData | None) -> dict[str, StudyRun]:
    found = [read_one(out, cell, seed) for cell in study.cells for seed in cell.seeds]
    found += earlier.runs if earlier else ()
    return {run.name: run for run in found if run.status == DONE}
