"""Every claim on studies with known answers."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isentrope.claims.book import CLAIMS, claim_of
from isentrope.claims.judge import find
from isentrope.claims.record import Verdict
from isentrope.instruments.glossary import GLOSSARY, entry_of
from isentrope.study.plan import read_plan
from isentrope.study.read import DONE, StudyData, StudyRun
from tests.claims.made import SEEDS, made_run, made_study
from tests.claims.scenarios import FAILS, HOLDS, OPEN, SCENARIOS

IDS = [claim.id for claim in CLAIMS]


def test_there_is_a_scenario_for_each_claim_and_each_claim_once() -> None:
    assert list(SCENARIOS) == IDS
    wanted = [f"A{n}" for n in range(1, 6)] + [f"E{n}" for n in range(1, 8)]
    assert [*wanted, *(f"S{n}" for n in range(1, 9)), *(f"M{n}" for n in range(1, 5))] == IDS


@pytest.mark.parametrize("kind", [HOLDS, FAILS, OPEN])
@pytest.mark.parametrize("name", IDS)
def test_verdict(name: str, kind: str) -> None:
    found = find(claim_of(name), [SCENARIOS[name](kind)])
    assert found.verdict == kind, found
    assert found.reason
    voices = [part for part in found.parts if part.counts]
    assert all(part.value is not None and part.seeds == SEEDS for part in voices), voices
    assert bool(found.decides) == (kind == OPEN)
    assert found.runs


@pytest.mark.parametrize("name", IDS)
def test_no_runs_no_verdict(name: str) -> None:
    found = find(claim_of(name), [])
    assert (found.verdict, found.reason) == (Verdict.open, "no runs")
    assert "seeds" in found.decides


@pytest.mark.parametrize("name", IDS)
def test_too_few_seeds(name: str) -> None:
    study = SCENARIOS[name](HOLDS)
    few = replace(study, runs=tuple(run for run in study.runs if run.seed < 2))
    found = find(claim_of(name), [few])
    assert found.verdict == Verdict.open
    assert "needed" in found.reason


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(IDS), st.sampled_from([HOLDS, FAILS, OPEN]), st.randoms(use_true_random=False))
def test_the_order_of_runs_and_studies_does_not_matter(name: str, kind: str, order: random.Random) -> None:
    study = SCENARIOS[name](kind)
    other = made_study([made_run(0, "rloo", success=0.3)], name="another")
    shuffled = list(study.runs)
    order.shuffle(shuffled)
    assert find(claim_of(name), [other, replace(study, runs=tuple(shuffled))]) == find(claim_of(name), [study, other])


UNRELATED = st.sampled_from(
    [
        {"algorithm": "rloo"},
        {"algorithm": "grpo", "method": "epo+aem"},
        {"algorithm": "grpo", "method": "seal", "alpha": "3"},
        {"algorithm": "reinforce", "method": "actre", "variant": "full"},
    ]
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(IDS), UNRELATED, st.floats(0, 1))
def test_an_unrelated_cell_changes_nothing(name: str, tags: dict[str, str], success: float) -> None:
    study = SCENARIOS[name](HOLDS)
    flat = {"entropy/token": 0.1, "valid_ratio": 0.2}
    more = [replace(made_run(s, steps=400, success=success, train=flat), cell="more", tags=tags) for s in SEEDS]
    assert find(claim_of(name), [replace(study, runs=(*more, *study.runs))]) == find(claim_of(name), [study])


def in_setting(study: StudyData, **tags: str) -> StudyData:
    """The same runs, played elsewhere."""
    name = "-".join(tags.values())
    runs = tuple(replace(run, cell=f"{run.cell}-{name}", tags={**run.tags, **tags}) for run in study.runs)
    return replace(study, runs=runs)


def test_settings_are_judged_apart_and_may_disagree() -> None:
    here, there = (in_setting(SCENARIOS["E6"](kind), model=model) for kind, model in ((HOLDS, "a"), (FAILS, "b")))
    both = replace(here, runs=here.runs + there.runs)
    found = find(claim_of("E6"), [both])
    assert found.verdict == Verdict.open
    assert "disagree" in found.reason
    assert {part.setting: part.verdict for part in found.parts if part.counts} == {
        "made, model a, 100 steps": Verdict.holds,
        "made, model b, 100 steps": Verdict.fails,
    }
    unsure = in_setting(SCENARIOS["E6"](OPEN), model="c")
    assert find(claim_of("E6"), [replace(here, runs=here.runs + unsure.runs)]).verdict == Verdict.holds


def test_runs_of_different_settings_are_never_paired() -> None:
    treated = [made_run(s, method="epo", success=0.9, model="a") for s in SEEDS]
    bare = [made_run(s, method="ea", success=0.5, model="b") for s in SEEDS]
    found = find(claim_of("E6"), [made_study([*treated, *bare])])
    assert found.verdict == Verdict.open
    assert found.parts[0].reason == "no runs of GRPO with ea"


def test_failed_and_unfinished_runs_have_no_voice_and_are_told() -> None:
    study = SCENARIOS["E6"](HOLDS)
    broken = replace(study.runs[0], status="failed", evals=())
    ahead = replace(study.runs[1], status="unfinished", evals=())
    found = find(claim_of("E6"), [replace(study, runs=(broken, ahead, *study.runs[2:]))])
    assert found.verdict == Verdict.holds
    assert found.parts[0].seeds == (2, 3, 4)
    assert found.parts[0].notes == (f"1 failed: made/{broken.name}", "1 not finished")


def test_a_solved_world_decides_nothing() -> None:
    runs = [made_run(s, method=m, success=0.99) for s in SEEDS for m in ("epo", "ea")]
    found = find(claim_of("E6"), [made_study(runs)])
    assert found.verdict == Verdict.open
    assert "no room" in found.reason


def test_a_valid_start_leaves_nothing_to_surge() -> None:
    runs = [made_run(s, train={"valid_ratio": 0.98, "entropy/token": 0.5}) for s in SEEDS]
    found = find(claim_of("S1"), [made_study(runs)])
    assert found.verdict == Verdict.open
    assert "nothing is left to surge" in found.reason


def test_seal_is_not_praised_where_nothing_erupts() -> None:
    runs = [
        made_run(s, method=m, steps=400, train={"entropy/token": 0.5}, alpha="0.1")
        for s in SEEDS
        for m in ("seal", "none")
    ]
    found = find(claim_of("S6"), [made_study(runs)])
    assert found.verdict == Verdict.open
    assert "erupted" in found.reason


@pytest.mark.parametrize("name", ["S3", "S4", "S5"])
def test_without_an_eruption_nothing_is_said_of_one(name: str) -> None:
    calm = [made_run(s, steps=400, train={"entropy/token": 0.5, "likelihood/valid": -0.5}) for s in SEEDS]
    found = find(claim_of(name), [made_study(calm)])
    assert (found.verdict, found.reason) == (Verdict.open, "entropy never erupted")
    loud = SCENARIOS["S4"](HOLDS)
    mixed = find(claim_of("S4"), [replace(loud, runs=(*loud.runs[:3], *calm[3:]))])
    assert mixed.verdict == Verdict.holds
    assert mixed.parts[0].notes == ("2 runs left out: entropy never erupted",)


def test_short_responses_cannot_repeat_sentences() -> None:
    study = SCENARIOS["S5"](HOLDS)
    brief = tuple(replace(run, train=tuple({**row, "response/tokens": 20} for row in run.train)) for run in study.runs)
    found = find(claim_of("S5"), [replace(study, runs=brief)])
    assert found.verdict == Verdict.open
    assert "too short" in found.reason


def test_short_runs_are_told_apart() -> None:
    found = find(claim_of("S2"), [made_study(made_run(s, train={"entropy/token": 0.5}) for s in SEEDS)])
    assert found.reason == "no finished run of at least 300 steps"


def test_bare_runs_stand_in_for_no_stage1_only_where_there_are_none() -> None:
    stage1 = [made_run(s, method="actre", variant="no_stage1", success=0.2) for s in SEEDS]
    bare, full = ([made_run(s, method=m, success=0.5) for s in SEEDS] for m in ("none", "actre"))
    effects = [
        find(claim_of("A4"), [made_study(runs)]).parts[0].value for runs in ([*stage1, *bare, *full], [*bare, *full])
    ]
    assert effects == [pytest.approx(0.3), pytest.approx(0.0)]


def test_metrics_that_claims_name_are_logged() -> None:
    known = {entry.key for entries in GLOSSARY.values() for entry in entries}
    for claim in CLAIMS:
        for part in claim.parts:
            for key in part.measure.keys:
                assert key in known or entry_of(key) is not None, key


def test_runs_of_different_lengths_are_never_paired() -> None:
    treated = [made_run(s, method="epo", success=0.9, steps=200) for s in SEEDS]
    bare = [made_run(s, method="ea", success=0.5, steps=100) for s in SEEDS]
    found = find(claim_of("E6"), [made_study([*treated, *bare])])
    assert found.verdict == Verdict.open
    assert found.parts[0].reason == "no runs of GRPO with ea"


def test_tags_that_describe_the_method_do_not_set_it_apart() -> None:
    treated = [made_run(s, method="no_think", success=0.6, order="act") for s in SEEDS]
    bare = [made_run(s, success=0.5, order="think_act") for s in SEEDS]
    assert find(claim_of("A5"), [made_study([*treated, *bare])]).verdict == Verdict.holds


def test_another_alpha_is_another_method() -> None:
    usual, strong = (
        [made_run(s, method="epo", success=level, alpha=alpha) for s in SEEDS]
        for level, alpha in ((0.5, "0.1"), (0.9, "0.9"))
    )
    against = [made_run(s, method="ea", success=0.5) for s in SEEDS]
    assert find(claim_of("E6"), [made_study([*usual, *strong, *against])]).parts[0].value == pytest.approx(0.0)


def test_runs_that_have_not_begun() -> None:
    waiting = [made_run(s, method=m, steps=0, status="unfinished") for s in SEEDS for m in ("epo", "ea")]
    found = find(claim_of("E6"), [made_study(waiting)])
    assert found.reason == "no finished run of at least 100 steps"
    done = SCENARIOS["E6"](HOLDS)
    assert find(claim_of("E6"), [replace(done, runs=(*done.runs, *waiting))]).verdict == Verdict.holds


def test_the_large_study_has_the_cells_that_claims_ask_for() -> None:
    """As if its runs had been made without measuring anything: no claim misses a cell, or asks for longer runs."""
    study = read_plan(Path(__file__).parents[2] / "recipes" / "studies" / "household.toml")
    begun: list[StudyRun] = []
    for cell in study.cells:
        steps = [int(one.removeprefix("run.steps=")) for one in cell.settings if one.startswith("run.steps=")][-1]
        train = tuple({"step": step} for step in range(1, steps + 1))
        begun += [StudyRun(cell.name, cell.tags, s, DONE, config={"run.steps": steps}, train=train) for s in cell.seeds]
    for claim in CLAIMS:
        found = find(claim, [StudyData(study, tuple(begun))])
        empty = ("the runs do not tell", "entropy never erupted")
        told = [part for part in found.parts if part.counts and part.reason.startswith(empty)]
        assert {part.part for part in told} == {part.name for part in claim.parts if part.counts}, claim.id
