"""Numbers on the README and beside it: written by commands from kept results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders.run_folders import make_run, make_warmup
from tools import demo_docs, speed_docs


@pytest.mark.parametrize("page", speed_docs.PAGES, ids=lambda page: page.name)
def test_tables_of_speed_are_those_of_the_results(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == speed_docs.render(page), "run `make docs`"


def test_a_ratio_that_its_two_sides_do_not_have_is_refused(tmp_path: Path) -> None:
    text = speed_docs.SOURCE.read_text(encoding="utf-8")
    (tmp_path / "speed.toml").write_text(text.replace("times = 19.9", "times = 29.9"))
    with pytest.raises(ValueError, match=r"a GRPO step.* is 19\.9 ×, not 29\.9"):
        speed_docs.figures(tmp_path / "speed.toml")


def test_the_demos_table_and_picture_are_those_of_the_kept_runs() -> None:
    kept = json.loads(demo_docs.KEPT.read_text(encoding="utf-8"))
    assert list(kept["seeds"]) == ["0", "1", "2"]
    for path, text in demo_docs.rendered(kept).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `python -m tools.demo_docs`"


def test_runs_are_kept_with_their_warm_up(tmp_path: Path) -> None:
    run = make_run(tmp_path / "demo", steps=20, warmup=False)
    with pytest.raises(SystemExit, match="expected a finished demo with its warm-up"):
        demo_docs.kept_from([run])
    make_warmup(run / "warmup")
    kept = demo_docs.kept_from([run])
    (found,) = kept["seeds"].values()
    assert set(found) == {"warmup", "train"}
    first, last = found["train"][0], found["train"][-1]
    assert (first["step"], last["step"]) == (0, 20)
    cells = demo_docs.table(kept).splitlines()[-1].split(" | ")
    assert cells[2].startswith(f"{100 * first['success']:.1f} % [")
    assert cells[-1].rstrip(" |") == f"{100 * (last['success'] - first['success']):+.1f}"
