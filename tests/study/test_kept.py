"""The studies that are kept under docs/runs: what is shown of them is what their compact files give."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from isentrope.charts.text import signed
from isentrope.core.errors import RunError
from isentrope.study.curves import families
from isentrope.study.grid import PICTURE, make_grid
from isentrope.study.plan import read_plan
from isentrope.study.read import read_study, write_compact
from tests.builders.kept_studies import kept_study
from tests.builders.run_folders import cell, make_study, whole_run
from tests.charts.drawn import drawn_of
from tools.study_docs import PAGE, SHOWN, kept_studies, made, page_of, shown, write

REBUILD = "is not what runs.jsonl.xz gives; write it again: python -m tools.study_docs"
STUDIES = Path(__file__).parents[2] / "recipes" / "studies"
EMPTY = "# By hand\n\n<!-- results -->\n<!-- /results -->\n"


@cache
def made_once(folder: Path) -> dict[str, str]:
    """From the compact file, and from nothing else in the folder but the page that is filled in."""
    return made(kept_study(folder.name), folder, page_of(folder))


each_study = pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, id=folder.name, marks=[pytest.mark.slow(10)] if folder.name == "household" else [])
        for folder in kept_studies()
    ],
)


@each_study
def test_tables_and_curves_are_made_from_the_compact_file_alone(folder: Path) -> None:
    files = made_once(folder)
    for name, text in files.items():
        assert (folder / name).is_file(), f"{folder / name} {REBUILD}"
        if not name.endswith(".svg"):
            assert (folder / name).read_bytes() == text.encode(), f"{folder / name} {REBUILD}"
    drawn = {str(path.relative_to(folder)) for path in folder.rglob("*.svg")}
    assert drawn == {name for name in files if name.endswith(".svg")}, f"{folder}: the set of curves {REBUILD}"


@each_study
def test_curves_have_the_lines_and_names_of_their_cells(folder: Path) -> None:
    """Built, not compared: how a picture looks may change, what it shows may not."""
    data, files = kept_study(folder.name), made_once(folder)
    for one in shown(data):
        drawn, series = drawn_of(files[f"curves/{one.name}.svg"]), one.chart.series
        assert drawn.texts[0] == one.chart.named
        assert {line.name for line in series} <= set(drawn.texts)
        assert drawn.lines >= 2 * len(series)  # in the chart and in its legend
        assert drawn.bands == sum(line.low is not None for line in series)
    grid = make_grid(data)
    told = drawn_of(files[f"curves/{PICTURE}"]).texts if grid is not None else []
    for change in grid.changes if grid is not None else ():
        assert all(signed(100 * entry.mean) in told for entry in change.entries.values())


def test_there_are_kept_studies() -> None:
    assert {"household", "quick", "setting"} <= {folder.name for folder in kept_studies()}


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_page_is_to_show_is_in_the_study(name: str) -> None:
    """A baseline that was renamed would be missed by nobody."""
    study = read_plan(STUDIES / f"{name}.toml")
    assert study.name == name
    assert set(SHOWN[name]) <= {family.base for family in families(study.cells)}


def kept(folder: Path, seeds: int) -> Path:
    runs = folder / f"runs-{seeds}"
    make_study(runs, [cell("a", (0, 1, 2)), cell("b", (0, 1, 2), "a"), cell("c", (0,), "a")])
    for seed in range(seeds):
        whole_run(runs, "a", seed, 0.4)
        whole_run(runs, "b", seed, 0.5)
    write_compact(read_study(runs), folder / "kept")
    return folder / "kept"


def test_more_runs_change_what_is_made_and_nothing_by_hand(tmp_path: Path) -> None:
    folder = kept(tmp_path, 1)
    (folder / PAGE).write_text(EMPTY)
    paths = write(folder)
    assert {path.name for path in paths} == {PAGE, "tables.md", "a-success.svg", "a-entropy.svg"}
    before = (folder / PAGE).read_text()
    assert before.startswith("# By hand\n\n<!-- results -->\n2 of 7 runs are done, in 2 of 3 cells; 5 not made yet.")
    assert "by baseline: 1 of a" in before
    assert "![Success on unseen games: a](curves/a-success.svg)" in before
    kept(tmp_path, 3)
    assert made(read_study(folder), folder, before)["tables.md"] != (folder / "tables.md").read_text()
    (folder / "curves" / "old.svg").touch()
    write(folder)
    assert "6 of 7 runs" in (folder / PAGE).read_text()
    assert not (folder / "curves" / "old.svg").exists()
    again = (folder / PAGE).read_text()
    write(folder)
    assert (folder / PAGE).read_text() == again


def test_a_study_that_has_just_come_gets_a_page(tmp_path: Path) -> None:
    folder = kept(tmp_path, 1)
    write(folder)
    assert (folder / PAGE).read_text().startswith("# kept\n\n<!-- results -->\n2 of 7 runs are done")


def test_a_page_without_a_place_for_results_is_refused(tmp_path: Path) -> None:
    folder = kept(tmp_path, 1)
    with pytest.raises(RunError, match="needs one <!-- results -->"):
        made(read_study(folder), folder, "# By hand\n")
