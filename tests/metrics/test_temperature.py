"""The temperature that entropies were measured at, and the marks where runs are set side by side."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.loop.train import train
from isentrope.metrics.episodes import rollout_metrics
from isentrope.metrics.temperature import MARK, entropy_temperature, footnotes, marked, note_for
from isentrope.report.compare import comparison, read_groups
from isentrope.report.overlay import overlays
from isentrope.runs.folder import Run, leaves
from isentrope.study.curves import charts
from isentrope.study.read import read_study
from isentrope.study.results import render
from isentrope.study.tables import notes
from isentrope.watch.answers import Answers
from isentrope.watch.runs import Runs
from tests.builders.episodes import episode
from tests.builders.run_folders import cell, make_run, make_study, whole_run
from tests.builders.toy_runs import make_model, toy_config
from tests.builders.turns import turn


def sampled_at(*temperatures: float) -> Any:
    return turn([1.0] * len(temperatures), temperatures=np.array(temperatures, dtype=np.float32))


def test_metrics_by_hand() -> None:
    found = rollout_metrics([episode(sampled_at(1, 1.5, 0), sampled_at(1)), episode(sampled_at(0.5))])
    assert found["temperature/mean"] == pytest.approx(4 / 5)
    assert found["temperature/not_one"] == pytest.approx(2 / 5)  # a greedy token is measured at 1
    assert not any(key.startswith("temperature/") for key in rollout_metrics([episode()]))


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.25]), min_size=1, max_size=5), min_size=1, max_size=4))
@settings(deadline=None)
def test_metrics_are_plain_means_over_tokens(responses: list[list[float]]) -> None:
    found = rollout_metrics([episode(*(sampled_at(*one) for one in responses))])
    heat = [t for one in responses for t in one]
    assert found["temperature/mean"] == pytest.approx(sum(heat) / len(heat))
    assert found["temperature/not_one"] == pytest.approx(sum(t not in (0, 1) for t in heat) / len(heat))


@pytest.mark.parametrize(("changes", "note"), [
    ({}, None),
    ({"rollout.temperature": 1}, None),
    ({"rollout.temperature": 0.6}, "entropy at T = 0.6"),
    ({"methods": ["higher_temperature"]}, "entropy at T = 1.2"),
    ({"methods": ["higher_temperature"], "method.higher_temperature.temperature": 1.0}, None),
    ({"methods": ["actre"]}, "entropy of branching action tokens at T = 1.2 in stage 1"),
    ({"methods": ["actre"], "method.actre.variant": "no_stage2"},
     "entropy of branching action tokens at T = 1.2 in stage 1"),
    ({"methods": ["actre"], "method.actre.variant": "no_stage1"}, None),
    ({"methods": ["actre"], "method.actre.variant": "no_high_temperature"}, None),
    ({"methods": ["actre"], "method.actre.temperature": 1.0}, None),
    ({"methods": ["actre", "higher_temperature"], "method.actre.temperature": 1.5},
     "entropy at T = 1.2; entropy of branching action tokens at T = 1.5 in stage 1"),
    ({"methods": "<b>", "rollout.temperature": "hot"}, None),
])  # fmt: skip
def test_the_note_from_settings(changes: dict[str, Any], note: str | None) -> None:
    assert entropy_temperature(changes) == note
    assert entropy_temperature(changes, [{"entropy/token": 1.0}]) == note  # a run that did not record it


def row(not_one: float | None, mean: float = 1.0) -> dict[str, Any]:
    return {"entropy/token": 1.0} | (
        {} if not_one is None else {"temperature/not_one": not_one, "temperature/mean": mean}
    )


def test_records_know_better_than_settings() -> None:
    hot = {"rollout.temperature": 1.5}
    assert entropy_temperature(hot, [row(0.0), row(0.0)]) is None
    assert entropy_temperature({}, [row(1.0, 1.2000000477)] * 3) == "entropy at T = 1.2"
    told = "entropy of 25 % of the tokens at another temperature than 1 (mean T = 1.05)"
    assert entropy_temperature({}, [row(0.5, 1.1), row(0.0)]) == told
    assert entropy_temperature(hot, [row(None), row(0.0)]) == "entropy at T = 1.5"  # the first rows do not say
    assert entropy_temperature(hot, [{"success/all": 1.0}, row(0.0)]) is None  # a row without an entropy needs no note


def test_marks() -> None:
    assert (marked("a", None), marked("a", "hot")) == ("a", f"a {MARK}")
    assert note_for("success/all", {"rollout.temperature": 2}) is None
    assert note_for("entropy/token", {"rollout.temperature": 2}) == "entropy at T = 2"
    assert footnotes({"a": "hot", "b": None, "c": "hot", "d": "cold"}) == ["† a, c: hot", "† d: cold"]


@pytest.mark.parametrize("methods", ["[]", "['higher_temperature']"])
def test_records_and_settings_of_a_run_agree(methods: str, tmp_path: Path) -> None:
    config = toy_config(make_model(tmp_path / "model"), f"methods={methods}", "run.steps=2", "run.eval_every=0")
    train(config, tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run")
    rows = run.of_kind("train")
    assert all("temperature/not_one" in one for one in rows)
    from_rows, from_settings = entropy_temperature({}, rows), entropy_temperature(leaves(run.config))
    assert from_rows == from_settings == (None if methods == "[]" else "entropy at T = 1.2")


def heated(run: Path, heat: float = 1.3) -> Path:
    """The same run, with settings that say so."""
    text = (run / "config.toml").read_text()
    table = "[rollout]\n" if "[rollout]\n" in text else ""
    changed = (
        text.replace(table, f"{table}temperature = {heat}\n", 1)
        if table
        else f"{text}\n[rollout]\ntemperature = {heat}\n"
    )
    (run / "config.toml").write_text(changed)
    return run


def test_overlays_of_several_runs(tmp_path: Path) -> None:
    plain, hot = (make_run(tmp_path / name, 8, 0, warmup=False) for name in ("plain", "hot"))
    groups = read_groups([plain, heated(hot)], {})
    found = {one.key: one for drawn in overlays(groups).values() for one in drawn}
    assert [series.name for series in found["entropy/token"].series] == ["plain", "hot †"]
    assert found["entropy/token"].note == "† hot: entropy at T = 1.3"
    assert [series.name for series in found["success/all"].series] == ["plain", "hot"]
    assert MARK not in found["success/all"].note
    assert comparison(groups).count("entropy at T = 1.3") > 1


def test_tables_and_curves_of_a_study(tmp_path: Path) -> None:
    make_study(tmp_path, [cell("grpo", (0, 1, 2)), cell("hot", (0, 1, 2), "grpo"), cell("cold", (0,), "hot")])
    for seed in range(3):
        whole_run(tmp_path, "grpo", seed, 0.5)
        heated(whole_run(tmp_path, "hot", seed, 0.6))
    whole_run(tmp_path, "cold", 0, 0.5)
    data = read_study(tmp_path)
    assert "† hot: entropy at T = 1.3" in notes(data)
    text = render(data, "md").split("**Entropy and eruptions")
    names = [{line.split("|")[1].strip() for line in part.splitlines() if line.startswith("| ")} for part in text]
    assert "hot †" not in names[0]  # success does not depend on it
    assert {"grpo", "hot †", "cold"} <= names[1]
    assert {"hot †", "cold †"} <= names[2]  # a difference to a cell that is marked
    for form in ("text", "latex", "html"):
        assert "hot †" in render(data, form)
    rows = list(csv.DictReader(io.StringIO(render(data, "csv"))))
    noted = {(one["table"], one["cell"]): one["note"] for one in rows if not one["against"]}
    assert noted["entropy", "hot"] == "hot: entropy at T = 1.3"
    assert noted["entropy", "grpo"] == noted["results", "hot"] == ""
    drawn = {one.chart.key: one.chart for one in charts(data)}
    assert "hot † (3 seeds)" in [series.name for series in drawn["entropy/token"].series]
    assert drawn["entropy/token"].note.endswith("† hot: entropy at T = 1.3")
    assert MARK not in str([drawn[key].note for key in drawn if key != "entropy/token"])


def test_the_live_page_is_told(tmp_path: Path) -> None:
    plain, hot = (make_run(tmp_path / name, 4, 0, warmup=False) for name in ("plain", "hot"))
    heated(hot)
    rows = {one["name"]: one["entropy_note"] for one in Answers(Runs([tmp_path])).runs()["runs"]}
    assert rows == {"plain": "", "hot": "entropy at T = 1.3"}
    assert json.loads(json.dumps(rows)) == rows
    assert plain.is_dir()
