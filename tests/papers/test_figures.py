"""The claims' figures show the numbers of the runs: means, intervals and places computed by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from isentrope.study.read import StudyData
from tests.papers.cells import run_of, study_of
from tools.claims_docs import numbers
from tools.claims_figures import SUCCESS, Figure, Part, differences, draw, effects_of, forest, panels_of

T_OF_TWO = 4.302653  # Student's t for 95 % and two degrees of freedom


@pytest.fixture
def study() -> StudyData:
    runs = [run_of("grpo", seed, entropy__token=[1 + seed, 2, 3, 4 - seed]) for seed in range(3)]
    runs += [run_of("hot", seed, entropy__token=[5, 6, 7, 8 + 2 * seed]) for seed in range(2)]
    return study_of(runs, {"grpo": "", "hot": "grpo"})


ENTROPY = Figure("e", "Entropy", "entropy/token", (Part({"grpo": "GRPO", "hot": "hot tokens"}),))


def test_a_line_is_the_mean_over_seeds_with_its_interval(study: StudyData) -> None:
    (panel,) = panels_of(study, ENTROPY)
    bare, hot = panel.series
    assert (bare.name, hot.name) == ("GRPO (3 seeds)", "hot tokens (2 seeds)")
    assert (bare.color, hot.color) == (0, 1)
    assert bare.x == [1, 2, 3, 4]
    assert bare.y == [2, 2, 3, 3]
    assert hot.y == [5, 6, 7, 9]
    half = T_OF_TWO * 1 / 3**0.5  # seeds 1, 2, 3: a deviation of 1
    assert bare.low is not None
    assert bare.high is not None
    assert bare.low == pytest.approx([max(0, 2 - half), 2, 3, 3 - half], abs=1e-3)
    assert bare.high == pytest.approx([2 + half, 2, 3, 3 + half], abs=1e-3)
    assert hot.low is None  # two seeds have no interval


def test_bands_of_those_named_alone(study: StudyData) -> None:
    figure = Figure("e", "Entropy", "entropy/token", ENTROPY.parts, banded=("hot",))
    (panel,) = panels_of(study, figure)
    assert all(line.low is None for line in panel.series)


def test_a_line_for_each_seed_and_a_last_step(study: StudyData) -> None:
    figure = Figure("e", "Entropy", "entropy/token", (Part({"grpo": ""}, "GRPO"),), by_seed=("grpo",), last=2)
    (panel,) = panels_of(study, figure)
    assert [(line.name, line.x, line.y) for line in panel.series] == [
        ("seed 0", [1, 2], [1, 2]),
        ("seed 1", [1, 2], [2, 2]),
        ("seed 2", [1, 2], [3, 2]),
    ]
    assert len({line.color for line in panel.series}) == 3
    assert panel.title == "GRPO, 3 seeds; step"


def test_panels_share_colours_by_name(study: StudyData) -> None:
    parts = (Part({"grpo": "bare"}, "GRPO"), Part({"hot": "bare"}, "Hot"), Part({"nobody": "bare"}, "None"))
    first, second = panels_of(study, Figure("e", "Entropy", "entropy/token", parts))
    assert first.series[0].color == second.series[0].color == 0
    assert second.title == "Hot, 2 seeds; step"


def test_a_panel_may_have_a_metric_of_its_own() -> None:
    runs = [run_of("grpo", 0, steps=3, entropy__token=[1.0, 2.0, 3.0], entropy__think=[4.0, 5.0, 6.0])]
    parts = (Part({"grpo": ""}, "all"), Part({"grpo": ""}, "thoughts", "entropy/think"))
    figure = Figure("e", "Entropy", "entropy/token", parts, by_seed=("grpo",))
    whole, thoughts = panels_of(study_of(runs, {"grpo": ""}), figure)
    assert whole.series[0].y == pytest.approx([1, 2, 3])
    assert thoughts.series[0].y == pytest.approx([4, 5, 6])
    assert whole.series[0].color == thoughts.series[0].color


def test_only_seeds_that_are_drawn_are_counted() -> None:
    runs = [run_of("grpo", seed, steps=3, entropy__token=[1.0, 2.0, 3.0]) for seed in range(2)]
    runs.append(run_of("grpo", 2, steps=3, response__tokens=[4.0, 5.0, 6.0]))  # made before entropy was measured
    runs += [run_of("hot", 0, steps=3, entropy__token=[1.0, 2.0, 3.0]), run_of("none", 0, steps=3)]
    runs.append(run_of("hot", 1, steps=3, entropy__token=[None, None, 3.0]))  # drawn, but for the first two steps
    data = study_of(runs, {"grpo": "", "hot": "", "none": ""})
    part = Part({"grpo": "bare"}, "GRPO")
    several = Part({"grpo": "bare", "hot": "hot", "none": "none"}, "All", "entropy/token")
    figure = Figure("e", "Entropy", "entropy/token", (part, several))
    assert [panel.title for panel in panels_of(data, figure)] == ["GRPO, 2 seeds; step", "All, 2 seeds; step"]
    early = Figure("e", "Entropy", "response/tokens", (several,), last=2)
    assert panels_of(data, early)[0].title == "All, 1 to 2 seeds; step"


def test_shares_stay_between_0_and_1() -> None:
    runs = [run_of("grpo", seed, [0.1 + 0.4 * seed, 0.9]) for seed in range(3)]
    figure = Figure("s", "Success", SUCCESS, (Part({"grpo": "GRPO"}),), shares=True)
    (panel,) = panels_of(study_of(runs, {"grpo": ""}), figure)
    (line,) = panel.series
    assert line.markers
    assert line.y == pytest.approx([0.5, 0.9])
    assert line.low == pytest.approx([0, 0.9])
    assert line.high == pytest.approx([1, 0.9])


def test_smoothing_takes_the_neighbours_that_there_are() -> None:
    values = [float(n % 2) for n in range(40)]  # 0, 1, 0, 1, ...: a twentieth is one neighbour on each side
    data = study_of([run_of("grpo", 0, steps=40, entropy__token=values)], {"grpo": ""})
    figure = Figure("e", "Entropy", "entropy/token", (Part({"grpo": "GRPO"}),), smooth=True)
    (line,) = panels_of(data, figure)[0].series
    assert line.y[:3] == pytest.approx([0.5, 1 / 3, 2 / 3])
    assert line.y[-1] == pytest.approx(0.5)


def test_a_picture_says_what_it_shows_and_is_always_the_same(study: StudyData) -> None:
    text = draw(study, ENTROPY)
    assert text is not None
    assert text == draw(study, ENTROPY)
    ElementTree.fromstring(text)
    for said in ("Entropy (nats)", "GRPO (3 seeds)", "hot tokens (2 seeds)", "95 % interval of the mean over seeds"):
        assert said in text
    assert text.count('class="band c0"') == 1
    assert 'class="band c1"' not in text
    assert draw(study, Figure("n", "Nothing", "no/such", ENTROPY.parts)) is None


def ends(*last: float) -> list[float]:
    """Success at steps 0, 2, 4, 6, 8 and 10; Succ. is the mean of the last two."""
    return [0.1, 0.2, 0.2, 0.2, *last]


def compared(name: str = "household") -> StudyData:
    runs = [run_of("grpo", seed, ends(0.5, 0.7), steps=10) for seed in range(4)]
    runs += [run_of("good", seed, ends(0.6, 0.8 + 0.02 * seed), steps=10) for seed in range(3)]
    runs += [run_of("bad", seed, ends(0.1, 0.1), steps=10) for seed in range(3)]
    runs += [run_of("few", seed, ends(0.9, 0.9), steps=10) for seed in range(2)]
    runs += [run_of("short", seed, ends(0.9, 0.9), steps=9) for seed in range(3)]
    return study_of(runs, {"grpo": "", "good": "grpo", "bad": "grpo", "few": "grpo", "short": "grpo"}, name)


def test_differences_are_paired_by_seed_in_points() -> None:
    data = compared()
    assert differences(data, "good") == pytest.approx({0: 10, 1: 11, 2: 12})
    assert differences(data, "few") == pytest.approx({0: 30, 1: 30})
    assert differences(data, "short") == {}  # other lengths are not compared
    assert differences(data, "grpo") == {}


def test_effects_are_sorted_and_need_three_pairs() -> None:
    good, bad = effects_of([compared()])
    assert (good.cell, bad.cell) == ("good", "bad")
    half = T_OF_TWO / 3**0.5
    assert (good.points.value, good.points.low, good.points.high) == pytest.approx((11, 11 - half, 11 + half), abs=1e-3)
    assert bad.points.value == pytest.approx(-50)


def test_the_forest_puts_effects_where_they_are() -> None:
    text = forest([compared()])
    assert text is not None
    ElementTree.fromstring(text)
    zero = float(re.findall(r'<line class="zero" x1="([\d.]+)"', text)[0])
    ticks = {
        name: float(x)
        for x, name in re.findall(r'class="tick" x="([\d.]+)" y="\d+" text-anchor="middle">([^<]+)<', text)
    }
    (dot,) = re.findall(r'<circle class="apart" cx="([\d.]+)"', text)  # the other one is beyond the edge: an arrow
    assert ticks["0"] == zero
    assert float(dot) == pytest.approx(zero + (ticks["+10"] - zero) * 1.1, abs=0.2)
    assert text.count("arrow") - text.count(".arrow") == 1
    assert "+11.0 [+8.5, +13.5], 3" in text
    assert "−50.0 [−50.0, −50.0], 3" in text
    assert "few" not in text


def ticks_of(text: str) -> list[str]:
    return re.findall(r'class="tick" x="[\d.]+" y="\d+" text-anchor="middle">([^<]+)<', text)


def pair(*ours: float) -> StudyData:
    """A cell that ends with `ours`, by seed, compared with one that ends with 0.5."""
    runs = [run_of("grpo", seed, ends(0.5, 0.5), steps=10) for seed in range(3)]
    runs += [run_of("it", seed, ends(success, success), steps=10) for seed, success in enumerate(ours)]
    return study_of(runs, {"grpo": "", "it": "grpo"})


@pytest.mark.parametrize(
    ("ours", "dots"),
    [((0.501, 0.502, 0.503), 1), ((0.2, 0.9, 0.8), 1), ((0.0, 0.0, 0.0), 0)],
    ids=["small", "an interval far out on both sides", "nothing in reach"],
)
def test_the_forest_has_a_scale_for_whatever_there_is(ours: tuple[float, ...], dots: int) -> None:
    text = forest([pair(*ours)])
    assert text is not None
    ticks = ticks_of(text)
    assert len(set(ticks)) == len(ticks) >= 3
    assert "0" in ticks
    assert text.count("<circle") == dots  # what lies within reach is drawn where it is


def test_the_forest_names_the_other_studies() -> None:
    runs = [run_of(name, seed, ends(0.5, 0.7), steps=10) for name in ("grpo", "epo") for seed in range(3)]
    text = forest([compared(), study_of(runs, {"grpo": "", "epo": "grpo"}, "quick")])
    assert text is not None
    assert ">good − grpo<" in text
    assert ">epo − grpo (quick)<" in text
    assert forest([study_of(runs[:2], {"grpo": ""})]) is None


def test_entropies_at_another_temperature_are_marked() -> None:
    """Beside others they would look higher for that alone."""
    runs = [run_of(cell, seed, entropy__token=[0.5] * 4) for cell in ("grpo", "hot") for seed in range(3)]
    warm = [
        replace(run, config={**run.config, "rollout.temperature": 1.2}) if run.cell == "hot" else run for run in runs
    ]
    figure = Figure("f", "Entropy", "entropy/token", (Part({"grpo": "GRPO", "hot": "hotter"}),))
    data = study_of(warm, {"grpo": "", "hot": "grpo"})
    assert [one.name for one in panels_of(data, figure)[0].series] == ["GRPO (3 seeds)", "hotter † (3 seeds)"]
    drawn = draw(data, figure)
    assert drawn is not None
    assert "† hotter: entropy at T = 1.2" in " ".join(re.sub(r"<[^>]*>", " ", drawn).split())
    plain = draw(study_of(runs, {"grpo": "", "hot": "grpo"}), figure)
    assert plain is not None
    assert "†" not in plain
    rows = [line for line in numbers(data, ["grpo", "hot"]).splitlines() if line.startswith(("| grpo", "| hot"))]
    assert ["†" in row for row in rows] == [False, True]
    assert "† hot: entropy at T = 1.2." in numbers(data, ["grpo", "hot"])
