from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app


def invoke(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(app, ["metrics", *arguments], env={"COLUMNS": str(columns), "NO_COLOR": "1"})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [json.dumps({"step": step, "kind": "train", "entropy/token": value, "mine/x": 1.0})
             for step, value in ((1, 3.0), (2, None), (3, 1.0), (4, 2.0))]  # fmt: skip
    damaged = ["rubbish", json.dumps({"step": 5, "=cmd()": 7, "\x1b[2Jevil": 1}), '{"step": 6, "entropy/tok']
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, *damaged]))
    (tmp_path / "run.json").write_text(json.dumps({"metrics": {"mine/x": ["apples", "What was counted."]}}))
    return tmp_path


def test_numbers_of_a_run(run: Path) -> None:
    done = invoke(str(run))
    assert done.exit_code == 0, done.output
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert rows["entropy/token"] == ["4", "3", "2", "1", "3"]
    assert "entropy/token: one value not finite" in done.stdout
    assert "\x1b" not in done.stdout
    assert "one damaged line left out" in done.stderr


def test_forms_and_meanings(run: Path) -> None:
    found = {row["metric"]: row for row in json.loads(invoke(str(run), "--json").stdout)}
    assert found["mine/x"]["unit"] == "apples"  # as the run declared it
    assert found["entropy/token"]["lowest"] == 1.0
    assert found["=cmd()"]["meaning"] == ""
    rows = list(csv.DictReader(io.StringIO(invoke(str(run), "--csv", "--find", "counted").stdout)))
    assert [(row["metric"], row["last"]) for row in rows] == [("mine/x", "1.0")]
    assert "'=cmd()" in invoke(str(run), "--csv").stdout  # no formula in a spreadsheet
    assert "What was counted." in invoke(str(run), "--find", "mine").stdout
    assert invoke("--csv", "--json").exit_code == 2


def test_what_is_no_run(tmp_path: Path) -> None:
    assert "is not a run folder" in invoke(str(tmp_path / "nowhere"), columns=300).stderr
    empty = invoke(str(tmp_path), columns=300)
    assert empty.exit_code == 2
    assert "nothing was measured there" in empty.stderr


def test_all_that_is_measured() -> None:
    found = invoke("--find", "beta penalty").stdout
    assert "epo/beta" in found  # a method's own
    assert "entropy/token" not in found
    assert "No metric has 'nonsense'" in invoke("--find", "nonsense").stdout
    names = {row["metric"] for row in json.loads(invoke("--json").stdout)}
    assert {"entropy/token", "success/{kind}", "epo/beta"} <= names
