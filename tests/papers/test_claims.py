"""Every claim on studies with known answers."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isentrope.metrics.glossary import GLOSSARY, entry_of
from isentrope.papers.judge import find
from isentrope.papers.record import Claim, Finding, Verdict
from isentrope.papers.registry import CLAIMS, claim_of
from isentrope.papers.select import place
from isentrope.study.plan import read_plan
from isentrope.study.read import DONE, StudyData, StudyRun
from tests.papers.made import SEEDS, SIX, hills, in_setting, made_run, made_study, solving
from tests.papers.scenarios import FAILS, HOLDS, LONG, ONSETS, OPEN, SCENARIOS

IDS = [claim.id for claim in CLAIMS]


def only(claim: Claim | str, *studies: StudyData) -> Finding:
    """The one finding there is, where all runs train one model."""
    (found,) = find(claim_of(claim) if isinstance(claim, str) else claim, place(studies))
    return found


def test_there_is_a_scenario_for_each_claim_and_each_claim_once() -> None:
    assert list(SCENARIOS) == IDS
    wanted = [f"A{n}" for n in range(1, 6)] + [f"E{n}" for n in range(1, 8)]
    assert [*wanted, *(f"S{n}" for n in range(1, 9)), *(f"M{n}" for n in range(1, 5))] == IDS


@pytest.mark.parametrize("kind", [HOLDS, FAILS, OPEN])
@pytest.mark.parametrize("name", IDS)
def test_verdict(name: str, kind: str) -> None:
    claim, wanted = claim_of(name), SIX if name == "S2" else SEEDS
    found = only(name, SCENARIOS[name](kind))
    assert found.verdict == kind, found
    assert found.reason
    assert [part.part for part in found.parts] == [part.name for part in claim.parts]
    assert all(part.value is not None and part.seeds == wanted and part.runs for part in found.parts), found.parts
    assert all(bool(part.controls) == bool(rule.against) for part, rule in zip(found.parts, claim.parts, strict=True))
    assert all(one.met for part in found.parts for one in part.premises)
    assert bool(found.decides) == (kind == OPEN)
    assert found.runs


@pytest.mark.parametrize("name", IDS)
def test_what_an_effect_says_in_words(name: str) -> None:
    """Every part of every claim has words for both signs, or for the only one that its number can have."""
    for kind in (HOLDS, FAILS):
        for found, rule in zip(only(name, SCENARIOS[name](kind)).parts, claim_of(name).parts, strict=True):
            assert found.value is not None
            if found.value == 0:
                assert found.direction == ""
                continue
            assert found.direction == rule.means[0 if found.value > 0 else 1]
            assert found.direction or rule.measure.words.startswith(("share", "whether"))


@pytest.mark.parametrize("name", IDS)
def test_no_runs_no_verdict(name: str) -> None:
    (found,) = find(claim_of(name), [])
    assert (found.verdict, found.reason, found.model) == (Verdict.open, "no runs", "")
    assert "seeds" in found.decides


@pytest.mark.parametrize("name", IDS)
def test_too_few_seeds(name: str) -> None:
    study = SCENARIOS[name](HOLDS)
    few = replace(study, runs=tuple(run for run in study.runs if run.seed < 2))
    found = only(name, few)
    assert found.verdict == Verdict.open
    assert "needed" in found.reason
    assert all(part.interval is None for part in found.parts)


def test_one_arm_with_too_few_seeds_is_enough_to_wait() -> None:
    study = SCENARIOS["E7"](HOLDS)
    for many, few in (("epo", "none"), ("none", "epo")):
        fewer = [run for run in study.runs if run.seed < 2 or run.tags["method"] == many]
        assert {run.tags["method"] for run in fewer if run.seed < 2} == {many, few}
        assert only("E7", made_study(fewer)).parts[0].reason == "2 seeds that tell it, at least 3 are needed"


def test_seeds_are_counted_and_not_runs() -> None:
    """Two seeds of bare GRPO, and two of what equals it by definition: four runs, and still two seeds."""
    study = SCENARIOS["E7"](HOLDS)
    fewer = [run for run in study.runs if run.seed < 2 or run.tags["method"] == "epo"]
    told = {"algorithm": "grpo", "method": "actre", "variant": "no_stage1"}
    same = [replace(run, cell="again", tags=told) for run in fewer if run.tags["method"] == "none"]
    part = only("E7", made_study([*fewer, *same])).parts[0]
    assert len(part.controls) == 4
    assert part.reason == "2 seeds that tell it, at least 3 are needed"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(IDS), st.sampled_from([HOLDS, FAILS, OPEN]), st.randoms(use_true_random=False))
def test_the_order_of_runs_and_studies_does_not_matter(name: str, kind: str, order: random.Random) -> None:
    study = SCENARIOS[name](kind)
    other = made_study([made_run(0, "rloo", success=0.3)], name="another")
    shuffled = list(study.runs)
    order.shuffle(shuffled)
    assert only(name, other, replace(study, runs=tuple(shuffled))) == only(name, study, other)


UNRELATED = st.sampled_from(
    [
        {"algorithm": "rloo"},
        {"algorithm": "grpo", "method": "epo+aem"},
        {"algorithm": "grpo", "method": "seal", "alpha": "3"},
        {"algorithm": "reinforce", "method": "actre", "variant": "full"},
    ]
)


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(IDS), UNRELATED, st.floats(0, 1), st.sampled_from(["steps", "tag", "study"]))
def test_an_unrelated_cell_in_another_setting_changes_nothing(
    name: str, tags: dict[str, str], success: float, where: str
) -> None:
    study = SCENARIOS[name](HOLDS)
    steps = 700 if where == "steps" else study.runs[0].steps
    flat = {"entropy/token": 0.1, "valid_ratio": 0.2, "success/all": success}
    more = [made_run(s, steps=steps, success=shaken_up(success, s), train=flat) for s in SEEDS]
    told = tags | ({"rooms": "many"} if where == "tag" else {})
    more = [replace(run, cell="more", tags=told) for run in more]
    if where == "study":
        assert only(name, study, made_study(more, "another")) == only(name, study)
    else:
        assert only(name, replace(study, runs=(*more, *study.runs))) == only(name, study)


def shaken_up(success: float, seed: int) -> float:
    return min(1.0, success + 0.02 * seed)


def test_a_cell_of_the_same_setting_tells_how_much_runs_differ() -> None:
    """It moves no effect; the interval it may, since spreads are drawn towards each other."""
    study = SCENARIOS["E6"](HOLDS)
    wild = [made_run(s, "rloo", success=0.5 + 0.1 * (-1) ** s) for s in SEEDS]
    calm, loud = (only("E6", one).parts[0] for one in (study, replace(study, runs=(*study.runs, *wild))))
    assert calm.value == loud.value
    assert calm.error != loud.error
    assert calm.freedom != loud.freedom
    assert calm.runs == loud.runs


def test_settings_are_judged_apart_and_may_disagree() -> None:
    here, there = (in_setting(SCENARIOS["E6"](kind), rooms=rooms) for kind, rooms in ((HOLDS, "a"), (FAILS, "b")))
    both = replace(here, runs=here.runs + there.runs)
    found = only("E6", both)
    assert found.verdict == Verdict.open
    assert found.reason == (
        "settings disagree (made, rooms a, 100 steps: holds; made, rooms b, 100 steps: does not hold)"
    )
    assert {part.setting: part.verdict for part in found.parts if part.counts} == {
        "made, rooms a, 100 steps": Verdict.holds,
        "made, rooms b, 100 steps": Verdict.fails,
    }
    unsure = in_setting(SCENARIOS["E6"](OPEN), rooms="c")
    for decided, verdict in ((here, Verdict.holds), (there, Verdict.fails)):
        assert only("E6", replace(here, runs=decided.runs + unsure.runs)).verdict == verdict


def test_a_setting_that_cannot_be_tested_leaves_the_verdict_to_the_others() -> None:
    solved = in_setting(SCENARIOS["E6"](HOLDS), rooms="solved")
    solved = replace(solved, runs=tuple(solving(run, 0.99) for run in solved.runs))
    for kind in (HOLDS, FAILS, OPEN):
        other = in_setting(SCENARIOS["E6"](kind), rooms="other")
        assert only("E6", replace(other, runs=other.runs + solved.runs)).verdict == kind
    found = only("E6", solved)
    assert found.verdict == Verdict.untestable
    assert found.decides == "a harder world"


def test_runs_of_different_settings_are_never_compared() -> None:
    treated = [made_run(s, method="epo", success=0.9, rooms="a") for s in SEEDS]
    bare = [made_run(s, method="ea", success=0.5, rooms="b") for s in SEEDS]
    found = only("E6", made_study([*treated, *bare]))
    assert found.verdict == Verdict.open
    assert found.parts[0].reason == "no runs of GRPO with ea"


def test_runs_of_different_lengths_are_never_compared() -> None:
    treated = [made_run(s, method="epo", success=0.9, steps=200) for s in SEEDS]
    bare = [made_run(s, method="ea", success=0.5, steps=100) for s in SEEDS]
    found = only("E6", made_study([*treated, *bare]))
    assert found.verdict == Verdict.open
    assert found.parts[0].reason == "no runs of GRPO with ea"


def test_runs_that_begin_from_one_start_say_so() -> None:
    study = SCENARIOS["E6"](HOLDS)
    assert any("begin from one start" in note for note in only("E6", study).parts[0].notes)
    several = replace(study, runs=tuple(replace(run, start="ab"[run.seed % 2]) for run in study.runs))
    found = only("E6", several).parts[0]
    assert found.notes == ()
    assert found.how == "paired by seed"


@pytest.mark.parametrize("name", ["S3", "S4"])
def test_runs_without_an_eruption_are_left_out_where_a_quarter_erupt(name: str) -> None:
    loud = SCENARIOS[name](HOLDS)
    calm = [made_run(s, steps=LONG, train={"entropy/token": 0.5, "likelihood/valid": -0.5}) for s in SEEDS]
    mixed = only(name, replace(loud, runs=(*loud.runs[:3], *calm[3:])))
    assert mixed.verdict == Verdict.holds
    assert mixed.parts[0].notes[0] == "2 runs left out: entropy never erupted"
    assert len(mixed.parts[0].runs) == 3
    few = only(name, replace(loud, runs=(*loud.runs[:2], *calm[2:])))
    assert few.verdict == Verdict.open  # two of five are enough to be testable, and too few to decide
    assert few.parts[0].reason.startswith("2 seeds that tell it")
    one = only(name, replace(loud, runs=(*loud.runs[:1], *calm[1:])))
    assert one.verdict == Verdict.untestable


def test_runs_that_come_down_once_do_not_erupt_repeatedly() -> None:
    once = [made_run(s, steps=LONG, train={"entropy/token": hills(LONG, ONSETS[:1], 0.8)}) for s in SIX]
    assert only("S2", made_study(once)).verdict == Verdict.fails


def test_short_runs_are_told_apart() -> None:
    found = only("S2", made_study(made_run(s, train={"entropy/token": 0.5}) for s in SEEDS))
    assert found.reason == "no finished run of at least 300 steps"
    assert found.parts[0].notes == ("5 shorter than 300 steps",)


def test_tags_that_describe_the_method_do_not_set_it_apart() -> None:
    study = SCENARIOS["A5"](HOLDS)
    order = {"no_think": "act", "none": "think_act"}
    runs = [replace(run, tags={**run.tags, "order": order[run.tags["method"]]}) for run in study.runs]
    assert only("A5", replace(study, runs=tuple(runs))).verdict == Verdict.holds


def test_another_alpha_is_another_method() -> None:
    usual, strong = (
        [made_run(s, method="epo", success=level, alpha=alpha, train={"success/all": 0.4}) for s in SEEDS]
        for level, alpha in ((0.5, "0.10"), (0.9, "0.9"))
    )
    against = [made_run(s, method="ea", success=0.5, train={"success/all": 0.4}) for s in SEEDS]
    assert only("E6", made_study([*usual, *strong, *against])).parts[0].value == pytest.approx(0.0)


def test_metrics_that_claims_name_are_logged() -> None:
    known = {entry.key for entries in GLOSSARY.values() for entry in entries}
    measures = [part.measure for claim in CLAIMS for part in claim.parts]
    measures += [one.measure for claim in CLAIMS for part in claim.parts for one in part.premises]
    for key in {key for measure in measures for key in measure.keys}:
        assert key in known or entry_of(key) is not None, key


def test_the_large_study_has_the_cells_that_claims_ask_for() -> None:
    """As if its runs had been made without measuring anything: no claim misses a cell, or asks for longer runs."""
    study = read_plan(Path(__file__).parents[2] / "recipes" / "studies" / "household.toml")
    begun: list[StudyRun] = []
    for cell in study.cells:
        steps = [int(one.removeprefix("run.steps=")) for one in cell.settings if one.startswith("run.steps=")][-1]
        train = tuple({"step": step} for step in range(1, steps + 1))
        begun += [StudyRun(cell.name, cell.tags, s, DONE, config={"run.steps": steps}, train=train) for s in cell.seeds]
    for claim in CLAIMS:
        found = only(claim, StudyData(study, tuple(begun)))
        empty = ("the runs do not tell", "premise (")
        told = [part for part in found.parts if part.counts and part.reason.startswith(empty)]
        assert {part.part for part in told} == {part.name for part in claim.parts if part.counts}, claim.id
