"""What is read of a study, from folders and from the compact form."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.errors import RunError
from isentrope.study.plan import Plan, Study, note_file, run_folder
from isentrope.study.read import (
    COMPACT,
    DONE,
    FAILED,
    UNFINISHED,
    StudyData,
    StudyRun,
    read_compact,
    read_study,
    significant,
    write_compact,
)
from tests.builders.run_folders import cell, make_study, whole_run, write_run
from tests.builders.sizes import examples


def made(folder: Path) -> StudyData:
    """grpo: one run done, one failed in the middle; epo: one unfinished, one not begun."""
    make_study(folder, [cell("grpo", algorithm="grpo", method="none"), cell("epo", algorithm="grpo", method="epo")])
    whole_run(folder, "grpo", 0, 0.8)
    broken = write_run(folder, "grpo", 1, {0: 0.2}, [{"entropy/token": 0.123456789, "loss/kl": None}] * 3)
    note_file(broken).write_text(json.dumps({"reason": "no memory", "settings": []}))
    (broken / "events.jsonl").write_text('{"step": 2, "kind": "alarm", "name": "eruption", "text": "up"}\n')
    write_run(folder, "epo", 0, {0: 0.2, 5: 0.5}, [{"entropy/token": 0.4}] * 6)
    return read_study(folder)


def test_runs_with_their_state(tmp_path: Path) -> None:
    data = made(tmp_path)
    assert [(run.name, run.status) for run in data.runs] == [
        ("grpo/seed-0", DONE), ("grpo/seed-1", FAILED), ("epo/seed-0", UNFINISHED), ("epo/seed-1", UNFINISHED),
    ]  # fmt: skip
    assert data.runs[1].reason == "no memory"
    assert data.runs[0].series("eval/unseen/success") == ((0, 5, 10), (0.2, 0.4, 0.8))
    assert data.runs[1].series("entropy/token") == ((1, 2, 3), (0.1235,) * 3)  # four digits
    assert data.runs[1].series("loss/kl") == ((), ())
    assert data.runs[0].series("seconds/update")[1] == (2.0,) * 10
    assert data.runs[0].config["learn.lr"] == 1e-4
    assert (data.runs[2].reached, data.runs[2].steps, data.runs[3].steps) == (6, 10, 0)
    assert data.runs[1].events[0]["name"] == "eruption"


def test_runs_are_selected_by_tags(tmp_path: Path) -> None:
    data = made(tmp_path)
    assert [run.name for run in data.select(algorithm="grpo", method="epo")] == ["epo/seed-0", "epo/seed-1"]
    assert [run.name for run in data.select(status=DONE, algorithm="grpo")] == ["grpo/seed-0"]
    assert len(data.select(variant="")) == 4
    assert data.select(variant="base") == []
    assert [one.name for one in data.cells(method="none")] == ["grpo"]


def test_a_run_is_done_with_its_last_evaluation(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0, 1))])
    rows = [{"entropy/token": 0.1}] * 10
    write_run(tmp_path, "a", 0, {0: 0.2, 5: 0.4}, rows)
    write_run(tmp_path, "a", 1, {0: 0.2, 10: 0.4}, rows)
    assert [run.status for run in read_study(tmp_path).runs] == [UNFINISHED, DONE]


def test_a_run_that_succeeded_after_all_is_done(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a", (0,))])
    note_file(whole_run(tmp_path, "a", 0, 0.5)).write_text('{"reason": "old"}')
    run = read_study(tmp_path).runs[0]
    assert (run.status, run.reason) == (DONE, "")


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("a")])
    whole_run(tmp_path, "a", 0, 0.5)
    (whole_run(tmp_path, "a", 1, 0.5) / "metrics.jsonl").write_text("{}\nnonsense\n{}\n")
    runs = read_study(tmp_path).runs
    assert [run.status for run in runs] == [DONE, FAILED]
    assert "damaged" in runs[1].reason


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    data = made(tmp_path / "runs")
    path = write_compact(data, tmp_path / "docs")
    for place in (path, tmp_path / "docs"):
        again = read_study(place)
        assert again.runs == data.runs
        assert again.study == data.study
        assert again.warmups == data.warmups


def test_the_warm_up_is_kept(tmp_path: Path) -> None:
    one = StudyRun("warmup", {"warmup": "w"}, 0, DONE, sft=({"step": 3, "kind": "sft", "sft/loss": 0.5},))
    data = StudyData(Study(Plan(name="x"), ()), (), {"w": one})
    assert read_compact(write_compact(data, tmp_path)) == data
    assert one.series("sft/loss") == ((3,), (0.5,))


values = st.one_of(st.none(), st.floats(-1e6, 1e6).map(significant), st.integers(-5, 5))
rows = st.lists(st.dictionaries(st.sampled_from(["a", "entropy/token", "ü"]), values), max_size=5)


@examples(30)
@given(rows, rows)
def test_any_rows_come_back(tmp_path_factory: pytest.TempPathFactory, train: list[Any], evals: list[Any]) -> None:
    logs = [tuple({"step": n, "kind": "x", **row} for n, row in enumerate(table)) for table in (train, evals)]
    run = StudyRun("c", {"method": "x"}, 1, FAILED, "why\nnot", {"run.steps": 4}, logs[0], logs[1])
    data = StudyData(Study(Plan(name="x"), (cell("c", (1,), method="x"),)), (run,))
    assert read_compact(write_compact(data, tmp_path_factory.mktemp("study"))) == data


def test_it_is_small(tmp_path: Path) -> None:
    """A run of 100 steps with 60 noisy metrics takes less than 25 kB; as a log it has over 100."""
    import random

    noise = random.Random(0)
    table = [{f"key/{n}": noise.random() for n in range(60)} for _ in range(100)]
    make_study(tmp_path, [cell("a", (0,))])
    run = write_run(tmp_path, "a", 0, {100: 0.5}, table, steps=100)
    assert (run / "metrics.jsonl").stat().st_size > 100_000
    assert write_compact(read_study(tmp_path), tmp_path / "docs").stat().st_size < 25_000


@pytest.mark.parametrize(
    "data",
    [b"nonsense", lzma.compress(b"{}\n"), lzma.compress(b'{"isentrope_study": 1}\n'), lzma.compress(b"[1\n"),
     lzma.compress(b'{"isentrope_study": 1, "plan": {"cells": 3}}\n'), lzma.compress(b"\xff\n"), b"",
     lzma.compress(b'{"isentrope_study": 1, "plan": {"name": "a", "split": "b", "threshold": 1.0, "converged": 0.5, '
                   b'"cells": []}}\n{"cell": 1}\n')],
)  # fmt: skip
def test_a_file_that_is_none_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / COMPACT).write_bytes(data)
    with pytest.raises(RunError):
        read_study(tmp_path)


@pytest.mark.parametrize("change", [{"name": "../b"}, {"name": "<b>"}, {"warmup": "../../w"}, {"against": "x|y"}])
def test_a_plan_cannot_lead_elsewhere(tmp_path: Path, change: dict[str, str]) -> None:
    make_study(tmp_path, [cell("a")])
    table = json.loads((tmp_path / "study.json").read_text())
    table["cells"][0] |= change
    (tmp_path / "study.json").write_text(json.dumps(table))
    with pytest.raises(RunError, match="no cell can have"):
        read_study(tmp_path)


def test_a_folder_without_a_study_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no study"):
        read_study(tmp_path)
    (tmp_path / "study.json").write_text('{"name": 3}')
    with pytest.raises(RunError, match="not the plan"):
        read_study(tmp_path)
    assert run_folder(tmp_path, "a", 1) == tmp_path / "a" / "seed-1"


def test_where_the_study_lay_on_the_disk_is_not_told(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("grpo"), cell("cold")])
    for name, model in {"grpo": f"{tmp_path}/warmup/pocket", "cold": "pocket"}.items():
        config = whole_run(tmp_path, name, 0, 0.8) / "config.toml"
        config.write_text(f'{config.read_text()}\n[policy]\nmodel = "{model}"\n')
    data = read_study(tmp_path)
    assert [run.config["policy.model"] for run in data.runs if run.seed == 0] == ["warmup/pocket", "pocket"]
    kept = write_compact(data, tmp_path / "kept")
    assert str(tmp_path) not in lzma.decompress(kept.read_bytes()).decode()
