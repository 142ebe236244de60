"""Growth: slopes by hand, sizes that are what they say, a picture that can be drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.bench.growth import Point, against_linear, growth_svg, measure_one, rows_of, slope, work_for
from isentrope.bench.work import Spent, Work
from isentrope.models.load import load_policy

BASE = Work("pocket", groups=1, group_size=2, turns=2, response=6, prompt="brief", rooms="small")


def points(*pairs: tuple[int, float]) -> list[Point]:
    return [Point(size, Spent(seconds, 0.0, 1, 1)) for size, seconds in pairs]


@pytest.mark.parametrize(
    ("found", "power", "ratio"),
    [
        (points((1, 2.0), (2, 4.0), (4, 8.0)), 1.0, 1.0),
        (points((1, 1.0), (2, 4.0), (4, 16.0)), 2.0, 0.25),
        (points((10, 3.0), (40, 3.0)), 0.0, 4.0),
    ],
)
def test_slopes_by_hand(found: list[Point], power: float, ratio: float) -> None:
    assert slope(found) == pytest.approx(power)
    assert against_linear(found) == pytest.approx(ratio)
    last = rows_of({"turns": found}, {"turns": 0.5})[-1]
    assert last.ratio == pytest.approx(ratio)
    assert last.met is (ratio >= 0.5)


@pytest.mark.parametrize("size", [512, 1024])
def test_context_is_about_as_long_as_asked_for(size: int) -> None:
    config = BASE.config(["run.threads=1"])
    policy = load_policy(config.policy, config.run)
    work = work_for("context", size, BASE, policy)
    spent = measure_one(work, work.config(["run.threads=1"]), policy, 1)
    assert spent.whole / BASE.episodes == pytest.approx(size, rel=0.25)


def test_other_sizes_change_alone() -> None:
    config = BASE.config()
    policy = load_policy(config.policy, config.run)
    assert work_for("episodes", 8, BASE, policy).episodes == 8
    turns = work_for("turns", 9, BASE, policy)
    assert replace(turns, turns=BASE.turns, context=BASE.context) == BASE
    assert turns.turns == 9


def test_the_picture_is_well_formed(tmp_path: Path) -> None:
    spent = [Point(4, Spent(1.0, 0.5, 1, 1)), Point(8, Spent(2.5, 0.5, 1, 1))]
    svg = growth_svg({"episodes": spent, "turns": spent})
    root = ET.fromstring(svg)
    texts = [node.text for node in root.iter() if node.text]
    assert {"episodes", "turns", "linear", "rollout", "update"} <= set(texts)
