"""Each premise of each claim on runs that meet it, on runs that do not, and on runs that do not tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from isentrope.papers.common import LEAVES_ROOM
from isentrope.papers.judge import find
from isentrope.papers.record import (
    Arm,
    Claim,
    Finding,
    Part,
    PartFinding,
    Premise,
    PremiseFinding,
    Select,
    Verdict,
)
from isentrope.papers.registry import CLAIMS, claim_of
from isentrope.papers.select import place
from isentrope.study.read import StudyData, StudyRun
from tests.papers.made import in_setting, made_study, shaken, solving, with_train, without
from tests.papers.scenarios import FAILS, HOLDS, SCENARIOS

SOLVES, ROOM, FLAT = "the control solves some games", "the control leaves room", "both arms have stopped rising"
LEARNS, CAN_ACT = "stage 1 learns", "the model can act without thoughts"
MOVES, ERUPTS = "the bonus moves entropy measurably", "entropy erupts"
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
    """Success in training that rises by 0.16 in the last fifth."""
    return [0.1 + 0.8 * step / len(run.train) for step in range(1, len(run.train) + 1)]


def at_start(run: StudyRun, success: float) -> StudyRun:
    first, *rest = run.evals
    return replace(run, evals=({**first, "eval/unseen/success": success}, *rest))


def valid(run: StudyRun) -> StudyRun:
    return with_train(
        run, "valid_ratio", [1.0 if step < 3 else row["valid_ratio"] for step, row in enumerate(run.train)]
    )


BREAKS: dict[str, Callable[[StudyRun], StudyRun]] = {
    SOLVES: lambda run: solving(run, 0.005),
    ROOM: lambda run: solving(run, 0.995),
    FLAT: lambda run: with_train(run, "success/all", steep(run)),
    LEARNS: lambda run: with_train(run, "success/all", 0.4),
    CAN_ACT: lambda run: at_start(run, 0.0),
    MOVES: lambda run: with_train(run, "entropy/token", shaken(0.5, 0.01, run.seed)),
    ERUPTS: lambda run: with_train(run, "entropy/token", 0.4),
    SURGE: valid,
    WORDS: lambda run: with_train(run, "response/tokens", 20.0),
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


def concerned(premise: Premise, part: Part, study: StudyData, arm: Arm = Arm.treated) -> set[str]:
    """The runs that a premise is about; of `Arm.both` those of one arm."""
    if isinstance(premise.runs, Select):
        wanted = (premise.runs,)
    else:
        which = premise.runs if premise.runs != Arm.both else arm
        arms = {Arm.treated: (part.runs,), Arm.control: part.against, Arm.pooled: (part.runs, *part.against)}
        wanted = arms[which]
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
    for arm in (Arm.treated, Arm.control) if premise.runs == Arm.both else (Arm.treated,):
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
        assert part.counts == (found.verdict == Verdict.untestable) or premise.runs == Arm.treated
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
    unknown = [told for told in one.premises if told.met is None]
    assert one.reason == "; ".join(f"premise ({told.name}): {told.told}" for told in unknown)
    assert premise.measure.words in told_of(one, premise).told
    assert one.decides == "; ".join(dict.fromkeys(told.remedy for told in unknown))
    assert premise.remedy in one.decides
    assert (one.held, one.strict) == (None, None)
    if part.counts:
        assert found.verdict == Verdict.open
        assert unknown[0].told in found.reason


def first_of(run: StudyRun) -> float:
    return float(run.evals[0]["eval/unseen/success"])


UNCLEAR: dict[str, Callable[[StudyRun], StudyRun]] = {
    SOLVES: lambda run: solving(run, max(0.0, shaken(0.05, 0.03, run.seed))),
    ROOM: lambda run: at_start(solving(run, min(1.0, shaken(0.95, 0.03, run.seed))), first_of(run)),
    FLAT: lambda run: with_train(run, "success/all", rising_by(shaken(0.02, 0.01, run.seed), run)),
    LEARNS: lambda run: with_train(run, "success/all", rising_by(shaken(0.02, 0.02, run.seed), run)),
    CAN_ACT: lambda run: at_start(run, shaken(0.09, 0.03, run.seed)),
    SURGE: lambda run: with_train(
        run,
        "valid_ratio",
        [shaken(0.9, 0.05, run.seed) if n < 3 else row["valid_ratio"] for n, row in enumerate(run.train)],
    ),
    WORDS: lambda run: with_train(run, "response/tokens", shaken(40.0, 10.0, run.seed)),
}
DOUBTFUL = [one for one in EVERY if one[2].name in UNCLEAR]


def rising_by(much: float, run: StudyRun) -> list[float]:
    """Success in training on a line that rises by this in a fifth of the steps."""
    return [0.3 + 5 * much * step / len(run.train) for step in range(1, len(run.train) + 1)]


@pytest.mark.parametrize(
    ("claim", "part", "premise"), DOUBTFUL, ids=[f"{c.id} {p.name}: {one.name}" for c, p, one in DOUBTFUL]
)
def test_one_that_is_not_clear_leaves_it_undecided(claim: Claim, part: Part, premise: Premise) -> None:
    """Runs whose mean is about at the border: neither met nor failing. The effect is shown, and decides nothing."""
    study = SCENARIOS[claim.id](HOLDS)
    runs = concerned(premise, part, study, Arm.control)
    found, one = found_of(claim, altered(study, runs, UNCLEAR[premise.name]), part)
    told = told_of(one, premise)
    assert told.met is None
    assert told.told.endswith("is needed, which is not clear")
    assert one.verdict == Verdict.open
    assert f"premise ({premise.name}): {told.told}" in one.reason
    assert premise.remedy in one.decides
    assert one.value is not None
    assert one.interval is not None
    assert (one.held, one.strict) == (None, None)
    if part.counts:
        assert found.verdict == Verdict.open


def test_a_setting_whose_premise_is_not_clear_costs_nothing() -> None:
    """K counts settings in which something can be decided."""
    claim, study = claim_of("E6"), SCENARIOS["E6"](HOLDS)
    other = in_setting(study, rooms="doubtful")
    doubtful = [UNCLEAR[SOLVES](run) if run.tags["method"] == "ea" else run for run in other.runs]
    (found,) = find(claim, place([made_study([*study.runs, *doubtful])]))
    assert found.verdict == Verdict.holds
    assert {part.levels for part in found.parts if part.held} == {(0.95, 0.95)}


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
    apart = claim.id in ("E1", "M3", "S7") or (claim.id in ("A3", "A4") and premise.runs == Arm.control)
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
