"""Numbers on the README and beside it: written by commands from kept results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isentrope.bench.floor import Card, Sizes, least_seconds
from isentrope.bench.sampling import SamplingWork
from tests.builders.run_folders import make_run, make_warmup
from tools import demo_docs, speed_docs


def test_tables_and_picture_of_speed_are_those_of_the_results() -> None:
    pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    for path, text in speed_docs.rendered().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


def test_no_engine_is_quicker_than_what_must_be_read_and_multiplied() -> None:
    """By hand: 2 conversations of 3 tokens, which draw 2, read 4 between two turns and draw 2 again."""
    sizes = Sizes(layers=1000, head=100, seen=10, cache=8)
    work = SamplingWork("by hand", conversations=2, turns=2, new=2, read=4, shortest=3, longest=3)
    first = 2 * 1000 * 3 + 2 * 100 + 10 * 6  # operations of a conversation's prompt: tokens see 1, 2, 3
    second = 2 * 1000 * 5 + 2 * 100 + 10 * (5 * 4 + 15)  # 4 tokens are held, then 5 are new, the last drawn among them
    slow_products = Card(bandwidth=1e30, products=1.0)
    steps = [2 * (2 * 1100 + 10 * held) for held in (4, 10)]
    assert least_seconds(sizes, work, slow_products) == pytest.approx(2 * (first + second) + sum(steps))
    slow_memory = Card(bandwidth=1.0, products=1e30)
    steps = [2200 + 2 * held * 8 for held in (4, 10)]
    assert least_seconds(sizes, work, slow_memory) == pytest.approx(2 * 2200 + sum(steps))


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
