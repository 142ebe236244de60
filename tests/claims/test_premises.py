"""Each premise of each claim on runs that meet it, on runs that do not, and on runs that do not tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest
from scipy import stats

from isentrope.claims.book import CLAIMS, claim_of
from isentrope.claims.common import CEILING, FLOOR, LEAVES_ROOM, SOLVES_SOME, STOPPED_RISING, erupting
from isentrope.claims.judge import find
from isentrope.claims.measures import first_values, over
from isentrope.claims.premises import check
from isentrope.claims.record import (
    BOTH,
    CONTROL,
    TREATED,
    Claim,
    Finding,
    Measure,
    Part,
    PartFinding,
    Premise,
    PremiseFinding,
    Select,
    Verdict,
)
from isentrope.claims.select import Placed, place
from isentrope.study.read import StudyData, StudyRun
from tests.claims.made import SEEDS, made_run, made_study, shaken, solving, with_train, without
from tests.claims.scenarios import FAILS, HOLDS, ONCE, SCENARIOS

SOLVES, ROOM, FLAT = "the control solves some games", "the control leaves room", "both arms have stopped rising"
LEARNS, CAN_ACT = "stage 1 learns", "the model can act without thoughts"
MOVES, ERUPTS = "the bonus moves entropy measurably", "entropy erupts in the baseline"
SURGE, WORDS = "actions are not valid from the start", "responses are long enough for a sentence to stand twice"
CONVERGED = (SOLVES, ROOM, FLAT)

# what must be so for each part, as the rules say it: a premise that is lost shows here
WANTED: dict[str, dict[str, tuple[str, ...]]] = {
    "A3": dict.fromkeys(("over GRPO", "over higher T", "over EntReg"), (*CONVERGED, LEARNS)),
    "A4": dict.fromkeys(("stage 1", "stage 2", "hot tokens"), (*CONVERGED, LEARNS)),
    "A5": {"no thinking": (*CONVERGED, CAN_ACT)},
    "E1": dict.fromkeys(("on GRPO", "on PPO"), CONVERGED),
    "E3": dict.fromkeys(("on GRPO", "on PPO"), (*CONVERGED, MOVES)),
    "E4": dict.fromkeys(("on GRPO", "on PPO"), (MOVES,)),
    "E5": dict.fromkeys(("on GRPO", "on PPO"), (*CONVERGED, MOVES)),
    "E6": dict.fromkeys(("on GRPO", "on PPO"), CONVERGED),
    "S1": dict.fromkeys(("validity", "entropy"), (SURGE,)),
    "S3": dict.fromkeys(("before", "against afterwards", "before, a token"), (ERUPTS,)),
    "S4": dict.fromkeys(("valid", "solved"), (ERUPTS,)),
    "S5": dict.fromkeys(("rises", "stays"), (ERUPTS, WORDS)),
    "S6": dict.fromkeys(("on GRPO", "on GiGPO"), (ERUPTS,)),
    "S7": dict.fromkeys(("on GRPO", "on GiGPO"), (*CONVERGED, ERUPTS)),
    "S8": dict.fromkeys(("α = 0.03", "α = 0.1", "α = 0.3"), (*CONVERGED, ERUPTS)),
    "M3": dict.fromkeys(("on GRPO", "on GSPO", "on DAPO"), CONVERGED),
}
EVERY = [(claim, part, premise) for claim in CLAIMS for part in claim.parts for premise in part.premises]
NAMES = [f"{claim.id} {part.name}: {premise.name}" for claim, part, premise in EVERY]


def test_every_part_has_the_premises_that_it_should() -> None:
    found = {
        claim.id: {part.name: tuple(one.name for one in part.premises) for part in claim.parts if part.premises}
        for claim in CLAIMS
    }
    assert {name: parts for name, parts in found.items() if parts} == WANTED
    assert all(premise.remedy for _, _, premise in EVERY)


def steep(run: StudyRun) -> list[float]:
    """Success in training that rises by 0.06 in the last fifth."""
    return [0.2 + 0.3 * step / len(run.train) for step in range(1, len(run.train) + 1)]


def at_start(run: StudyRun, success: float) -> StudyRun:
    first, *rest = run.evals
    return replace(run, evals=({**first, "eval/unseen/success": success}, *rest))


def valid(run: StudyRun) -> StudyRun:
    return with_train(
        run, "valid_ratio", [0.95 if step < 3 else row["valid_ratio"] for step, row in enumerate(run.train)]
    )


BREAKS: dict[str, Callable[[StudyRun], StudyRun]] = {
    SOLVES: lambda run: solving(run, 0.04),
    ROOM: lambda run: solving(run, 0.96),
    FLAT: lambda run: with_train(run, "success/all", steep(run)),
    LEARNS: lambda run: with_train(run, "success/all", 0.4),
    CAN_ACT: lambda run: at_start(run, 0.1),
    MOVES: lambda run: with_train(run, "entropy/token", shaken(0.5, 0.01, run.seed)),
    ERUPTS: lambda run: with_train(run, "entropy/token", 0.4),
    SURGE: valid,
    WORDS: lambda run: with_train(run, "response/tokens", 39.0),
}
HIDES: dict[str, Callable[[StudyRun], StudyRun]] = {
    **dict.fromkeys((SOLVES, ROOM), lambda run: replace(run, evals=())),
    **dict.fromkeys((FLAT, LEARNS), lambda run: without(run, "success/all")),
    CAN_ACT: lambda run: replace(run, evals=run.evals[1:]),
    **dict.fromkeys((MOVES, ERUPTS), lambda run: without(run, "entropy/token")),
    SURGE: lambda run: without(run, "valid_ratio"),
    WORDS: lambda run: without(run, "response/tokens"),
}


def picked(select: Select, run: StudyRun) -> bool:
    algorithms = (select.algorithm,) if isinstance(select.algorithm, str) else select.algorithm
    told = {"method": "none", "variant": "full", "alpha": "0.1"} | dict(run.tags)
    same = told["algorithm"] in algorithms and float(told["alpha"]) == float(select.alpha)
    return same and (told["method"], told["variant"]) == (select.method, select.variant)


def concerned(premise: Premise, part: Part, study: StudyData, arm: str = TREATED) -> set[str]:
    """The runs that a premise is about; of `BOTH` those of one arm."""
    if isinstance(premise.runs, Select):
        wanted = (premise.runs,)
    else:
        which = premise.runs if premise.runs != BOTH else arm
        wanted = (part.runs,) if which == TREATED else part.against
    return {run.name for run in study.runs if any(picked(select, run) for select in wanted)}


def altered(study: StudyData, names: set[str], change: Callable[[StudyRun], StudyRun]) -> StudyData:
    assert names
    return replace(study, runs=tuple(change(run) if run.name in names else run for run in study.runs))


def found_of(claim: Claim, study: StudyData, part: Part) -> tuple[Finding, PartFinding]:
    (found,) = find(claim, place([study]))
    (one,) = [one for one in found.parts if one.part == part.name]
    return found, one


def told_of(one: PartFinding, premise: Premise) -> PremiseFinding:
    (told,) = [told for told in one.premises if told.name == premise.name]
    return told


@pytest.mark.parametrize(("claim", "part", "premise"), EVERY, ids=NAMES)
def test_met(claim: Claim, part: Part, premise: Premise) -> None:
    found, one = found_of(claim, SCENARIOS[claim.id](HOLDS), part)
    assert told_of(one, premise).met is True
    assert found.verdict == one.verdict == Verdict.holds


@pytest.mark.parametrize(("claim", "part", "premise"), EVERY, ids=NAMES)
def test_one_that_fails_makes_it_not_testable(claim: Claim, part: Part, premise: Premise) -> None:
    study = SCENARIOS[claim.id](HOLDS)
    for arm in (TREATED, CONTROL) if premise.runs == BOTH else (TREATED,):
        broken = altered(study, concerned(premise, part, study, arm), BREAKS[premise.name])
        found, one = found_of(claim, broken, part)
        told = told_of(one, premise)
        assert told.met is False, told
        assert one.verdict == Verdict.untestable
        assert f"premise fails ({premise.name}): {told.told}" in one.reason
        assert premise.remedy in one.decides
        assert one.value is not None or premise.name == ERUPTS  # shown all the same; of eruptions there are none
        assert one.runs
        assert one.held is None
        assert one.strict is None
        voices = [part.verdict for part in found.parts if part.counts]
        assert Verdict.fails not in voices
        assert found.verdict == (Verdict.untestable if Verdict.untestable in voices else Verdict.holds)
        assert part.counts == (found.verdict == Verdict.untestable) or premise.runs == TREATED
        if part.counts:
            assert premise.name in found.reason
            assert premise.remedy in found.decides


@pytest.mark.parametrize(("claim", "part", "premise"), EVERY, ids=NAMES)
def test_one_that_runs_do_not_tell_leaves_it_undecided(claim: Claim, part: Part, premise: Premise) -> None:
    study = SCENARIOS[claim.id](HOLDS)
    hidden = altered(study, concerned(premise, part, study), HIDES[premise.name])
    found, one = found_of(claim, hidden, part)
    assert told_of(one, premise).met is None
    assert one.verdict == Verdict.open
    first = next(told for told in one.premises if told.met is None)
    assert one.reason == f"premise ({first.name}): {first.told}"
    assert premise.measure.words in told_of(one, premise).told
    assert one.decides == claim.needs
    if part.counts:
        assert found.verdict == Verdict.open
        assert first.told in found.reason


SEVERAL = [(claim, part, premise) for claim, part, premise in EVERY if part.counts and claim.voices > 1]


@pytest.mark.parametrize(
    ("claim", "part", "premise"), SEVERAL, ids=[f"{c.id} {p.name}: {one.name}" for c, p, one in SEVERAL]
)
def test_another_part_that_is_refuted_refutes_all_the_same(claim: Claim, part: Part, premise: Premise) -> None:
    """The control of one part is not that of another where the claim has several: a premise of one fails alone."""
    study = SCENARIOS[claim.id](FAILS)
    broken = altered(study, concerned(premise, part, study), BREAKS[premise.name])
    found, one = found_of(claim, broken, part)
    assert one.verdict == Verdict.untestable
    others = {other.verdict for other in found.parts if other.counts and other.part != part.name}
    apart = claim.id in ("E1", "M3", "S7") or (claim.id in ("A3", "A4") and premise.runs == CONTROL)
    assert (Verdict.fails in others) or not apart
    assert found.verdict == (Verdict.fails if Verdict.fails in others else Verdict.untestable)
    if found.verdict == Verdict.fails:
        assert premise.name not in found.reason
        assert found.decides == ""


def test_an_untestable_part_without_a_voice_says_nothing() -> None:
    claim, study = claim_of("E6"), SCENARIOS["E6"](HOLDS)
    ppo = {run.name for run in study.runs if run.tags["algorithm"] == "ppo"}
    (found,) = find(claim, place([altered(study, ppo, lambda run: solving(run, 0.99))]))
    assert [part.verdict for part in found.parts] == [Verdict.holds, Verdict.untestable]
    assert found.verdict == Verdict.holds


def test_several_premises_that_fail_are_all_told_and_each_remedy_once() -> None:
    claim, study = claim_of("A3"), SCENARIOS["A3"](HOLDS)
    every = {run.name for run in study.runs}
    (found,) = find(
        claim, place([altered(study, every, lambda run: solving(with_train(run, "success/all", 0.3), 0.99))])
    )
    part = found.parts[0]
    assert [one.name for one in part.premises if one.met is False] == [ROOM, LEARNS]
    assert part.decides == f"{LEAVES_ROOM.remedy}; {claim.parts[0].premises[-1].remedy}"
    assert found.verdict == Verdict.untestable


# -- a premise by itself, by hand


def placed(runs: list[StudyRun]) -> list[Placed]:
    return place([made_study(runs)])


def arms(control: list[float], treated: tuple[float, ...] = (0.5,)) -> dict[str, list[Placed]]:
    return {
        CONTROL: placed([made_run(n, success=value) for n, value in enumerate(control)]),
        TREATED: placed([made_run(n, method="epo", success=value) for n, value in enumerate(treated)]),
    }


@pytest.mark.parametrize(
    ("premise", "values", "met"),
    [
        (SOLVES_SOME, [FLOOR], True), (SOLVES_SOME, [0.049], False), (SOLVES_SOME, [0.0, 0.2], True),
        (LEAVES_ROOM, [CEILING], True), (LEAVES_ROOM, [0.951], False), (LEAVES_ROOM, [1.0, 0.8], True),
    ],
)  # fmt: skip
def test_the_mean_over_runs_is_held_against_the_border(premise: Premise, values: list[float], met: bool) -> None:
    found = check(premise, arms(values), [])
    assert found.met is met
    assert found.remedy == premise.remedy
    side = "at least 0.05" if premise.upwards else "at most 0.95"
    assert found.told == f"{premise.measure.words}: {fmean(values):.3g}, {side} is needed"


def test_the_worse_of_both_arms_counts() -> None:
    rows = {arm: placed([made_run(0, train={"x": value})]) for arm, value in ((TREATED, 0.1), (CONTROL, 0.3))}
    measure = Measure(over, "x", (), (("key", "x"),))
    for border, upwards, met in ((0.1, True, True), (0.2, True, False), (0.3, False, True), (0.2, False, False)):
        assert check(Premise("p", BOTH, measure, border, "r", upwards), rows, []).met is met
    lacking = {**rows, CONTROL: placed([made_run(0)])}
    assert check(Premise("p", BOTH, measure, 0.0, "r"), lacking, []).met is None
    assert STOPPED_RISING.runs == BOTH


def test_runs_that_do_not_tell_are_left_out_where_others_do() -> None:
    runs = {TREATED: placed([made_run(0, train={"x": 0.4}), made_run(1)]), CONTROL: []}
    measure = Measure(first_values, "x", (), (("key", "x"), ("count", 3)))
    assert check(Premise("p", TREATED, measure, 0.4, "r"), runs, []).met is True


def test_half_of_the_runs_must_erupt() -> None:
    loud, calm = (
        [made_run(s, train={"entropy/token": one}) for s in (first, first + 1)] for first, one in ((0, ONCE), (2, 0.4))
    )
    premise = erupting(TREATED)
    assert check(premise, {TREATED: placed([*loud, *calm])}, []).met is True
    assert check(premise, {TREATED: placed([loud[0], *calm])}, []).met is False
    assert erupting(Select("grpo")).runs == Select("grpo")


def test_a_ratio_is_of_means_and_of_the_pooled_baseline() -> None:
    """0.2 against a mean of 0.4 over bare runs and those that equal them; 0.21 would be half of the bare ones alone."""
    (premise,) = [one for one in claim_of("A5").parts[0].premises if one.name == CAN_ACT]
    silent = [made_run(s, method="no_think", success=0.2) for s in SEEDS]
    bare = [made_run(s, success=0.3) for s in SEEDS]
    same = [made_run(s, method="actre", variant="no_stage1", success=0.5) for s in SEEDS]
    found = check(premise, {}, placed([*silent, *bare, *same]))
    assert found.met is True
    assert ": 0.5, at least 0.5 is needed" in found.told
    assert check(premise, {}, placed([*[solving(run, 0.19) for run in silent], *bare, *same])).met is False
    assert check(premise, {}, placed([*silent, *[solving(run, 0.0) for run in bare]])).met is None


def test_a_clear_difference_may_lie_on_either_side() -> None:
    """The 95 % interval of Welch, as scipy has it, since two cells tell no common spread."""
    premise = claim_of("E4").parts[0].premises[0]
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
