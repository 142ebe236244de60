"""A premise by itself, by hand: met, failing, and not clear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from isentrope.papers.common import CEILING, ERUPTING, FLOOR, LEAVES_ROOM, SOLVES_SOME, STOPPED_RISING, erupting
from isentrope.papers.judge import LEVEL, check
from isentrope.papers.measures import first_values, over
from isentrope.papers.record import Arm, Measure, Premise
from isentrope.papers.registry import claim_of
from isentrope.papers.select import Placed, place
from isentrope.study.read import StudyRun
from tests.papers.made import SEEDS, made_run, made_study, solving
from tests.papers.scenarios import ONCE
from tests.papers.test_premises import CAN_ACT, ERUPTS, EVERY


def placed(runs: list[StudyRun]) -> list[Placed]:
    return place([made_study(runs)])


def arms(control: list[float], treated: tuple[float, ...] = (0.5,)) -> dict[str, list[Placed]]:
    return {
        Arm.control: placed([made_run(n, success=value) for n, value in enumerate(control)]),
        Arm.treated: placed([made_run(n, method="epo", success=value) for n, value in enumerate(treated)]),
    }


def reach(values: Sequence[float], expected: float) -> float:
    """Half of the 90 % interval, where no other cells tell the spread: what is expected is worth two runs more."""
    own, freedom = float(np.var(values, ddof=1)), len(values) - 1
    drawn = max(own, (2 * expected**2 + freedom * own) / (2 + freedom))
    return float(stats.t.ppf(0.95, 2 + freedom)) * math.sqrt(drawn / len(values))


@pytest.mark.parametrize(
    ("premise", "values", "met"),
    [
        (SOLVES_SOME, [0.2, 0.21, 0.22], True), (SOLVES_SOME, [0.05, 0.05, 0.05], None),
        (SOLVES_SOME, [0.0, 0.2, 0.1], None), (SOLVES_SOME, [0.0, 0.001, 0.0, 0.001], False),
        (LEAVES_ROOM, [0.7, 0.72, 0.75], True), (LEAVES_ROOM, [0.95, 0.95, 0.95], None),
        (LEAVES_ROOM, [1.0, 0.8], None), (LEAVES_ROOM, [0.999, 1.0, 1.0, 1.0], False),
    ],
)  # fmt: skip
def test_the_interval_of_the_mean_is_held_against_the_border(
    premise: Premise, values: list[float], met: bool | None
) -> None:
    """Three states: beyond the border, short of it, and across it."""
    found, half = check(premise, arms(values), []), reach(values, premise.measure.spread)
    beyond = (1 if premise.upwards else -1) * (fmean(values) - premise.border)
    assert (True if beyond >= half else False if beyond < -half else None) is met
    assert found.met is met
    assert found.remedy == premise.remedy
    side = "at least 0.05" if premise.upwards else "at most 0.95"
    state = ", which is not clear" if met is None else ""
    assert found.told == f"{premise.measure.words}: {fmean(values):.3g} ± {half:.2g}, {side} is needed{state}"
    assert (FLOOR, CEILING, LEVEL) == (0.05, 0.95, 0.9)


def test_what_other_cells_of_the_setting_tell_makes_a_premise_clearer() -> None:
    """They lend degrees of freedom, so that the same runs may suffice."""
    control = arms([0.06, 0.07, 0.065])
    assert check(SOLVES_SOME, control, []).met is None
    others = [made_run(s, name, success=0.3 + 0.001 * s) for name in ("a", "b", "c", "d") for s in SEEDS]
    assert check(SOLVES_SOME, control, [*placed(others), *control[Arm.control]]).met is True


def test_one_run_tells_no_spread() -> None:
    found = check(SOLVES_SOME, arms([0.5]), [])
    assert found.met is None
    assert found.told.startswith("one run tells ")


X = Measure(over, "x", (), (("key", "x"),))


def twice(value: float, **tags: str) -> list[Placed]:
    return placed([made_run(s, train={"x": value}, **tags) for s in (0, 1)])


def test_each_of_both_arms_must_meet_it_and_the_worse_counts() -> None:
    """Runs without any spread: the intervals have no width."""
    rows = {Arm.treated: twice(0.1), Arm.control: twice(0.3)}
    for border, upwards, met in ((0.09, True, True), (0.2, True, False), (0.31, False, True), (0.2, False, False)):
        found = check(Premise("p", Arm.both, X, border, "r", upwards), rows, [])
        assert found.met is met
        assert met or f"x: {0.1 if upwards else 0.3:g} " in found.told  # the arm that fails is told
    lacking = {**rows, Arm.control: placed([made_run(0)])}
    assert check(Premise("p", Arm.both, X, 0.0, "r"), lacking, []).met is None
    assert check(Premise("p", Arm.both, X, 0.2, "r"), lacking, []).met is False  # one that fails outweighs one unknown
    assert STOPPED_RISING.runs == Arm.both


def test_both_arms_as_one_group() -> None:
    rows = {
        Arm.treated: placed([made_run(s, train={"x": 0.1}) for s in (0, 1)]),
        Arm.control: placed([made_run(s, method="epo", train={"x": 0.3}) for s in (2, 3)]),
    }
    counted = {runs: check(Premise("p", runs, X, 0.2, "r", counted=True), rows, []) for runs in (Arm.both, Arm.pooled)}
    assert (counted[Arm.both].met, counted[Arm.pooled].met) == (False, True)
    assert counted[Arm.pooled].told == "x: 0.2, at least 0.2 is needed"


def test_runs_that_do_not_tell_are_left_out_where_others_do() -> None:
    runs = {Arm.treated: placed([*(made_run(s, train={"x": 0.4}) for s in (0, 1)), made_run(2)]), Arm.control: []}
    measure = Measure(first_values, "x", (), (("key", "x"), ("count", 3)))
    assert check(Premise("p", Arm.treated, measure, 0.39, "r"), runs, []).met is True


def test_a_quarter_of_the_runs_must_erupt_and_no_interval_is_taken() -> None:
    loud, calm = (
        [made_run(s, train={"entropy/token": one}) for s in range(first, first + 4)]
        for first, one in ((0, ONCE), (4, 0.4))
    )
    premise = erupting(Arm.treated)
    assert check(premise, {Arm.treated: placed([loud[0], *calm[:3]])}, []).met is True  # a quarter, just so
    assert check(premise, {Arm.treated: placed([loud[0], *calm])}, []).met is False
    assert check(premise, {Arm.treated: placed(loud[:1])}, []).met is True
    both = {Arm.treated: placed(calm[:2]), Arm.control: placed(loud[:2])}
    arms = (Arm.treated, Arm.control, Arm.pooled)
    assert [check(erupting(runs), both, []).met for runs in arms] == [False, True, True]
    alone = {Arm.treated: placed(calm), Arm.control: placed(loud[:1])}
    assert check(erupting(Arm.pooled), alone, []).met is False  # every bare run erupts, and only one of five
    assert (ERUPTING, premise.counted, premise.clear) == (0.25, True, False)


def test_whose_eruptions_are_counted() -> None:
    """Where a method is to calm them both arms are counted; else those of the runs themselves."""
    asked = {claim.id: {one.runs for one in part.premises if one.name == ERUPTS} for claim, part, _ in EVERY}
    assert {name: runs for name, runs in asked.items() if runs} == {
        "S3": {Arm.treated}, "S4": {Arm.treated}, "S5": {Arm.treated},
        "S6": {Arm.pooled}, "S7": {Arm.pooled}, "S8": {Arm.pooled},
    }  # fmt: skip


def able() -> Premise:
    (premise,) = [one for one in claim_of("A5").parts[0].premises if one.name == CAN_ACT]
    return premise


def test_a_ratio_is_of_means_and_of_the_pooled_baseline() -> None:
    """0.2 against a mean of 0.4 over bare runs and those that equal them: a share of 0.5, where 0.3 is needed."""
    premise = able()
    silent = [made_run(s, method="no_think", success=0.2) for s in SEEDS]
    bare = [made_run(s, success=0.3) for s in SEEDS]
    same = [made_run(s, method="actre", variant="no_stage1", success=0.5) for s in SEEDS]
    found = check(premise, {}, placed([*silent, *bare, *same]))
    assert premise.border == 0.3
    assert found.met is True
    assert ": 0.5, at least 0.3 is needed" in found.told
    assert check(premise, {}, placed([*[solving(run, 0.01) for run in silent], *bare, *same])).met is False
    assert check(premise, {}, placed([*silent[:1], *bare])).met is None
    assert check(premise, {}, placed(silent)).met is None


@pytest.mark.parametrize("level", [0.02, 0.1, 0.12, 0.14, 0.2])
def test_a_ratio_goes_by_what_is_beyond_the_border_times_the_baseline(level: float) -> None:
    """Welch's 90 % interval of ours less 0.3 of theirs, by scipy; without an expected spread."""
    premise = replace(able(), measure=replace(able().measure, spread=0.0))
    ours, theirs = [level + 0.02 * n for n in (-1, 0, 2, -1, 0)], [0.4 + 0.05 * n for n in (1, -2, 0, 1, 0)]
    runs = [made_run(s, method="no_think", success=value) for s, value in enumerate(ours)]
    runs += [made_run(s, success=value) for s, value in enumerate(theirs)]
    known = stats.ttest_ind(ours, [0.3 * one for one in theirs], equal_var=False).confidence_interval(0.9)
    found = check(premise, {}, placed(runs))
    assert found.met is (True if known.low >= 0 else False if known.high < 0 else None)
    assert f": {fmean(ours) / fmean(theirs):.3g}, at least 0.3 is needed" in found.told


def test_a_ratio_to_nothing_is_not_told() -> None:
    silent, bare = ([made_run(s, method=m, success=0.0) for s in SEEDS] for m in ("no_think", "none"))
    assert check(able(), {}, placed([*silent, *bare])).met is None


def test_a_clear_difference_may_lie_on_either_side() -> None:
    """The 95 % interval of Welch, as scipy has it, since two cells tell no common spread, and none is expected."""
    premise = claim_of("E4").parts[0].premises[0]
    premise = replace(premise, measure=replace(premise.measure, spread=0.0))
    bare = [0.5, 0.52, 0.47]
    for ours in ([0.6, 0.63, 0.59], [0.4, 0.42, 0.39], [0.5, 0.6, 0.42], [0.53, 0.55, 0.52]):
        cells = [("none", 0, bare), ("epo", 10, ours)]
        runs = [
            made_run(first + n, method=m, train={"entropy/token": v})
            for m, first, vs in cells
            for n, v in enumerate(vs)
        ]
        logs = [[math.log(value) for value in values] for values in (ours, bare)]
        known = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
        found = check(premise, {}, placed(runs))
        assert found.met is bool(known.low > 0 or known.high < 0)
        assert f"[{known.low:+.3g}, {known.high:+.3g}], which must leave out 0" in found.told


def test_a_clear_difference_needs_two_runs_of_each() -> None:
    premise = claim_of("E4").parts[0].premises[0]
    runs = [
        made_run(0, train={"entropy/token": 0.5}),
        *(made_run(s, method="epo", train={"entropy/token": 0.9}) for s in SEEDS),
    ]
    found = check(premise, {}, placed(runs))
    assert found.met is None
    assert found.told.startswith("too few runs to compare ")
