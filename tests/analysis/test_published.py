from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.analysis.result_table import Cell, ResultTable, TableRow, read_printed, with_papers
from isentrope.core.errors import ConfigError

ROWS = Path(__file__).parents[2] / "recipes" / "papers" / "rows.toml"


def table(split: str, *names: str) -> ResultTable:
    rows = tuple(TableRow(name, 1, 10, {"all": Cell(50.0)}) for name in names)
    return ResultTable(split, ("all",), rows, ())


def test_the_figures_of_aem() -> None:
    printed = read_printed(ROWS, paper="aem", task="alfworld", model="7B")
    made = with_papers(table("seen", "grpo", "Mine"), printed)
    ours, theirs, mine = made.rows
    assert (ours.name, mine.name, theirs.from_paper) == ("grpo", "Mine", True)
    assert theirs.cells["kind/two"].value == next(p for p in printed if p.method == "GRPO").figures["pick2"]
    assert theirs.cells["all"].std is not None
    kinds = tuple(f"kind/{kind}" for kind in ("pick", "look", "clean", "heat", "cool", "two"))
    assert made.columns == (*kinds, "all")


def test_the_figures_of_epo_belong_to_splits() -> None:
    printed = read_printed(ROWS, paper="epo", task="ScienceWorld")
    seen = with_papers(table("seen", "PPO + EPO"), printed).rows[1]
    unseen = with_papers(table("unseen", "PPO + EPO"), printed).rows[1]
    assert (seen.cells["succ_best"].value, seen.cells["succ"].value) == (100.0, 96.8)
    assert (unseen.cells["succ_best"].value, unseen.cells["succ"].value) == (100.0, 96.2)
    assert len(with_papers(table("train", "PPO + EPO"), printed).rows) == 1


def test_score_and_success_of_webshop() -> None:
    printed = read_printed(ROWS, paper="aem", task="WebShop", model="Qwen2.5-7B")
    cells = with_papers(table("test", "DAPO + AEM"), printed).rows[1].cells
    assert (cells["all"], cells["score"]) == (Cell(88.9, 0.9), Cell(94.5, 1.0))


def test_a_name_that_fits_several_rows() -> None:
    with pytest.raises(ConfigError, match="--paper-task"):
        with_papers(table("seen", "GRPO"), read_printed(ROWS))
    with pytest.raises(ConfigError, match="no row with paper 'nature'; it has actre, aem, epo, seal"):
        read_printed(ROWS, paper="nature")


@pytest.mark.parametrize("content", ["", "row = 3", "[[row]]\npublished = {a = 'x'}", "[[row", "row = [1]"])
def test_other_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"rows\.toml"):
        read_printed(path)
    with pytest.raises(ConfigError, match="could not read"):
        read_printed(tmp_path / "missing.toml")


def test_every_printed_figure_is_read() -> None:
    assert len(read_printed(ROWS)) > 100
