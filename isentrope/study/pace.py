"""How long runs take, so that none is begun shortly before a study has to stop while a shorter one could still end."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from isentrope.study.progress import Progress

_SURE = 10  # steps after which a pace counts: the first ones hold the start and the first evaluation
_CLEARLY = 0.9  # of what it is expected to take: less time than this is clearly too little


def seconds_left(run: Progress, seen: Sequence[Progress], told: float = 0.0) -> float:
    """What the rest of a run takes at the pace of its cell's other runs, or else of all that were seen, or else of
    `told` seconds a step; 0: nothing is known."""
    cell = run.job.folder.parent
    known = [
        (one.job.folder.parent == cell, one.seconds_per_step)
        for one in seen
        if one.steps_here >= _SURE and one.job.steps and one.seconds_per_step
    ]
    paces = [pace for alike, pace in known if alike] or [pace for _, pace in known]
    return max(0, run.job.steps - run.step) * (median(paces) if paces else told)


def could_end(run: Progress, seen: Sequence[Progress], told: float, left: float) -> bool:
    return _CLEARLY * seconds_left(run, seen, told) <= left
