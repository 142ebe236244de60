"""The notebook: its cells run in order without Jupyter, what they show can be shown, and no outputs are kept."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
PAGES = sorted(NOTEBOOKS.glob("*.ipynb"))


def cells_of(page: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(page.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def run_cell(source: str, names: dict[str, Any]) -> object:
    """What a notebook would show: the value of the last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


@pytest.mark.slow(6)
def test_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    names: dict[str, Any] = {}
    shown = [run_cell("".join(c["source"]), names) for c in cells_of(NOTEBOOKS / "first-run.ipynb", "code")]
    pictures = [value._repr_svg_() for value in shown if hasattr(value, "_repr_svg_")]  # type: ignore[attr-defined]
    assert len(pictures) == 2
    assert all(picture.startswith("<svg") for picture in pictures)
    assert names["run"]._repr_html_().startswith("<svg")
    printed = capsys.readouterr().out
    assert "3 training steps are too few" in printed
    assert "% [" in printed
    assert "IPython" not in sys.modules


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_outputs_are_stripped_and_links_lead_somewhere(page: Path) -> None:
    for cell in cells_of(page, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    for cell in cells_of(page, "markdown"):
        for link in "".join(cell["source"]).split("](")[1:]:
            assert (page.parent / link.partition(")")[0]).exists(), link
