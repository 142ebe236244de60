"""A whole study with small programs in the place of runs: its budget, its lock, what was done elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from isentrope.core.errors import RunError
from isentrope.study.jobs import Job
from isentrope.study.plan import Plan, laid_over, read_plan
from isentrope.study.queue import WAITING, Queue
from isentrope.study.read import DONE, StudyData, read_study
from isentrope.study.run import How, run_study
from isentrope.study.show import Show
from tests.builders.run_folders import cell, make_study, whole_run

STUDY = "seeds = 2\nset = ['run.steps=10', 'rollout.groups=2', 'rollout.group_size=3', 'learn.lr=1e-4']\n[cells.a]\n"


class Sleeping(Queue):
    def command(self, job: Job) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(300)"]


def earlier(folder: Path, steps: int = 10) -> StudyData:
    make_study(folder, [cell("a", (0, 1))], Plan(name="study"))
    for seed in (0, 1):
        whole_run(folder, "a", seed, 0.5, steps)
    return read_study(folder)


def test_the_time_budget_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that would take five minutes and a budget of three seconds."""
    monkeypatch.setattr("isentrope.study.run.Queue", Sleeping)
    monkeypatch.setattr("isentrope.study.run.GRACE", 1.0)
    (tmp_path / "study.toml").write_text(STUDY)
    began = time.monotonic()
    queue = run_study(read_plan(tmp_path / "study.toml"), tmp_path / "out", How(minutes=0.05), Show(quiet=True))
    assert time.monotonic() - began < 60
    assert [entry.state for entry in queue.entries] == [WAITING, WAITING]
    assert queue.entries[0].tries == 1
    assert all(entry.process is None or entry.process.returncode is not None for entry in queue.entries)


def test_what_was_done_elsewhere_is_done(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    how = How(earlier=earlier(tmp_path / "before"))
    queue = run_study(read_plan(tmp_path / "study.toml"), tmp_path / "out", how, Show(quiet=True))
    assert [entry.state for entry in queue.entries] == [DONE, DONE]
    assert not (tmp_path / "out" / "a").exists()


def test_what_was_done_elsewhere_with_other_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    how = How(earlier=earlier(tmp_path / "before", steps=8))
    with pytest.raises(RunError, match=r"run\.steps was 8, now 10"):
        run_study(read_plan(tmp_path / "study.toml"), tmp_path / "out", how, Show(quiet=True))


def test_the_file_says_how_long_a_step_takes_until_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten steps of a second do not end in three seconds, one step does: the cell of one step goes first."""
    monkeypatch.setattr("isentrope.study.run.Queue", Sleeping)
    monkeypatch.setattr("isentrope.study.run.GRACE", 0.5)
    text = f"seconds_per_step = 1\n{STUDY}[cells.short]\nset = ['run.steps=1']\n".replace("seeds = 2", "seeds = 1")
    (tmp_path / "study.toml").write_text(text)
    how = How(side_by_side=1, minutes=0.05)
    queue = run_study(read_plan(tmp_path / "study.toml"), tmp_path / "out", how, Show())
    assert {entry.job.name: entry.tries for entry in queue.entries} == {"a/seed-0": 0, "short/seed-0": 1}
    assert "put off: a/seed-0 cannot end" in capsys.readouterr().out


def test_cells_that_are_not_run_now_must_fit_the_plan_too(tmp_path: Path) -> None:
    """Else --set with --only would mix runs of different settings in one table."""
    (tmp_path / "study.toml").write_text(f"{STUDY}[cells.b]\n")
    study = laid_over(read_plan(tmp_path / "study.toml"), ["learn.lr=1e-3"])
    whole_run(tmp_path / "out", "a", 0, 0.5)
    told = r"learn\.lr was 0\.0001, now 0\.001"
    with pytest.raises(RunError, match=told):
        run_study(study, tmp_path / "out", How(only=("b",)), Show(quiet=True))
    assert not (tmp_path / "out" / "study.json").exists()
    how = How(only=("b",), earlier=earlier(tmp_path / "before"))
    with pytest.raises(RunError, match=told):
        run_study(study, tmp_path / "elsewhere", how, Show(quiet=True))
