"""Corrections over settings and parts, models apart, arms that equal each other: worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from isentrope.core.stats import Interval
from isentrope.papers.judge import find, of_setting
from isentrope.papers.record import Finding, Measure, PartFinding, Select, Verdict
from isentrope.papers.registry import CLAIMS, claim_of
from isentrope.papers.select import SIZES, cells_with, model_of, place, pooled, same_by_definition, samples
from isentrope.papers.words import runs_of
from isentrope.study.read import StudyData, StudyRun
from tests.papers.made import POCKET, SEEDS, in_setting, made_run, made_study, of_model, probed, solving, with_train
from tests.papers.scenarios import FAILS, HOLDS, OPEN, SCENARIOS, shaped
from tests.papers.test_claims import only

PATTERN = (-1.0, 0.5, 1.5, -1.0, 0.0)  # mean 0, variance 1.125


def around(mean: float, spread: float) -> list[float]:
    return [mean + spread * one for one in PATTERN]


def half_at(level: float, spread: float, expected: float) -> float:
    """Of five seeds, by scipy. No other cell tells how they vary, so what is expected is worth two seeds more."""
    own = 1.125 * spread**2
    drawn = max(own, (2 * expected**2 + 4 * own) / 6)
    return float(stats.t.ppf((1 + level) / 2, 6)) * math.sqrt(drawn / 5)


def rooms(values: Sequence[Sequence[float]]) -> StudyData:
    """AEM's share of the time, by setting and seed. One cell each: no common spread but the expected one."""
    runs: list[StudyRun] = []
    for n, shares in enumerate(values):
        runs += in_setting(made_study(shaped(s, one) for s, one in enumerate(shares)), rooms=str(n)).runs
    return made_study(runs)


def by_setting(found: Finding) -> list[PartFinding]:
    return [part for part in found.parts if part.counts]


# -- the more settings and parts, the wider


SHARE_OF_TIME, DELTA = claim_of("M4").parts[0].measure.spread, claim_of("A1").parts[0].measure.spread


def test_what_holds_alone_no_longer_holds_among_ten_settings() -> None:
    """M4: AEM takes at most 2 % of a step. 1 % ± 0.7 %: the 95 % interval ends below 2 %, that of 99.5 % above."""
    clear, unclear = around(0.01, 0.007), around(0.02, 0.02)
    ends = [0.01 + half_at(level, 0.007, SHARE_OF_TIME) for level in (0.95, 0.995)]
    assert ends[0] < 0.02 < ends[1]
    alone = only("M4", rooms([clear]))
    assert alone.verdict == Verdict.holds
    assert alone.parts[0].levels == pytest.approx((0.95, 0.95))
    among = only("M4", rooms([clear, *[unclear] * 9]))
    assert among.verdict == Verdict.open
    first = by_setting(among)[0]
    assert first.levels == pytest.approx((0.995, 0.995))
    assert first.held is not None
    assert first.interval is not None
    assert first.held.high == pytest.approx(ends[1], abs=1e-6)
    assert first.interval.high == pytest.approx(ends[0], abs=1e-6)  # shown is that of 95 %
    assert first.reason == "the 99.50 % interval includes 0.02"


@pytest.mark.parametrize("settings", [1, 2, 5, 10])
def test_levels_are_shared_out_over_settings(settings: int) -> None:
    found = only("M4", rooms([around(0.01, 0.001)] * settings))
    assert found.verdict == Verdict.holds
    assert all(part.levels == pytest.approx((1 - 0.05 / settings,) * 2) for part in found.parts)


def deltas(values: Sequence[Sequence[float]]) -> StudyData:
    """ΔH by setting and seed; its sign is that of all probes of a run."""
    runs: list[StudyRun] = []
    for n, one in enumerate(values):
        made = [made_run(s, train={"probe/delta_h": probed(value, 100)}) for s, value in enumerate(one)]
        runs += in_setting(made_study(made), rooms=str(n)).runs
    return made_study(runs)


def test_a_part_refutes_by_settings_times_parts() -> None:
    """A1 has two parts: a low ΔH is refuted at 97.5 % in one setting, and not at 99.5 % among five."""
    mean = 0.01 - half_at(0.985, 0.016, DELTA)
    low = around(mean, 0.016)
    ends = [mean + half_at(level, 0.016, DELTA) for level in (0.975, 0.995)]
    assert ends[0] < 0.01 < ends[1]
    alone = only("A1", deltas([low]))
    assert alone.parts[0].levels == pytest.approx((0.95, 0.975))
    assert alone.parts[0].verdict == Verdict.fails
    assert alone.parts[0].strict is not None
    assert alone.parts[0].strict.high == pytest.approx(ends[0], abs=1e-6)
    among = only("A1", deltas([low, *[around(0.01, 0.1)] * 4]))
    first = by_setting(among)[0]
    assert first.levels == pytest.approx((0.99, 0.995))
    assert first.verdict == Verdict.open
    assert first.strict is not None
    assert first.strict.high == pytest.approx(ends[1], abs=1e-6)


def test_settings_that_cannot_be_tested_cost_nothing() -> None:
    """K counts settings in which something can be decided: not those with too few runs, or a premise that fails."""
    study = SCENARIOS["E6"](HOLDS)
    solved, few = in_setting(study, rooms="solved"), in_setting(study, rooms="few")
    runs = [*study.runs, *(solving(run, 0.99) for run in solved.runs), *(run for run in few.runs if run.seed < 2)]
    assert only("E6", made_study(runs)).parts[0].levels == only("E6", study).parts[0].levels == (0.95, 0.95)
    more = in_setting(study, rooms="more")
    assert only("E6", made_study([*runs, *more.runs])).parts[0].levels == pytest.approx((0.975, 0.975))


def test_parts_without_a_voice_cost_nothing() -> None:
    found = only("S4", SCENARIOS["S4"](HOLDS))
    assert [part.counts for part in found.parts] == [True, False]
    assert found.parts[0].levels == pytest.approx((0.95, 0.95))
    for claim in CLAIMS:
        assert claim.voices == sum(part.counts for part in claim.parts) >= 1


def given_number(run: StudyRun) -> float:
    return float(run.config["number"])


def test_chance_alone_seldom_lets_a_claim_hold_over_many_settings() -> None:
    """120 studies of 8 settings whose truth is the border itself: each setting would hold in 2.5 %, at 95 % of its own
    one of them in 18 % of the studies. Shared out, a study holds in 2.5 %."""
    part = replace(claim_of("M4").parts[0], measure=Measure(given_number, "a number", ()), border=0.0, least=0.0)
    claim = replace(claim_of("M4"), parts=(part,))
    empty = [in_setting(made_study(made_run(s, method="aem", steps=30) for s in SEEDS), rooms=str(n)) for n in range(8)]
    runs = [run for study in empty for run in study.runs]
    chance, held = np.random.default_rng(2), 0
    for _ in range(120):
        told = [replace(run, config={**run.config, "number": float(chance.normal())}) for run in runs]
        held += only(claim, made_study(told)).verdict == Verdict.holds
    assert held / 120 < 0.025 + 3 * math.sqrt(0.025 * 0.975 / 120)


# -- parts and settings put together


def part_with(verdict: Verdict, counts: bool = True) -> PartFinding:
    return PartFinding("p", "s", verdict, "", counts)


@pytest.mark.parametrize(
    ("voices", "verdict"),
    [
        ([Verdict.holds, Verdict.holds], Verdict.holds),
        ([Verdict.holds, Verdict.open], Verdict.open),
        ([Verdict.holds, Verdict.fails], Verdict.fails),
        ([Verdict.untestable, Verdict.holds], Verdict.untestable),
        ([Verdict.untestable, Verdict.open], Verdict.untestable),
        ([Verdict.untestable, Verdict.fails], Verdict.fails),
        ([Verdict.open, Verdict.open], Verdict.open),
    ],
)
def test_of_a_setting(voices: list[Verdict], verdict: Verdict) -> None:
    silent = [part_with(one, False) for one in Verdict]
    for order in (voices, voices[::-1]):
        assert of_setting([part_with(one) for one in order]) == verdict
        assert of_setting([*silent, *(part_with(one) for one in order)]) == verdict


def test_settings_without_a_run_of_any_voice_say_nothing() -> None:
    """A setting that has controls and a part without a voice alone does not make an untestable claim undecided."""
    study = SCENARIOS["A2"](HOLDS)
    hot = in_setting(study, rooms="hot")
    hot_runs = [run for run in hot.runs if run.tags.get("variant") != "no_high_temperature"]
    assert only("A2", made_study([*study.runs, *hot_runs])).verdict == Verdict.holds


# -- models


def test_models_are_judged_apart_and_may_come_to_opposite_verdicts() -> None:
    large = of_model(SCENARIOS["M4"](HOLDS).runs, "some/Qwen-0.6B", 600_000_000)
    small = of_model(in_setting(SCENARIOS["M4"](FAILS), rooms="x").runs, "pocket")
    first, second = find(claim_of("M4"), place([made_study([*large, *small])]))
    assert (first.model, first.verdict) == ("Qwen-0.6B, 600 M", Verdict.holds)
    assert (second.model, second.verdict) == (POCKET, Verdict.fails)
    assert len(first.runs) == len(second.runs) == 5
    assert not set(first.runs) & set(second.runs)
    # each has one setting: no correction for the other
    assert first.parts[0].levels == second.parts[0].levels == pytest.approx((0.95, 0.95))


def test_sizes_of_one_model_and_models_within_one_setting_are_told_apart() -> None:
    study = SCENARIOS["M4"](HOLDS)
    sizes = [*of_model(study.runs, "x", 1_700_000_000), *of_model(SCENARIOS["M4"](FAILS).runs, "x", 135_000_000)]
    sizes[5:] = [replace(run, cell="again") for run in sizes[5:]]
    found = find(claim_of("M4"), place([made_study(sizes)]))
    assert [(one.model, one.verdict) for one in found] == [("x, 1.7 B", Verdict.holds), ("x, 135 M", Verdict.fails)]
    assert {part.setting for one in found for part in one.parts} == {"made, 100 steps"}


def test_the_model_is_that_of_the_warm_up() -> None:
    run = of_model([made_run(0)], "warmup/both")[0]
    warm = replace(made_run(0), config={"policy.model": "HuggingFaceTB/SmolLM2-135M"})
    study = replace(made_study([run]), warmups={"both": warm})
    assert model_of(study, run) == "SmolLM2-135M"
    assert model_of(study, replace(run, parameters=134_515_008)) == "SmolLM2-135M, 135 M"
    assert model_of(made_study([run]), run) == "both"
    assert model_of(study, replace(run, tags={"model": "tiny"})) == "tiny"


@pytest.mark.parametrize(("name", "counted"), [("smollm2", 134_515_008), ("pocket", 858_624)])
def test_a_model_that_recorded_its_size_is_the_one_that_did_not(name: str, counted: int) -> None:
    """Else new runs of a model would be judged apart from its old ones."""
    old, new = of_model([made_run(0)], name)[0], of_model([made_run(0)], name, counted)[0]
    assert SIZES[name] == pytest.approx(counted, rel=0.01)
    assert model_of(made_study([old]), old) == model_of(made_study([new]), new)


# -- arms


def paced(seed: int, seconds: float, method: str = "none", variant: str = "full") -> StudyRun:
    return made_run(seed, "grpo", method, variant, timings={"tokens_per_second/update": 1 / seconds})


def test_runs_that_equal_the_baseline_by_definition_join_it() -> None:
    """E7: EPO against bare GRPO. ActRe without its first stage is bare GRPO, so its runs count among the controls."""
    ours, bare, same = around(0.0, 0.01), around(0.1, 0.01), around(-0.06, 0.01)
    runs = [paced(s, math.exp(one), "epo") for s, one in enumerate(ours)]
    runs += [paced(s, math.exp(one)) for s, one in enumerate(bare)]
    alone = only("E7", made_study(runs)).parts[0]
    assert alone.value == pytest.approx(-0.1)
    joined = only(
        "E7", made_study([*runs, *(paced(s, math.exp(one), "actre", "no_stage1") for s, one in enumerate(same))])
    )
    part = joined.parts[0]
    assert part.value == pytest.approx(-fmean([*bare, *same]))
    assert (len(part.runs), part.seeds, len(part.controls)) == (5, SEEDS, 10)
    assert runs_of(part) == "5 runs of 5 seeds against 10"


def test_the_same_for_a_variant_that_is_bare() -> None:
    """A4's stage 1: against no_stage1, or bare GRPO, or both together where there are both."""

    def runs(method: str, variant: str, success: float) -> list[StudyRun]:
        return [with_train(made_run(s, "grpo", method, variant, success=success), "success/all", 0.4) for s in SEEDS]

    full, bare, staged = runs("actre", "full", 0.5), runs("none", "full", 0.3), runs("actre", "no_stage1", 0.4)
    effects = {name: only("A4", made_study([*full, *more])).parts[0].value for name, more in
               {"bare": bare, "staged": staged, "both": [*bare, *staged]}.items()}  # fmt: skip
    assert effects == pytest.approx({"bare": 0.2, "staged": 0.1, "both": 0.15})


def test_what_equals_what() -> None:
    bare, staged = Select("grpo"), Select("grpo", "actre", "no_stage1")
    assert same_by_definition(bare) == (bare, staged)
    assert same_by_definition(staged) == (staged, bare)
    assert same_by_definition(Select("grpo", "epo")) == (Select("grpo", "epo"),)
    runs = [
        made_run(0),
        made_run(0, method="actre", variant="no_stage1"),
        made_run(0, "gspo"),
        made_run(0, method="epo"),
    ]
    found = pooled(bare, place([made_study(runs)]))
    assert [one.name for one in found] == ["made/grpo-actre-no_stage1/seed-0", "made/grpo-none/seed-0"]


def test_two_algorithms_of_one_seed_are_two_runs_and_one_seed() -> None:
    study = SCENARIOS["S1"](HOLDS)
    other = [replace(run, cell="gigpo", tags={**run.tags, "algorithm": "gigpo"}) for run in study.runs]
    part = only("S1", made_study([*study.runs, *other])).parts[0]
    assert (len(part.runs), part.seeds) == (10, SEEDS)
    assert runs_of(part) == "10 runs of 5 seeds"
    alone = only("S1", study).parts[0]
    assert part.freedom == alone.freedom == pytest.approx(4 + 2)  # of five seeds, and what the expected spread is worth
    assert part.error == pytest.approx(alone.error)


def test_a_run_is_in_one_arm_only() -> None:
    every = (Select("grpo"), Select("grpo", "actre", "no_stage1"))
    claim = replace(claim_of("E7"), parts=(replace(claim_of("E7").parts[0], runs=every[1], against=(every[0],)),))
    runs = [paced(s, 1.0 + 0.01 * s) for s in SEEDS] + [paced(s, 1.2 + 0.01 * s, "actre", "no_stage1") for s in SEEDS]
    part = only(claim, made_study(runs)).parts[0]
    assert len(part.runs) == len(part.controls) == 5
    assert not set(part.runs) & set(part.controls)


def test_controls_may_be_measured_otherwise() -> None:
    """A3, beside: ActRe at its end against GRPO after as many think-first steps, the evaluations of 30 to 50 %."""
    study = SCENARIOS["A3"](HOLDS)

    def early(run: StudyRun) -> StudyRun:
        rows = [{**row, "eval/unseen/success": 0.25 if 30 <= row["step"] <= 50 else 0.4} for row in run.evals]
        return replace(run, evals=tuple(rows))

    runs = [early(run) if run.tags["method"] == "none" else run for run in study.runs]
    found = only("A3", made_study(runs))
    over, *_, beside = found.parts
    assert (beside.part, beside.counts) == ("over GRPO, equal think-first steps", False)
    assert over.value == pytest.approx(0.55 - 0.4, abs=1e-3)
    assert beside.value == pytest.approx(0.55 - 0.25, abs=1e-3)


# -- what cells say of each other


def test_cells_that_are_not_alike_in_spread_are_left_out() -> None:
    """Near 0 and 1 successes hardly differ: cells there say nothing of the others."""
    runs = [
        made_run(s, m, success=level + 0.01 * s) for m, level in (("a", 0.4), ("b", 0.01), ("c", 0.94)) for s in SEEDS
    ]
    runs.append(made_run(0, "d", success=0.5))  # a single run has no spread
    measure = claim_of("E6").parts[0].measure
    assert measure.alike == (0.05, 0.95)
    (cell,) = cells_with(measure, place([made_study(runs)]))
    assert [run.value for run in cell] == pytest.approx([0.4, 0.41, 0.42, 0.43, 0.44])


def test_a_sample_knows_its_unit_and_kinds() -> None:
    run = made_run(3, "gigpo", success=0.5)
    rows = [{**row, "eval/unseen/success/pick": 0.6, "eval/unseen/games/pick": 12} for row in run.evals]
    (placed,) = place([made_study([replace(run, evals=tuple(rows), start="abc")])])
    success = claim_of("E6").parts[0].measure
    (found,) = samples(success, [placed])
    assert (found.value, found.unit) == (0.5, ("gigpo", 3, "abc"))
    assert found.kinds == {"eval/unseen/success/pick": (pytest.approx(0.6), 12)}
    (plain,) = samples(replace(success, by_kind=False), [placed])
    assert plain.kinds is None
    warm = of_model([made_run(0)], "warmup/both")[0]
    assert place([made_study([warm])])[0].start == "both"  # where no fingerprint was recorded


def test_games_are_in_the_interval_of_success() -> None:
    """The same gain on average, once on each kind of game and once on one of two kinds alone."""
    study = SCENARIOS["E6"](HOLDS)

    def on_kinds(run: StudyRun, lopsided: bool) -> StudyRun:
        rows = []
        for row in run.evals:
            level = row["eval/unseen/success"]
            tilt = 0.15 if lopsided and run.tags["method"] == "epo" else 0.0
            told = {"eval/unseen/success/a": level + tilt, "eval/unseen/success/b": level - tilt}
            rows.append({**row, **told, "eval/unseen/games/a": 10, "eval/unseen/games/b": 10})
        return replace(run, evals=tuple(rows))

    even, tilted = (
        only("E6", made_study([on_kinds(run, one) for run in study.runs])).parts[0] for one in (False, True)
    )
    assert even.value == pytest.approx(tilted.value)
    assert even.error == pytest.approx(only("E6", study).parts[0].error)
    assert tilted.error**2 - even.error**2 == pytest.approx(0.15**2)  # ((0.15² + 0.15²) / 1) / 2
    assert tilted.verdict == Verdict.open


def test_clopper_and_pearsons_interval_for_a_share_of_seeds() -> None:
    part = only("S2", SCENARIOS["S2"](OPEN)).parts[0]
    known = stats.binomtest(3, 6).proportion_ci(0.95, method="exact")
    assert part.interval == Interval(pytest.approx(known.low), pytest.approx(known.high))
    assert part.how == "share of seeds"


def test_a_share_is_of_seeds_and_not_of_runs() -> None:
    """Six seeds of two algorithms are six, however many runs they are."""
    study = SCENARIOS["S2"](HOLDS)
    other = [replace(run, cell="gigpo", tags={**run.tags, "algorithm": "gigpo"}) for run in study.runs]
    part = only("S2", made_study([*study.runs, *other])).parts[0]
    known = stats.binomtest(6, 6).proportion_ci(0.95, method="exact")
    assert part.value == 1.0
    assert part.interval == Interval(pytest.approx(known.low), pytest.approx(known.high))
    five = [run for run in (*study.runs, *other) if run.seed < 5]
    assert only("S2", made_study(five)).verdict == Verdict.open
