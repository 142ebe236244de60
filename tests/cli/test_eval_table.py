"""`isentrope table` from the command line; what the figures are is tested in tests/analysis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from tests.analysis.helpers import write
from tests.builders.run_folders import run_folder

ROWS = Path(__file__).parents[2] / "recipes" / "papers" / "rows.toml"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["table", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path / "react.json", {"seen": [1, 0, 0, 0]}, name="ReAct")
    for seed in (0, 1):
        run_folder(tmp_path / f"grpo-{seed}", {0: 0.1, 10: 0.6, 20: 0.5 + seed / 10}, seed=seed, steps=20)
    return tmp_path


def test_rows_side_by_side(results: Path) -> None:
    done = invoke(results / "react.json", "--row", f"GRPO={results}/grpo-*", "--against", "ReAct")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[2].split() == ["row", "seeds", "games", "pick", "heat", "All", "Avg.", "Succ.*", "Succ.", "Difference"]
    grpo, react = (next(line for line in lines if line.startswith(name)) for name in ("GRPO ", "ReAct "))
    assert grpo.split()[:3] == ["GRPO", "2", "100"]
    assert "60.0 ± 0.0" in grpo  # Succ.*: 60 and 60
    assert "55.0 ± 7.1" in grpo  # All and Succ.: 50 and 60
    assert "25.0 [4.6, 69.9]" in react
    assert "GRPO against ReAct: interval over games" in done.stdout


def test_papers_figures_below_ours(results: Path) -> None:
    options = ["--rows", ROWS, "--paper", "aem", "--paper-task", "ALFWorld", "--paper-model", "7B"]
    done = invoke("--row", f"GRPO={results}/grpo-*", *options)
    assert done.exit_code == 0, done.output
    assert "GRPO in aem, Table 1: ALFWorld, Qwen2.5-7B-Instruct" in done.stdout
    assert invoke("--row", f"GRPO={results}/grpo-*", "--paper", "aem").exit_code == 2


@pytest.mark.parametrize("form", ["text", "md", "latex", "csv", "json"])
def test_into_a_file(results: Path, form: str) -> None:
    out = results / "new" / "table"
    done = invoke(results / "react.json", "--format", form, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(out)
    assert out.read_text(encoding="utf-8") == invoke(results / "react.json", "--format", form).stdout


def test_a_name_with_escapes_does_not_reach_the_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", {"seen": [1]}, name="\x1b[2Jevil\x07")
    for form in ("text", "md", "latex", "csv", "json"):
        assert "\x1b" not in invoke(path, "--format", form).stdout
    assert json.loads(invoke(path, "--format", "json").stdout)[0]["rows"][0]["name"] == "\x1b[2Jevil\x07"


@pytest.mark.parametrize(("options", "words"), [
    ([], "nothing to show"),
    (["missing.json"], "nothing is called missing.json"),
    (["--row", "GRPO"], "expected NAME=PATH"),
    (["{}/react.json", "--last", "0"], "above 0 and at most 1"),
    (["{}/react.json", "--last", "1.5"], "above 0 and at most 1"),
    (["{}/react.json", "--last", "nan"], "above 0 and at most 1"),
    (["{}/react.json", "--split", "unseen"], "no row was evaluated"),
    (["{}/react.json", "--against", "x"], "no row is called so"),
    (["{}/react.json", "{}/react.json"], "twice"),
    (["{}"], "not a run folder"),
])  # fmt: skip
def test_what_cannot_be_shown(results: Path, options: list[str], words: str) -> None:
    done = invoke(*(option.format(results) for option in options))
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())
