"""Which lines share a chart, and what is done about those that would spoil it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.charts.chart import Series
from isentrope.study.cells import Cell
from isentrope.study.curves import FAMILY_LINES, charts, families, moving_means, within_sight
from isentrope.study.plan import read_plan
from isentrope.study.read import read_study
from isentrope.study.results import write_results
from tests.builders.run_folders import cell, make_study, whole_run

HOUSEHOLD = Path(__file__).parents[2] / "recipes" / "studies" / "household.toml"


def of(algorithm: str, method: str = "none", name: str = "", **tags: str) -> Cell:
    against = "" if method == "none" else algorithm
    name = name or (algorithm if method == "none" else f"{algorithm}-{method}")
    return cell(name, against=against, algorithm=algorithm, method=method, **tags)


def named(cells: list[Cell]) -> dict[str, list[str]]:
    return {family.name: [one.name for one in family.cells] for family in families(cells)}


def test_few_cells_share_one_chart_with_their_baseline() -> None:
    cells = [of("grpo"), of("grpo", "epo"), of("grpo", "aem"), of("ppo"), of("ppo", "epo"), cell("z")]
    assert named(cells) == {
        "algorithms": ["grpo", "ppo"],
        "grpo": ["grpo", "grpo-epo", "grpo-aem"],
        "ppo": ["ppo", "ppo-epo"],
        "all": ["z"],
    }


def test_many_cells_are_divided_by_method() -> None:
    variants = [of("a", method, f"a-{method}-{n}", variant=str(n)) for method in ("x", "y") for n in range(3)]
    others = [of("a", name) for name in ("u", "v", "u+v", "u+x")]
    assert named([of("a"), *variants, *others]) == {
        "a: x": ["a", "a-x-0", "a-x-1", "a-x-2"],
        "a: y": ["a", "a-y-0", "a-y-1", "a-y-2"],
        "a: others": ["a", "a-u", "a-v"],
        "a: combined": ["a", "a-u+v", "a-u+x"],
    }


def test_too_many_of_a_kind_are_halved() -> None:
    found = named([of("a"), *(of("a", f"m{n}") for n in range(8))])
    assert found == {
        "a: others (1)": ["a", "a-m0", "a-m1", "a-m2", "a-m3"],
        "a: others (2)": ["a", "a-m4", "a-m5", "a-m6", "a-m7"],
    }


def test_without_a_baseline_cells_go_by_their_first_tags() -> None:
    cells = [cell(f"{rooms}-{rate}", rooms=rooms, rate=str(rate)) for rooms in ("full", "medium") for rate in range(4)]
    assert named(cells) == {
        "full": ["full-0", "full-1", "full-2", "full-3"],
        "medium": ["medium-0", "medium-1", "medium-2", "medium-3"],
    }


def test_a_method_may_be_called_as_a_part_is() -> None:
    variants = [of("a", method, f"a-{method}-{n}") for method in ("others", "combined") for n in range(3)]
    cells = [of("a"), *variants, *(of("a", name) for name in ("u", "v", "u+v", "v+w"))]
    assert {one.name for family in families(cells) for one in family.cells} == {one.name for one in cells}


def test_an_algorithm_with_which_nothing_is_compared_stands_with_the_others(tmp_path: Path) -> None:
    cells = [of("grpo"), of("grpo", "epo"), of("gigpo")]
    assert named(cells) == {"algorithms": ["grpo", "gigpo"], "grpo": ["grpo", "grpo-epo"]}
    make_study(tmp_path, cells)
    whole_run(tmp_path, "gigpo", 0, 0.5)
    assert [drawn.name for drawn in charts(read_study(tmp_path)) if "success" in drawn.name] == ["algorithms-success"]
    without = [of(algorithm, method) for algorithm in ("a", "b") for method in ("none", "x")]
    alone = [cell(one.name, **one.tags) for one in without]  # nothing is compared with anything
    assert named(alone) == {"algorithms": ["a", "b"], "all": ["a-x", "b-x"]}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z", "x+y"])), max_size=40))
def test_every_cell_is_drawn_and_no_chart_is_crowded(picked: list[tuple[str, str]]) -> None:
    cells = [of("a"), of("b"), *(of(a, m, f"{a}-{m}-{n}") for n, (a, m) in enumerate(picked))]
    found = list(families(cells))
    assert {one.name for family in found for one in family.cells} == {one.name for one in cells}
    assert len({family.name for family in found}) == len(found)
    for family in found:
        assert len(family.cells) <= FAMILY_LINES + 1
        assert not family.base or family.cells[0].name == family.base


def test_the_large_study_is_drawn_readably() -> None:
    found = named(list(read_plan(HOUSEHOLD).cells))
    assert found["algorithms"] == ["grpo", "ppo", "gspo", "dapo", "gigpo", "rloo"]
    assert found["grpo: epo"] == ["grpo", "grpo-epo", "grpo-epo-base", "grpo-epo-no-dw", "grpo-epo-decay"]
    assert found["grpo-long"] == ["grpo-long", "grpo-seal-long"]
    assert "grpo: combined" in found


def test_a_chart_keeps_its_name_when_runs_are_added_and_empty_ones_are_not_drawn(tmp_path: Path) -> None:
    variants = [of("a", method, f"a-{method}-{n}") for method in ("x", "y") for n in range(4)]
    make_study(tmp_path, [of("a"), *variants, of("b"), of("b", "x")])
    whole_run(tmp_path, "a", 0, 0.5)
    alone = [drawn.name for drawn in charts(read_study(tmp_path)) if "success" in drawn.name]
    assert alone == ["a-x-success"]  # once, though it is the baseline of two charts
    whole_run(tmp_path, "a-y-0", 0, 0.5)
    with_y = [drawn.name for drawn in charts(read_study(tmp_path)) if "success" in drawn.name]
    assert with_y == ["a-y-success"]
    whole_run(tmp_path, "b", 0, 0.5)
    more = [drawn.name for drawn in charts(read_study(tmp_path)) if "success" in drawn.name]
    assert more == ["algorithms-success", "a-y-success", "b-success"]


def test_no_two_charts_have_the_same_file(tmp_path: Path) -> None:
    """The part x of a, which has two charts, and the baseline a-x are written alike."""
    variants = [of("a", method, f"a{method}{n}") for method in ("x", "y") for n in range(4)]
    make_study(tmp_path, [of("a"), *variants, cell("a-x"), cell("other", against="a-x")])
    for name in ("a", "ax0", "a-x", "other"):
        whole_run(tmp_path, name, 0, 0.5)
    paths = [path for path in write_results(read_study(tmp_path), tmp_path / "results") if path.suffix == ".svg"]
    assert len({path.name for path in paths}) == len(paths) == 6
    assert {"a-x-success.svg", "a-x-success-2.svg"} <= {path.name for path in paths}


def test_a_line_far_beyond_the_others_is_cut_and_says_so() -> None:
    steps = [1.0, 2.0, 3.0]
    calm = [Series(name, steps, [0.1, 0.1, 0.1]) for name in "ab"]
    wild = Series("c", steps, [0.1, 0.2, 3.08], low=[0.0, 0.1, 3.0], high=[0.2, 0.4, 3.1])
    found = within_sight([*calm, wild])
    assert found[:2] == calm
    assert found[2].name == "c, beyond the chart up to 3.08"
    assert found[2].y == [0.1, 0.2, None]
    assert found[2].low == [0.0, 0.1, None]
    assert found[2].high == pytest.approx([0.2, 0.3, 0.3])
    assert within_sight(calm) == calm


def test_lines_are_smoothed_with_their_bands() -> None:
    jagged: list[float | None] = [float(n % 2) for n in range(80)]
    band = Series("a", [float(n) for n in range(80)], jagged, low=jagged, high=jagged)
    found = moving_means([band])[0]
    assert found.y == found.low == found.high
    assert all(value is not None and 0.3 < value < 0.7 for value in found.y[5:-5])
    assert moving_means([Series("a", [1.0], [1.0])])[0].smooth
