"""A study whose parts were run in several places, and what of them a compact form may not lose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from isentrope.analysis.tables import one_line
from isentrope.core.errors import RunError
from isentrope.study.compact import COMPACT, read_compact, write_compact
from isentrope.study.read import DONE, UNFINISHED, StudyData, StudyRun


def merged(data: StudyData, earlier: StudyData) -> StudyData:
    """What is not done here is taken from there if it is done there; what was not begun here, as far as it came."""
    there = {(run.cell, run.seed): run for run in earlier.runs}
    runs = [_further(run, there.get((run.cell, run.seed), run)) for run in data.runs]
    tagged = [replace(run, tags=data.study.cell(run.cell).tags) for run in runs]
    warmups = {
        name: earlier.warmups.get(name, run) if run.status != DONE else run for name, run in data.warmups.items()
    }
    return StudyData(data.study, tuple(tagged), warmups)


def _further(here: StudyRun, there: StudyRun) -> StudyRun:
    not_begun = here.status == UNFINISHED and not here.reached
    return there if here.status != DONE and (there.status == DONE or not_begun) else here


def left_behind(data: StudyData, there: StudyData, path: Path) -> str:
    """Which finished runs lie in `path` and are not in `data`, in words; empty if all are. After merging these are
    the ones whose cell or seed the plan no longer has."""
    here = {run.name for run in data.runs if run.status == DONE}
    gone = [run.name for run in there.runs if run.status == DONE and run.name not in here]
    names = one_line(", ".join(gone[:3])) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
    return f"{path} has finished runs that are not among these: {names}" if gone else ""


def write_over(data: StudyData, folder: Path) -> Path:
    """The compact form, in the place of an older one only if that one has nothing more."""
    old = folder / COMPACT
    if old.is_file() and (told := left_behind(data, read_compact(old), old)):
        raise RunError(f"{told}. Add them with --earlier {folder}, or remove the file if they are not wanted")
    return write_compact(data, folder)
