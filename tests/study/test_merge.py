"""A study of several places: what is taken from where, and that nothing is lost on the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from isentrope.core.errors import RunError
from isentrope.study.read import (
    DONE,
    FAILED,
    UNFINISHED,
    StudyData,
    left_behind,
    merged,
    read_study,
    write_compact,
    write_over,
)
from tests.builders.run_folders import cell, make_study, whole_run, write_run


def test_parts_that_were_run_in_several_places(tmp_path: Path) -> None:
    for place, seed in (("first", 0), ("second", 1)):
        make_study(tmp_path / place, [cell("a", (0, 1, 2))])
        whole_run(tmp_path / place, "a", seed, 0.5)
    write_compact(read_study(tmp_path / "first"), tmp_path / "docs")
    data = merged(read_study(tmp_path / "second"), read_study(tmp_path / "docs"))
    assert [run.status for run in data.runs] == [DONE, DONE, UNFINISHED]
    assert data.runs[0].series("valid_ratio") == read_study(tmp_path / "first").runs[0].series("valid_ratio")
    write_compact(data, tmp_path / "docs")  # in the place of the first
    assert read_study(tmp_path / "docs") == data


def test_what_was_not_begun_here_is_taken_as_far_as_it_came_there(tmp_path: Path) -> None:
    """Of five runs elsewhere one failed and four were cut off; here one was begun, one failed and one ended."""
    seeds = (0, 1, 2, 3, 4)
    for place in ("there", "here"):
        make_study(tmp_path / place, [cell("a", seeds)])
    for seed in (0, 1, 2, 3):
        write_run(tmp_path / "there", "a", seed, {0: 0.2}, [{"valid_ratio": 0.9}] * 7)
    (tmp_path / "there" / "a" / "seed-4.json").write_text('{"status": "failed", "reason": "why"}')
    write_run(tmp_path / "here", "a", 1, {0: 0.2}, [{"valid_ratio": 0.9}] * 3)
    (tmp_path / "here" / "a" / "seed-2.json").write_text('{"status": "failed", "reason": "here"}')
    whole_run(tmp_path / "here", "a", 3, 0.5)
    here, there = read_study(tmp_path / "here"), read_study(tmp_path / "there")
    data = merged(here, there)
    assert [(run.status, run.reached) for run in data.runs] == [
        (UNFINISHED, 7), (UNFINISHED, 3), (FAILED, 0), (DONE, 10), (FAILED, 0)
    ]  # fmt: skip
    assert [run.reason for run in data.runs] == ["", "", "here", "", "why"]
    shutil.rmtree(tmp_path / "there" / "a" / "seed-2")
    whole_run(tmp_path / "there", "a", 2, 0.5)
    assert merged(here, read_study(tmp_path / "there")).runs[2].status == DONE


def study_with(folder: Path, *done: str, planned: tuple[str, ...] = ("a", "b")) -> StudyData:
    """A study of one seed a cell."""
    make_study(folder, [cell(name, (0,)) for name in planned])
    for name in done:
        whole_run(folder, name, 0, 0.5)
    return read_study(folder)


def test_runs_of_a_cell_that_was_renamed_are_named(tmp_path: Path) -> None:
    before = study_with(tmp_path / "before", "a", "b")
    now = study_with(tmp_path / "now", planned=("a", "c"))
    told = left_behind(merged(now, before), before, Path("old"))
    assert told == "old has finished runs that are not among these: b/seed-0"
    assert left_behind(merged(study_with(tmp_path / "same"), before), before, Path("old")) == ""


def test_a_compact_form_is_not_written_over_by_one_that_has_less(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    path = write_over(study_with(tmp_path / "first", "a"), kept)
    before = path.read_bytes()
    second = study_with(tmp_path / "second", "b")
    with pytest.raises(RunError, match=f"a/seed-0.*--earlier {kept}"):
        write_over(second, kept)
    assert path.read_bytes() == before
    write_over(merged(second, read_study(kept)), kept)
    assert [run.status for run in read_study(kept).runs] == [DONE, DONE]
