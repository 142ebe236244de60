"""What was begun before must be what the study file asks for now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from isentrope.config.text import as_table
from isentrope.core.errors import RunError
from isentrope.methods.options import with_options
from isentrope.runs.folder import leaves, read_config
from isentrope.runs.layout import METRICS, recorded_config
from isentrope.study.folder import run_folder
from isentrope.study.jobs import Checked
from isentrope.study.plan import Study
from isentrope.study.read import DONE, StudyData

# settings that say where and how a run runs, or that the run itself writes out
_NOT_COMPARED = (
    "run.device", "run.threads", "run.keep_last", "run.checkpoint_every", "run.track", "task.where", "task.workers",
    "engine.memory", "learn.micro_tokens", "eval.splits",
)  # fmt: skip


def begun_cells(study: Study, out: Path, earlier: StudyData | None) -> list[str]:
    """Cells of which a run was begun in `out`, or done elsewhere."""
    there = {run.cell for run in earlier.runs if run.status == DONE} if earlier else set[str]()
    found: list[str] = []
    for cell in study.cells:
        here = any((run_folder(out, cell.name, seed) / METRICS).is_file() for seed in cell.seeds)
        found += [cell.name] if here or cell.name in there else []
    return found


def check_begun(jobs: Sequence[Checked]) -> None:
    """Refuse to mix runs: also one that is done must have the settings that it would be begun with."""
    for checked in jobs:
        folder = checked.job.folder
        if not (folder / METRICS).is_file() or recorded_config(folder) is None:
            continue
        before = leaves(read_config(folder)[1])
        if told := differing(before, leaves(as_table(with_options(checked.config)))):
            raise RunError(
                f"{folder} was begun with other settings: {told}. Give the cell another name or the study another "
                "--out, or remove the folder"
            )


def done_before(jobs: Sequence[Checked], earlier: StudyData) -> frozenset[str]:
    """The names of the jobs that were done in an earlier part of the study, elsewhere."""
    found = {run.name: run for run in earlier.runs if run.status == DONE}
    for checked in jobs:
        run = found.get(checked.job.name)
        now = leaves(as_table(with_options(checked.config)))
        if run is not None and (told := differing(run.config, {**now, "policy.model": run.config.get("policy.model")})):
            raise RunError(f"{run.name} was run earlier with other settings: {told}. Give the cell another name")
    return frozenset(checked.job.name for checked in jobs if checked.job.name in found)


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first settings in which the two differ, in words; empty if they do not. One that an older run did not
    record is at its default."""
    keys = [key for key in sorted(now) if key in before and key not in _NOT_COMPARED]
    told = [f"{key} was {before[key]!r}, now {_plain(now[key])!r}" for key in keys if before[key] != _plain(now[key])]
    return "; ".join(told[:3])


def _plain(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
