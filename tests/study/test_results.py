"""Tables, pages and curves of a study, made from folders alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from isentrope.results.curve import Window, best, converged
from isentrope.results.source import read_source
from isentrope.study.compact import write_compact
from isentrope.study.curves import families
from isentrope.study.folder import note_file, run_folder
from isentrope.study.measure_list import measured
from isentrope.study.plan import Plan
from isentrope.study.read import DONE, StudyData, StudyRun, read_study
from isentrope.study.results import render, write_results
from isentrope.study.statistics import Interval
from isentrope.study.tables import Counted, make_tables
from tests.study.made import cell, make_study, whole_run, write_run

PLAN = Plan(name="made", threshold=0.75)


def made(folder: Path) -> StudyData:
    """Three seeds each; epo ends 0.1, 0.2 and 0.3 above grpo. The last one of bad failed, with an evil reason."""
    cells = [cell("grpo", (0, 1, 2)), cell("epo", (0, 1, 2), "grpo"), cell("bad", (0,), "grpo")]
    make_study(folder, cells, PLAN)
    for seed, last in enumerate((0.4, 0.6, 0.5)):
        whole_run(folder, "grpo", seed, last)
        whole_run(folder, "epo", seed, last + (0.1, 0.2, 0.3)[seed])
    note_file(run_folder(folder, "bad", 0)).parent.mkdir()
    note_file(run_folder(folder, "bad", 0)).write_text('{"reason": "<script>alert(1)</script> | $x_1$"}')
    return read_study(folder)


def figures(data: StudyData, key: str, name: str, differences: bool = False) -> dict[str, object]:
    table = next(one for one in make_tables(data) if one.key == key and one.differences is differences)
    row = next(row for row in table.rows if row.cell == name)
    return {measure.key: figure for measure, figure in zip(table.measures, row.figures, strict=True)}


def test_a_table_by_hand(tmp_path: Path) -> None:
    data = made(tmp_path)
    found = figures(data, "results", "grpo")
    succ = found["succ"]
    assert isinstance(succ, Interval)
    assert succ.value == pytest.approx(0.5)
    assert succ.low == pytest.approx(0.5 - 4.3027 * 0.1 / 3**0.5, abs=1e-3)
    assert figures(data, "results", "epo")["steps_to"] == Counted(10.0, 2, 3)  # 0.5, 0.8, 0.8 against 0.75
    assert figures(data, "results", "grpo")["steps_to"] == Counted(None, 0, 3)
    tokens = figures(data, "results", "epo")["tokens_to"]
    assert tokens == Counted(10 * 10.0 * 6, 2, 3)  # ten steps, 10 tokens an episode, 2 × 3 episodes


def test_differences_are_paired(tmp_path: Path) -> None:
    """0.1, 0.2, 0.3: mean 0.2 and deviation 0.1, though the seeds themselves spread as much."""
    found = figures(made(tmp_path), "results", "epo", differences=True)["succ"]
    assert isinstance(found, Interval)
    assert found.value == pytest.approx(0.2, abs=1e-4)
    assert found.high == pytest.approx(0.2 + 4.3027 * 0.1 / 3**0.5, abs=1e-3)


def test_an_interval_of_a_share_stays_a_share(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0, 1))])
    whole_run(tmp_path, "a", 0, 0.1)
    whole_run(tmp_path, "a", 1, 1.0)
    found = figures(read_study(tmp_path), "results", "a")["succ"]
    assert isinstance(found, Interval)
    assert (found.low, found.high) == (0.0, 1.0)


def test_success_is_as_isentrope_table_has_it(tmp_path: Path) -> None:
    """Succ.* and Succ. are defined once more here, for the compact form; both must agree."""
    evals = {0: 0.9, 10: 0.31, 79: 0.72, 80: 0.53, 90: 0.44, 100: 0.61}
    make_study(tmp_path, [cell("a", (0,))])
    run = write_run(tmp_path, "a", 0, evals, [{"valid_ratio": 1.0}] * 100, steps=100)
    values = measured(read_study(tmp_path).runs[0], Plan())
    source = read_source(run)
    late = converged(source, "unseen", Window())
    assert values["succ_best"] == best(source, "unseen") == 0.72
    assert values["succ"] == pytest.approx(sum(late) / len(late))
    assert len(late) == 3


def test_measures_by_hand() -> None:
    train = tuple(
        {"step": n, "kind": "train", "entropy/token": value, "episode/tokens": 5.0, "resample/dropped": 1.0,
         "degeneracy/loops": 0.5}
        for n, value in enumerate((0.1, 0.3), start=1)
    )  # fmt: skip
    clock = tuple(
        {"step": n, "kind": "train", "seconds/rollout": n, "seconds/update": 1.0, "seconds/evaluate": 7.0}
        for n in (1, 2, 9)
    )
    config = {"run.steps": 2, "rollout.groups": 2, "rollout.group_size": 3}
    found = measured(StudyRun("a", {}, 0, DONE, "", config, train, (), (), clock), Plan())
    assert found["entropy"] == pytest.approx(0.2)
    assert found["entropy_late"] == 0.3
    assert found["entropy_variance"] == pytest.approx(0.01)
    assert found["entropy_range"] == pytest.approx(0.2)
    assert found["eruptions"] == found["amplitude"] == 0
    assert found["tokens"] == 2 * 5 * 3 * (2 + 1)  # the group that was dropped was sampled too
    assert found["step_seconds"] == 3.0  # 2, 3 and 10 without evaluations
    assert found["seconds"] == 12 + 3 + 21
    assert found["loops"] == 0.5
    assert "succ" not in found


def test_all_forms_are_written_and_harmless(tmp_path: Path) -> None:
    data = made(tmp_path)
    paths = write_results(data, tmp_path / "results")
    assert {path.name for path in paths} >= {"tables.md", "tables.tex", "tables.csv", "index.html"}
    assert any(path.suffix == ".svg" and "success" in path.name for path in paths)
    page = (tmp_path / "results" / "index.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "epo (3 seeds)" in page
    assert "<script>" not in render(data, "md")
    assert r"\begin{tabular}" in render(data, "latex")
    assert "| epo | grpo | 3 |" in render(data, "md")
    assert "bad/seed-0 failed" in render(data, "md")


def test_the_csv_has_every_figure(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(render(made(tmp_path), "csv"))))
    row = next(row for row in rows if row["cell"] == "epo" and row["measure"] == "succ" and row["against"] == "grpo")
    assert float(row["value"]) == pytest.approx(0.2, abs=1e-4)
    assert row["seeds"] == "3"
    assert row["tags"] == "method=epo"


def test_every_form_is_the_same_from_the_compact_form(tmp_path: Path) -> None:
    data = made(tmp_path / "runs")
    again = read_study(write_compact(data, tmp_path / "docs").parent)
    for form in ("md", "latex", "html", "csv"):
        assert render(again, form) == render(data, form)


def test_a_study_without_runs_has_tables(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0,)), cell("b", (0,), "a")])
    data = read_study(tmp_path)
    assert "2 runs: 0 done, 0 failed, 2 unfinished" in render(data, "md")
    assert render(data, "html")


def test_curves_go_by_baseline() -> None:
    cells = [cell("a"), *(cell(f"a{n}", against="a") for n in range(9)), cell("b"), cell("b1", against="b"), cell("z")]
    found = [(name, [one.name for one in members]) for name, members in families(cells)]
    assert found[0] == ("a (1)", ["a", *(f"a{n}" for n in range(7))])
    assert found[1] == ("a (2)", ["a", "a7", "a8"])
    assert found[2:] == [("b", ["b", "b1"]), ("others (1)", ["z"])]
