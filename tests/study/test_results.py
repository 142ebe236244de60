"""Tables, pages and curves of a study, made from folders alone."""

from __future__ import annotations

import csv
import io
import json
import lzma
from pathlib import Path

import pytest

from isentrope.study.curves import charts
from isentrope.study.measures import measured
from isentrope.study.plan import Plan, note_file, run_folder
from isentrope.study.read import DONE, StudyData, StudyRun, read_study, write_compact
from isentrope.study.results import render, write_results
from isentrope.study.tables import Counted, Over, make_tables, notes, state
from tests.builders.run_folders import cell, make_study, whole_run

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
    assert isinstance(succ, Over)
    assert succ.value == pytest.approx(0.5)
    assert succ.low == pytest.approx(0.5 - 4.3027 * 0.1 / 3**0.5, abs=1e-3)
    assert figures(data, "results", "epo")["steps_to"] == Counted(
        10.0, {0: None, 1: 10, 2: 10}
    )  # 0.5, 0.8, 0.8 against 0.75
    assert figures(data, "results", "grpo")["steps_to"] == Counted(None, {0: None, 1: None, 2: None})
    tokens = figures(data, "results", "epo")["tokens_to"]
    assert isinstance(tokens, Counted)
    assert (tokens.value, tokens.reached) == (10 * 10.0 * 6, 2)  # ten steps, 10 tokens an episode, 2 × 3 episodes


def test_differences_are_paired(tmp_path: Path) -> None:
    """0.1, 0.2, 0.3: mean 0.2 and deviation 0.1, though the seeds themselves spread as much."""
    found = figures(made(tmp_path), "results", "epo", differences=True)["succ"]
    assert isinstance(found, Over)
    assert found.value == pytest.approx(0.2, abs=1e-4)
    assert found.high == pytest.approx(0.2 + 4.3027 * 0.1 / 3**0.5, abs=1e-3)


def test_an_interval_of_a_share_stays_a_share(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0, 1, 2))])
    for seed, last in enumerate((0.1, 1.0, 0.5)):
        whole_run(tmp_path, "a", seed, last)
    found = figures(read_study(tmp_path), "results", "a")["succ"]
    assert isinstance(found, Over)
    assert (found.low, found.high) == (0.0, 1.0)


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
    for form in ("text", "md", "latex", "html", "csv"):
        assert render(again, form) == render(data, form)


def test_a_study_without_runs_has_tables(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0,)), cell("b", (0,), "a")])
    data = read_study(tmp_path)
    assert "0 of 2 runs are done, in 0 of 2 cells; 2 not made yet" in render(data, "md")
    assert make_tables(data) == []
    assert all(render(data, form) for form in ("text", "latex", "html", "csv"))


def partial(folder: Path) -> StudyData:
    """Two seeds of three are done of a and b; of c none; d has one seed, and it is one that a does not have."""
    cells = [cell("a", (0, 1, 2)), *(cell(name, (0, 1, 2), "a") for name in "bcd")]
    make_study(folder, cells)
    for seed, last in enumerate((0.4, 0.6)):
        whole_run(folder, "a", seed, last)
        whole_run(folder, "b", seed, last + (0.1, -0.3)[seed])
    whole_run(folder, "d", 2, 0.7)
    return read_study(folder)


def test_cells_without_a_finished_run_are_left_out_and_told(tmp_path: Path) -> None:
    data = partial(tmp_path)
    for table in make_tables(data):
        assert [row.cell for row in table.rows] == (["b"] if table.differences else ["a", "b", "d"])
    told = "5 of 12 runs are done, in 3 of 4 cells; 7 not made yet. 1 cell without a finished run: not in the tables."
    assert state(data) == told
    assert all(told in render(data, form) for form in ("text", "md", "latex", "html"))
    assert {row["cell"] for row in csv.DictReader(io.StringIO(render(data, "csv")))} == {"a", "b", "d"}


def test_two_seeds_show_both_values_and_no_interval(tmp_path: Path) -> None:
    """An interval over two seeds would be thirteen times as wide as they lie apart."""
    data = partial(tmp_path)
    assert figures(data, "results", "a")["succ"] == Over(pytest.approx(0.5), {0: 0.4, 1: 0.6})
    for form in ("text", "md", "html"):
        text = render(data, form)
        assert "50.0 (40.0 and 60.0)" in text
        assert "-10.0 (+10.0 and -30.0)" in text
        assert "50.0 [" not in text
        assert "70.0 (" not in text  # one seed stands alone
    assert "$-$10.0 (+10.0 and $-$30.0)" in render(data, "latex")
    rows = [row for row in csv.DictReader(io.StringIO(render(data, "csv"))) if row["measure"] == "succ"]
    told = {row["cell"] + row["against"]: (row["low"], row["high"], row["by_seed"]) for row in rows}
    assert told == {
        "a": ("", "", "0=0.4 1=0.6"),
        "b": ("", "", "0=0.5 1=0.3"),
        "d": ("", "", "2=0.7"),
        "ba": ("", "", "0=0.1 1=-0.3"),
    }


def test_three_seeds_have_an_interval_everywhere(tmp_path: Path) -> None:
    data = made(tmp_path)
    assert "50.0 [25.2, 74.8]" in render(data, "md")
    row = next(row for row in csv.DictReader(io.StringIO(render(data, "csv"))) if row["measure"] == "succ")
    assert (row["low"], row["high"], row["by_seed"]) == ("0.251586", "0.748414", "0=0.4 1=0.6 2=0.5")
    never = next(row for row in csv.DictReader(io.StringIO(render(data, "csv"))) if row["measure"] == "steps_to")
    assert never["by_seed"] == "0=never 1=never 2=never"


def test_bands_are_drawn_from_three_seeds_up(tmp_path: Path) -> None:
    two = next(drawn for drawn in charts(partial(tmp_path / "two")) if "entropy" in drawn.name).chart
    assert all(one.low is None for one in two.series)
    assert "band" not in two.note
    three = next(drawn for drawn in charts(made(tmp_path / "three")) if "success" in drawn.name).chart
    assert all(one.low is not None for one in three.series)
    assert "from 3 seeds up" in three.note


def test_runs_of_different_lengths_are_told(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0,)), cell("b", (0,), "a"), cell("c", (0,), "a"), cell("d", (0,), "a")])
    for name, steps in {"a": 10, "b": 10, "c": 20}.items():
        whole_run(tmp_path, name, 0, 0.5, steps)
    told = [note for note in notes(read_study(tmp_path)) if "another length" in note]
    assert told == ["c is compared with runs of another length: 20 steps, a 10."]


def test_the_page_begins_with_its_picture_and_marks_what_leaves_zero_out(tmp_path: Path) -> None:
    """epo − grpo is 0.1, 0.2 and 0.3: its interval reaches below zero. The same with 0.2 three times does not."""
    page = render(made(tmp_path / "wide"), "html")
    assert page.index('class="chart"') < page.index("How to read the tables") < page.index("<table")
    assert "epo − grpo" in page
    assert 'class="open"' in page
    assert "▲" not in page
    make_study(tmp_path / "clear", [cell("grpo", (0, 1, 2)), cell("epo", (0, 1, 2), "grpo")], PLAN)
    for seed, last in enumerate((0.4, 0.6, 0.5)):
        whole_run(tmp_path / "clear", "grpo", seed, last)
        whole_run(tmp_path / "clear", "epo", seed, last + 0.2)
    page = render(read_study(tmp_path / "clear"), "html")
    assert 'class="apart"' in page
    assert '<b class="clear">▲\u00a0+20.0 <span class="ends">[20.0, 20.0]</span></b>' in page


def test_machine_and_versions_are_shown_and_kept(tmp_path: Path) -> None:
    data = made(tmp_path / "runs")
    assert "How it was run" not in render(data, "html")
    start = {"machine": {"processor": "Z80 <b>", "cores": "2"}, "versions": {"isentrope": "9.9", "torch": "9.8"}}
    start |= {"command": "isentrope train --out /home/<i>ada</i>/grpo"}
    about = {"kind": "train", "begun": "2026-01-02T03:04:05Z", "version": "9.9", "starts": [start]}
    for seed in range(3):
        (run_folder(tmp_path / "runs", "grpo", seed) / "run.json").write_text(json.dumps(about))
    data = read_study(tmp_path / "runs")
    write_compact(data, tmp_path / "compact")
    again = read_study(tmp_path / "compact")
    assert again.cell("grpo")[0].machine == data.cell("grpo")[0].machine == "Z80 <b>, 2 cores"
    for one in (data, again):
        page = render(one, "html")
        assert "Z80 &lt;b&gt;, 2 cores" in page
        assert "isentrope 9.9, torch 9.8" in page
    # the command names places of that machine: it stays there
    assert "isentrope train --out /home/&lt;i&gt;ada&lt;/i&gt;/grpo" in render(data, "html")
    assert b"/home/" not in lzma.decompress((tmp_path / "compact" / "runs.jsonl.xz").read_bytes())
