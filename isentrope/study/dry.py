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
from isentrope.study.cells import shared_settings
from isentrope.study.jobs import Job
from isentrope.study.measures import all_seconds
from isentrope.study.plan import Study
from isentrope.study.read import DONE, StudyData, StudyRun, read_one


def show_plan(
    study: Study, jobs: Sequence[Job], out: Path, side_by_side: int, console: Console, earlier: StudyData | None
) -> None:
    """Lists every cell; the jobs are those that make_jobs has checked. `earlier`: what was run elsewhere."""
    common = shared_settings(study.cells)
    # what the settings of all cells end with: what --set lays over them
    turned = [replace(cell, settings=cell.settings[len(common) :][::-1]) for cell in study.cells]
    last = shared_settings(turned)[::-1]
    rows: list[list[str]] = []
    steps = {job.folder.parent.name: job.steps for job in jobs if job.steps}
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
    found = [read_one(out, cell, seed) for cell in study.cells for seed in cell.seeds]
    found += earlier.runs if earlier else ()
    done = {run.name: run for run in found if run.status == DONE}
    console.print(Text(_estimate(study, jobs, side_by_side or study.plan.side_by_side or usable_cores(), done)))


def _estimate(study: Study, jobs: Sequence[Job], at_once: int, done: Mapping[str, StudyRun]) -> str:
    runs = [job for job in jobs if job.steps]
    left = [job.steps for job in runs if job.name not in done]
    told = f"{len(runs)} runs, {len(runs) - len(left)} of them done; {sum(left):,} steps left"
    pace, whence = study.plan.seconds_per_step, "as seconds_per_step says"
    measured = [seconds / run.steps for run in done.values() if (seconds := all_seconds(run)) and run.steps]
    if measured:
        pace, whence = median(measured), f"as in the {len(measured)} runs that are done, beside others"
    if not pace:
        return f"{told}. How long a step takes is not known yet: run one cell (--only) first, or set seconds_per_step."
    alone = sum(left) * pace
    together = f"{duration(alone / at_once)} with {at_once} at a time if they do not slow each other"
    return f"{told}. {pace:.2f} s a step, {whence}: {duration(alone)} one after the other, {together}."
