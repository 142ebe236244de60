"""The same change on several baselines."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from isentrope.charts.grid import grid_file
from isentrope.core.stats import bootstrap
from isentrope.study.cells import Cell
from isentrope.study.grid import PICTURE, Grid, as_table, make_grid
from isentrope.study.read import StudyData, read_study, write_compact
from isentrope.study.results import render, write_results
from tests.builders.run_folders import cell, make_study, whole_run, write_run
from tools.claims_figures import effects_of
from tools.study_docs import MOST_CELLS, made

ALGORITHMS = ("grpo", "ppo", "dapo")
# Succ. of each seed, less that of the bare algorithm
EPO = {"grpo": (0.1, 0.2, 0.3), "ppo": (-0.1,), "dapo": (0.05, 0.15)}
SEAL = {"grpo": (0.0, 0.0, -0.3), "dapo": (0.2,)}


def bare(name: str) -> Cell:
    return cell(name, (0, 1, 2), algorithm=name, method="none")


def changed(name: str, algorithm: str, **tags: str) -> Cell:
    return cell(name, (0, 1, 2), algorithm, algorithm=algorithm, **tags)


def study(folder: Path, more: Sequence[Cell] = ()) -> StudyData:
    cells = [bare(name) for name in ALGORITHMS]
    cells += [changed(f"{name}-epo", name, method="epo") for name in EPO]
    cells += [changed(f"{name}-seal", name, method="seal", alpha="0.1") for name in SEAL]
    make_study(folder, [*cells, *more])
    for name in ALGORITHMS:
        for seed in range(3):
            whole_run(folder, name, seed, 0.5)
    for method, found in (("epo", EPO), ("seal", SEAL)):
        for name, apart in found.items():
            for seed, points in enumerate(apart):
                whole_run(folder, f"{name}-{method}", seed, 0.5 + points)
    return read_study(folder)


def grid_of(data: StudyData) -> Grid:
    found = make_grid(data)
    assert found is not None
    return found


def means(grid: Grid, change: str) -> dict[str, float]:
    (row,) = [row for row in grid.changes if row.name == change]
    return {name: entry.mean for name, entry in row.entries.items()}


def test_a_grid_by_hand(tmp_path: Path) -> None:
    grid = grid_of(study(tmp_path))
    assert grid.baselines == ALGORITHMS
    assert [change.name for change in grid.changes] == ["epo", "seal, 0.1"]
    assert means(grid, "epo") == pytest.approx({"grpo": 0.2, "ppo": -0.1, "dapo": 0.1})
    assert means(grid, "seal, 0.1") == pytest.approx({"grpo": -0.1, "dapo": 0.2})


def test_over_all_every_baseline_counts_once_whatever_its_seeds(tmp_path: Path) -> None:
    epo, seal = grid_of(study(tmp_path)).changes
    assert epo.overall.value == pytest.approx(0.2 / 3)  # the mean over its six pairs would be 0.7 / 6
    expected = bootstrap([0.2, -0.1, 0.1])
    assert (epo.overall.low, epo.overall.high) == pytest.approx((expected.low, expected.high))
    assert seal.overall.value == pytest.approx(0.05)
    assert (seal.overall.low, seal.overall.high) == (None, None)  # over two baselines


def test_a_baseline_with_less_than_half_of_the_changes_is_left_out(tmp_path: Path) -> None:
    more = [bare("rloo"), changed("rloo-epo", "rloo", method="epo")]
    more += [changed(f"{name}-x{n}", name, method=f"x{n}") for n in range(2) for name in ("grpo", "dapo")]
    folder = tmp_path / "runs"
    study(folder, more)
    for name in ("rloo", "rloo-epo", *(one.name for one in more[2:])):
        whole_run(folder, name, 0, 0.6)
    grid = grid_of(read_study(folder))
    assert grid.baselines == ("grpo", "dapo")  # ppo and rloo have one change of four
    assert "ppo" not in means(grid, "epo")


def test_what_is_left_on_one_baseline_has_no_row(tmp_path: Path) -> None:
    data = study(tmp_path, [changed("grpo-once", "grpo", method="once")])
    whole_run(tmp_path, "grpo-once", 0, 0.9)
    assert [change.name for change in grid_of(read_study(tmp_path)).changes] == ["epo", "seal, 0.1"]
    assert [change.name for change in grid_of(data).changes] == ["epo", "seal, 0.1"]


def test_cells_that_tags_do_not_tell_apart_are_not_mixed(tmp_path: Path) -> None:
    study(tmp_path, [changed("grpo-epo-again", "grpo", method="epo")])
    whole_run(tmp_path, "grpo-epo-again", 0, 0.99)
    grid = grid_of(read_study(tmp_path))
    assert means(grid, "epo")["grpo"] == pytest.approx(0.2)
    assert [change.name for change in grid.changes] == ["epo", "seal, 0.1"]


def test_runs_of_another_length_are_not_compared(tmp_path: Path) -> None:
    more = [changed(f"{name}-long", name, method="long") for name in ("grpo", "ppo")]
    study(tmp_path, more)
    for one in more:
        write_run(tmp_path, one.name, 0, {0: 0.1, 20: 0.9}, steps=20, train=[{"entropy/token": 0.1}] * 20)
    assert [change.name for change in grid_of(read_study(tmp_path)).changes] == ["epo", "seal, 0.1"]


def test_without_a_change_on_two_baselines_there_is_no_grid(tmp_path: Path) -> None:
    make_study(tmp_path, [bare("grpo"), changed("grpo-epo", "grpo", method="epo")])
    whole_run(tmp_path, "grpo", 0, 0.5)
    whole_run(tmp_path, "grpo-epo", 0, 0.5)
    data = read_study(tmp_path)
    assert make_grid(data) is None
    assert PICTURE not in {path.name for path in write_results(data, tmp_path / "out")}
    for form in ("text", "md", "latex", "html", "csv"):
        assert "several baselines" not in render(data, form)


def test_every_form_has_the_grid(tmp_path: Path) -> None:
    data = study(tmp_path)
    text = render(data, "text")
    assert "over all: over baselines" in text
    line = next(line for line in text.splitlines() if line.startswith("seal, 0.1"))
    assert line.split("  ")[0] == "seal, 0.1"
    assert "4 of 6" in line
    assert "+5.0 (-10.0 and +20.0)" in line
    assert "| epo | 6 of 9 | +20.0 [" in render(data, "md")
    assert r"| cell | seeds | Start | Succ.\* | Succ. |" in render(data, "md")
    assert "The same change on several baselines" in render(data, "latex")
    page = render(data, "html")
    assert page.count('class="tick tinted"') == 5  # one for each entry
    rows = [row for row in csv.DictReader(io.StringIO(render(data, "csv"))) if row["table"] == "grid"]
    assert {(row["cell"], row["measure"]): row["value"] for row in rows}["epo", "ppo"] == "-0.1"
    assert {(row["cell"], row["measure"]): row["by_seed"] for row in rows}["epo", "dapo"] == "0=0.05 1=0.15"


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_says_what_the_grid_has(tmp_path: Path) -> None:
    data = study(tmp_path)
    paths = write_results(data, tmp_path / "out")
    svg = next(path for path in paths if path.name == PICTURE).read_text()
    assert svg == grid_file(as_table(grid_of(data)))
    told = texts(svg)
    for said in ("grpo", "ppo", "dapo", "epo", "seal, 0.1", "+20.0", "−10.0", "+5.0"):
        assert said in told
    assert not any("[" in text and text.startswith("+5.0") for text in told)  # over two baselines: no interval
    assert any(text.startswith("+6.7 [") for text in told)


def test_what_raises_success_and_what_lowers_it_have_different_colours(tmp_path: Path) -> None:
    svg = grid_file(as_table(grid_of(study(tmp_path))))
    rects = [one.get("fill") or "" for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect")][1:]
    strong_up, strong_down = rects[0], rects[1]  # epo on grpo: +20, on ppo: −10
    assert int(strong_up[5:], 16) > int(strong_up[1:3], 16)  # more blue than red
    assert int(strong_down[1:3], 16) > int(strong_down[5:], 16)


def test_a_cell_whose_interval_leaves_zero_out_is_framed(tmp_path: Path) -> None:
    """Three pairs that agree; three around zero; two that agree, which are too few for an interval."""
    apart = {"grpo": (0.1, 0.1, 0.1), "ppo": (-0.1, 0.1, 0.0), "dapo": (0.1, 0.1)}
    make_study(tmp_path, [*map(bare, ALGORITHMS), *(changed(f"{name}-x", name, method="x") for name in ALGORITHMS)])
    for name, points in apart.items():
        for seed, more in enumerate(points):
            whole_run(tmp_path, name, seed, 0.5)
            whole_run(tmp_path, f"{name}-x", seed, 0.5 + more)
    svg = ElementTree.fromstring(grid_file(as_table(grid_of(read_study(tmp_path)))))
    rects = list(svg.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    assert [rect.get("stroke") is not None for rect in rects] == [True, False, False]
    width, size = (float(part) for part in (svg.get("viewBox") or "").split()[2:])
    lines = [text for text in svg.iter("{http://www.w3.org/2000/svg}text") if text.get("x") == "14"]
    assert len(lines) > 2  # the title, then the note in lines that are not cut
    assert all(6.4 * len(line.text or "") <= width for line in lines)
    assert all(float(line.get("y") or 0) < size for line in lines)


def test_hostile_tags_stay_text(tmp_path: Path) -> None:
    """Names of cells are checked where a plan is read; tags may be anything."""
    evil = "<script>alert(1)</script>|$"
    cells = [cell(name, (0,), algorithm=name, method="none") for name in ("a", "b")]
    cells += [cell(f"{name}-x", (0,), name, algorithm=name, method=evil) for name in ("a", "b")]
    make_study(tmp_path, cells)
    for n, one in enumerate(cells):
        whole_run(tmp_path, one.name, 0, 0.5 + 0.1 * n)
    data = read_study(tmp_path)
    assert any(text.startswith("<script>") for text in texts(grid_file(as_table(grid_of(data)))))
    assert "<script>alert" not in render(data, "html")
    (row,) = [line for line in render(data, "md").splitlines() if "script" in line]
    assert row.count("|") - row.count(r"\|") == 6  # change, pairs, a, b, over all


def pictures(files: Mapping[str, str]) -> set[str]:
    return {name for name in files if name.endswith(PICTURE)}


def test_a_kept_study_shows_the_grid_and_leaves_long_tables_to_their_own_page(tmp_path: Path) -> None:
    page = "# By hand\n\n<!-- results -->\n<!-- /results -->\n"
    write_compact(study(tmp_path / "runs"), tmp_path / "few")
    files = made(read_study(tmp_path / "few"), tmp_path / "few", page)
    assert pictures(files) == {f"curves/{PICTURE}"}
    assert f"](curves/{PICTURE})" in files["README.md"]
    assert "| grpo-epo |" in files["README.md"]
    many = [changed(f"grpo-m{n}", "grpo", method=f"m{n}") for n in range(MOST_CELLS)]
    write_compact(study(tmp_path / "more", many), tmp_path / "many")
    files = made(read_study(tmp_path / "many"), tmp_path / "many", page)
    assert "| grpo-epo |" not in files["README.md"]
    assert "| grpo-epo |" in files["tables.md"]
    assert "[all tables](tables.md)" in files["README.md"]


def test_the_overview_leaves_cells_of_the_grid_with_few_pairs_to_it(tmp_path: Path) -> None:
    more = [changed("grpo-alone", "grpo", method="alone")]
    study(tmp_path, more)
    for seed in range(3):
        whole_run(tmp_path, "grpo-alone", seed, 0.7)
    assert [one.cell for one in effects_of([read_study(tmp_path)])] == ["grpo-alone"]  # grpo-epo has three pairs too
