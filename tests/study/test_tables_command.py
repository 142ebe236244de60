"""`isentrope study` on a study that was run: where its results go, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.study.plan import Plan
from isentrope.study.read import read_study, write_compact
from tests.builders.run_folders import cell, make_study, whole_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """runs/made is a study's folder, docs/made its compact form, whose name would lead out of the place."""
    make_study(tmp_path / "runs" / "made", [cell("a", (0,))], Plan(name="../made"))
    whole_run(tmp_path / "runs" / "made", "a", 0, 0.5)
    write_compact(read_study(tmp_path / "runs" / "made"), tmp_path / "docs" / "made")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["study", *words], env={"COLUMNS": "200"})
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_results_of_a_folder_go_into_it(here: Path) -> None:
    code, told = study("runs/made", "--tables")
    assert code == 0, told
    assert "cell seeds Start Succ.* Succ." in told
    assert {"tables.md", "tables.tex", "tables.csv", "index.html"} <= files(here / "runs/made/results")


def test_a_hundred_curves_are_not_named_one_by_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.cli.study._NAMED_FILES", 4)
    code, told = study("runs/made", "--tables")
    curves = [name for name in files(here / "runs/made/results") if name.endswith(".svg")]
    assert code == 0
    assert not any(name in told for name in curves)
    assert f"and {len(curves)} curves in runs/made/results" in told


@pytest.mark.parametrize("given", ["docs/made", "docs/made/runs.jsonl.xz"])
def test_results_of_a_compact_form_do_not_go_among_the_documents(here: Path, given: str) -> None:
    before = files(here / "docs")
    code, told = study(given, "--tables")
    assert code == 0, told
    assert files(here / "docs") == before
    assert "tables.md" in files(here / "results" / "made")


@pytest.mark.parametrize("given", ["docs/made", "runs/made"])
def test_out_says_where_results_go(here: Path, given: str) -> None:
    code, told = study(given, "--tables", "--out", "elsewhere")
    assert code == 0, told
    assert "tables.md" in files(here / "elsewhere")
    assert not (here / "results").exists()
    assert not (here / "runs/made/results").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--tables", "-f", "md", "--out", "x"), "--format prints and writes no files"),
        (("--compact", "y", "--out", "x"), "--compact names the folder that it writes to"),
        (("--tables", "--only", "a"), "tables and the compact form have all cells"),
        ((), "docs/made is not a .toml file"),
    ],
)
def test_what_makes_no_sense_is_refused_clearly(here: Path, words: tuple[str, ...], reason: str) -> None:
    code, told = study("docs/made", *words)
    assert code == 2
    assert reason in told
    assert not (here / "x").exists()
    assert not (here / "y").exists()


@pytest.mark.parametrize("form", ["text", "md", "latex", "html", "csv"])
def test_a_form_is_printed(here: Path, form: str) -> None:
    code, told = study("docs/made", "--tables", "--format", form)
    assert code == 0, told
    assert "50.0" in told or "0.5" in told
    assert not (here / "results").exists()


def test_a_dry_run_knows_what_was_done_earlier_and_what_is_set_for_all(here: Path) -> None:
    root = Path(__file__).parents[2]
    quick = str(root / "recipes" / "studies" / "quick.toml")
    code, told = study(quick, "--dry-run", "--earlier", str(root / "docs" / "runs" / "quick"))
    assert code == 0, told
    assert "15 runs, 15 of them done; 0 steps left" in told
    code, told = study(quick, "--dry-run", "--earlier", "nowhere", "--set", "run.steps=60")
    assert code == 0, told
    assert "--earlier nowhere: nothing there" in told
    assert "15 runs, 0 of them done; 900 steps left" in told
    assert told.count("run.steps=60") == 1
    assert "run.steps=50" not in told
    assert not (here / "runs" / "quick").exists()
