"""Whether runs of one study that were made in several places begin from the same weights: what their warm-ups learnt
tells. Warm-ups are not kept with a study's numbers; one that is made again on another device may be another model."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from isentrope.study.folder import WARMUP
from isentrope.study.read import DONE, StudyData, StudyRun, read_warmup

LOSS = "sft/loss"


def other_start(out: Path, job: str, earlier: StudyData | None) -> str:
    """What a user must know of a job that is done, if it is a warm-up and not the one that runs made elsewhere began
    from; empty if there is nothing to know."""
    kind, _, name = job.partition("/")
    there = earlier.warmups.get(name) if earlier and kind == WARMUP else None
    if earlier is None or there is None or there.status != DONE:
        return ""
    here = read_warmup(out, name)
    begun = sum(run.status == DONE and earlier.study.cell(run.cell).warmup == name for run in earlier.runs)
    apart = _apart(here, there) if begun and here.status == DONE else ""
    if not apart:
        return ""
    runs = "an earlier run" if begun == 1 else f"{begun} earlier runs"
    return (
        f"{job} is not the one that {runs} began from: {apart}. Runs are compared seed by seed, so a seed of which one "
        "run was made there and another here begins from two models. If you have that warm-up, stop and put its folder "
        f"in the place of {out / WARMUP / name}"
    )


def _apart(here: StudyRun, there: StudyRun) -> str:
    """The first step at which two warm-ups differ, in words. Both are known to four digits."""
    points = [zip(*run.series(LOSS), strict=True) for run in (here, there)]
    for now, before in zip_longest(*points):
        if now != before:
            step = (now or before)[0]
            values = [f"{point[1]:.4g}" if point else "none" for point in (before, now)]
            return f"at step {step} its loss was {values[0]} there and is {values[1]} here"
    return ""
