from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.analysis.compare import Cell, Choices, make_tables
from isentrope.analysis.record import write_record
from isentrope.analysis.result_table import ResultTable
from isentrope.analysis.rows import Row, make_row, read_rows, read_source
from isentrope.analysis.success import Window
from isentrope.core.errors import ConfigError, RunError
from tests.analysis.helpers import record, write
from tests.builders.run_folders import run_folder


def one_table(rows: list[Row], **choices: Any) -> ResultTable:
    (table,) = make_tables(rows, Choices(**choices))
    return table


def test_succ_by_hand(tmp_path: Path) -> None:
    """Two seeds of 20 steps; the last fifth begins at step 16, that step included."""
    run_folder(tmp_path / "grpo-0", {0: 0.95, 8: 0.80, 16: 0.60, 20: 0.70}, seed=0, steps=20)
    run_folder(tmp_path / "grpo-1", {0: 0.10, 8: 0.20, 16: 0.50, 20: 0.30}, seed=1, steps=20)
    rows = read_rows([], [f"GRPO={tmp_path}/grpo-*"])
    (row,) = one_table(rows).rows
    assert (row.name, row.seeds, row.games) == ("GRPO", 2, 100)
    assert row.cells["succ_best"].value == pytest.approx(65.0)  # (80 + 50) / 2: step 0 has learnt nothing
    assert row.cells["succ"].value == pytest.approx(52.5)  # (65 + 40) / 2
    assert row.cells["succ"].std == pytest.approx(25 / 2**0.5)
    assert row.cells["all"] == Cell(pytest.approx(50.0), pytest.approx(40 / 2**0.5))  # step 20
    assert row.cells["avg"].value == pytest.approx(50.0)
    best = one_table(rows, at="best").rows[0]
    assert best.cells["all"].value == pytest.approx(65.0)
    assert one_table(rows, window=Window(0.6)).rows[0].cells["succ"].value == pytest.approx(155 / 3)  # steps 8 on
    assert one_table(rows, window=Window(from_step=17)).rows[0].cells["succ"].value == pytest.approx(50.0)
    assert one_table(rows, window=Window(1 / 30)).rows[0].cells["succ"].value == pytest.approx(50.0)


def test_one_seed_has_an_interval_and_no_deviation(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", {"unseen": [1] * 8 + [0] * 2}, name="ReAct")
    (row,) = one_table(read_rows([str(path)], [])).rows
    assert row.name == "ReAct"
    assert (row.cells["all"].low, row.cells["all"].high) == pytest.approx((49.02, 94.33), abs=0.01)
    assert row.cells["all"].std is None
    assert row.cells["kind/pick"].value == 80.0
    assert "succ" not in row.cells  # a single model has no checkpoints to compare
    assert "succ_best" not in row.cells


def test_files_show_the_types_and_runs_the_curve(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {0: 0.1, 10: 0.5, 20: 0.3}, steps=20)
    path = write(tmp_path / "a.json", {"seen": [1, 1, 1, 0]}, step=20)
    (row,) = one_table(read_rows([], [f"GRPO={run}", f"GRPO={path}"])).rows
    assert (row.games, row.cells["all"].value) == (4, 75.0)
    assert (row.cells["succ_best"].value, row.cells["succ"].value) == (50.0, 30.0)


def test_a_run_that_is_not_done(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {0: 0.1, 10: 0.5}, steps=100)
    table = one_table(read_rows([str(run)], []))
    assert "succ" not in table.rows[0].cells
    assert any("up to step 10 of 100" in note for note in table.notes)
    begun = run_folder(tmp_path / "begun", {0: 0.1}, steps=100)
    table = one_table(read_rows([str(begun)], []))
    assert table.rows[0].cells["all"].value == pytest.approx(10.0)
    assert any("no evaluation after step 0" in note for note in table.notes)


def test_columns_stand_in_the_papers_order(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {10: 0.5}, steps=10)
    assert one_table(read_rows([str(run)], [])).columns == ("kind/pick", "kind/heat", "all", "avg", "succ_best", "succ")
    more = one_table(read_rows([str(run)], []), more=True).columns
    assert more == ("kind/pick", "kind/heat", "all", "avg", "succ_best", "succ", "return", "turns", "valid_ratio")


def test_one_table_for_each_split(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"seen": [1, 0], "unseen": [0, 0]}, name="a")
    write(tmp_path / "b.json", {"unseen": [1, 1]}, name="b")
    rows = read_rows([str(tmp_path / "a.json"), str(tmp_path / "b.json")], [])
    seen, unseen = make_tables(rows, Choices())
    assert ([row.name for row in seen.rows], [row.name for row in unseen.rows]) == (["a"], ["a", "b"])
    assert "b was not evaluated on seen" in seen.notes
    assert one_table(rows, splits=("unseen",)).split == "unseen"
    with pytest.raises(RunError, match="no row was evaluated on the split 'train'; there are seen, unseen"):
        make_tables(rows, Choices(splits=("train",)))


def test_the_same_measurement_twice_is_refused(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {10: 0.5}, steps=10)
    path = write(tmp_path / "a.json", {"seen": [1]})
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    for pair in ([run, run], [run, tmp_path / "." / "run"], [path, path], [path, copy]):
        with pytest.raises(RunError, match="the same measurement twice"):
            read_rows([], [f"GRPO={one}" for one in pair])
    source = read_source(run)  # a run that went on between two looks at it
    with pytest.raises(RunError, match="the same measurement twice"):
        make_row("GRPO", [source, replace(source, identity="other")])
    assert len(read_rows([], [f"A={run}", f"B={run}"])) == 2  # two rows may share a run


@pytest.mark.parametrize(("settings", "words"), [
    ({"task__world": "other"}, r"task.world \('toy', 'other'\)"),
    ({"eval__temperature": 1.0}, r"eval.temperature \(0.4, 1.0\)"),
    ({"agent__order": "act"}, r"agent.order \('think_act', 'act'\)"),
    ({"task__options": {"rooms": "big"}}, r"task.options.rooms \('small', 'big'\)"),
    ({"episodes": 2}, r"eval.episodes \(1, 2\)"),
])  # fmt: skip
def test_a_row_of_different_tests_is_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    write(tmp_path / "a.json", {"seen": [1, 0]}, task__options={"rooms": "small"}, seed=0)
    write(tmp_path / "b.json", {"seen": [1, 0]}, **{"task__options": {"rooms": "small"}, "seed": 1, **settings})
    rows = read_rows([], [f"GRPO={tmp_path}/*.json"])
    with pytest.raises(RunError, match=words):
        make_tables(rows, Choices())
    notes = one_table(rows, mixed=True).notes
    assert any(note.startswith("GRPO: ") and "differ in" in note for note in notes)
    apart = read_rows([], [f"A={tmp_path}/a.json", f"B={tmp_path}/b.json"])
    assert any("A and B differ in their test" in note for note in one_table(apart).notes)


def test_a_row_of_other_splits_or_games_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"seen": [1, 0]}, seed=0)
    write(tmp_path / "b.json", {"unseen": [1, 0]}, seed=1)
    with pytest.raises(RunError, match="mixes splits"):
        make_tables(read_rows([], [f"GRPO={tmp_path}/*.json"]), Choices())
    write(tmp_path / "b.json", {"seen": [1, 0, 1]}, seed=1)
    rows = read_rows([], [f"GRPO={tmp_path}/*.json"])
    with pytest.raises(RunError, match="mixes numbers of seen games"):
        make_tables(rows, Choices())
    assert one_table(rows, mixed=True).rows[0].games == 2


def test_runs_with_other_recipes_or_the_same_seed_are_pointed_out(tmp_path: Path) -> None:
    run_folder(tmp_path / "a", {10: 0.5}, steps=10, config="[learn]\nlr = 0.1\n[policy]\nmodel = 'warm-0'\n")
    run_folder(tmp_path / "b", {10: 0.6}, steps=10, config="[learn]\nlr = 0.2\n[policy]\nmodel = 'warm-1'\n")
    notes = one_table(read_rows([], [f"GRPO={tmp_path}/*"])).notes
    assert any("learn.lr (0.1, 0.2)" in note and "policy.model" not in note for note in notes)
    assert any("the same seed" in note for note in notes)


def test_rows_by_name_and_by_pattern(tmp_path: Path) -> None:
    for number, name in enumerate(("ReAct", "ReAct", "SFT")):
        write(tmp_path / f"{number}.json", {"seen": [1, 0]}, name=name, seed=number)
    rows = read_rows([str(tmp_path / "*.json")], [f"RFT={tmp_path}/2.json"])
    assert [(row.name, len(row.sources)) for row in rows] == [("ReAct", 2), ("SFT", 1), ("RFT", 1)]
    odd = write(tmp_path / "a[1]*.json", {"seen": [1]}, name="odd")
    assert read_rows([str(odd)], [])[0].name == "odd"
    for wrong in ("GRPO", "=x", "GRPO=", " =x"):
        with pytest.raises(ConfigError, match="expected NAME=PATH"):
            read_rows([], [wrong])
    with pytest.raises(RunError, match="nothing is called"):
        read_rows([], ["GRPO=nowhere/*"])
    with pytest.raises(ConfigError, match="nothing to show"):
        read_rows([], [])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=6, max_size=6), min_size=1, max_size=4), st.randoms())
def test_the_order_of_files_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[list[int]], shuffle: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("order")
    sources = [read_source(write(folder / f"{seed}.json", {"seen": won}, seed=seed)) for seed, won in enumerate(seeds)]
    mixed = list(sources)
    shuffle.shuffle(mixed)
    assert make_row("a", sources) == make_row("a", mixed)
    assert one_table([make_row("a", sources)]) == one_table([make_row("a", mixed)])


def test_a_file_with_several_checkpoints_has_a_curve(tmp_path: Path) -> None:
    """`isentrope eval RUN --checkpoint all`: the last fifth of 10 steps begins at step 8."""
    made = [record({"seen": wins}, step=step) for step, wins in ((10, [1, 0]), (2, [1, 1]), (8, [0, 0]))]
    write_record(tmp_path / "a.json", replace(made[0], evaluations=sum((m.evaluations for m in made), ()), notes=()))
    (row,) = one_table(read_rows([], [f"GRPO={tmp_path}/a.json"])).rows
    cells = row.cells
    assert (cells["all"].value, cells["succ_best"].value, cells["succ"].value) == (50.0, 100.0, 25.0)
