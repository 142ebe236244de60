"""`isentrope doctor RUN`: what it says of runs whose story is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.core.text import count, listed, percent, sentence
from isentrope.core.types import Episode, Turn
from isentrope.diagnosis.causes import updates
from isentrope.diagnosis.causes.updates import HELD
from isentrope.diagnosis.doctor import Diagnosis, diagnose
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.phases import PhaseDetector
from isentrope.diagnosis.remedies import DIVIDE, SEVERITIES, WEIGHING, Finding, direction
from isentrope.runs.curves import Curve, curve
from isentrope.runs.episodes import episode_files, write_episodes
from isentrope.runs.folder import Run
from isentrope.runs.layout import train_path
from tests.builders.sizes import examples

ALFWORLD = Path(__file__).parents[2] / "docs" / "runs" / "alfworld-smollm2"
CONFIG = {
    "run": {"steps": 60},
    "learn": {"lr": 1e-5, "kl": 0.01},
    "rollout": {"groups": 4, "group_size": 4},
    "task": {"max_turns": 30},
    "methods": [],
}


def course(metrics: Mapping[str, Sequence[float | None]], steps: int = 60, **more: Any) -> Run:
    records = [
        {"step": i + 1, "kind": "train"} | {key: values[i] for key, values in metrics.items() if i < len(values)}
        for i in range(steps)
    ]
    evals = more.pop("evals", [])
    return Run(Path("run"), config=more.pop("config", CONFIG), records=[*evals, *records], **more)


def named(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.name: finding for finding in diagnosis.findings}


def evaluated(step: int, success: float, split: str = "seen", games: int = 500) -> dict[str, Any]:
    return {"step": step, "kind": "eval", f"eval/{split}/success": success, f"eval/{split}/games": games}


HEALTHY = {
    "success/all": list(np.interp(range(60), [0, 20, 60], [0.3, 0.8, 0.84])),
    "entropy/token": list(np.linspace(0.5, 0.3, 60)),
    "valid_ratio": [0.9] * 60,
    "advantage/zero_groups": [0.1] * 60,
    "kl/k3": [0.02] * 60,
}


def test_a_healthy_run() -> None:
    evals = [
        evaluated(step, value)
        for step, value in zip(range(0, 70, 10), (0.32, 0.69, 0.8, 0.83, 0.84, 0.84, 0.84), strict=True)
    ]
    diagnosis = diagnose(course(HEALTHY, evals=evals))
    found = named(diagnosis)
    assert list(found) == ["success/rose", "evaluation/seen", "entropy/quiet"]
    assert found["success/rose"].claim == "On training games success rose from 35 % to 84 %, most of it by step 21."
    assert found["evaluation/seen"].claim == (
        "On seen games success rose from 32 % (step 0) to 84 % (step 60), most of it by step 20; "
        "it is flat since step 30."
    )
    assert found["entropy/quiet"].claim == "Entropy sank from 0.49 to 0.31 nats a token, without an eruption."
    assert diagnosis.remedies == []
    assert "Try" not in diagnosis.words()


@pytest.mark.parametrize(
    ("entropies", "claim"),
    [
        ([0.3] * 60, "Entropy stayed where it was, 0.30 nats a token at the start and 0.30 at the end."),
        (list(np.linspace(0.3, 0.45, 60)), "Entropy rose slowly, from 0.31 to 0.44 nats a token, without an eruption."),
    ],
)
def test_a_quiet_entropy(entropies: list[float], claim: str) -> None:
    assert named(diagnose(course({"entropy/token": entropies})))["entropy/quiet"].claim == claim


def erupting() -> dict[str, list[float]]:
    before, after = 30, 30
    return {
        "entropy/token": [0.3] * before + [0.9] * after,
        "likelihood/valid": [-0.3] * (before - 4) + [-0.9] * (after + 4),
        "degeneracy/duplication": [0.01] * before + [0.14] * after,
        "success/all": [0.6] * before + [0.2] * after,
        "probe/interference/negative": [0.31] * 60,
        "probe/interference/positive": [0.1] * 60,
    }


def test_an_eruption_with_all_that_came_with_it() -> None:
    finding = named(diagnose(course(erupting())))["eruption"]
    assert finding.claim == (
        "Entropy erupted at step 31, four steps after the likelihood of valid responses began to fall. It rose from "
        "0.30 to 0.90 nats a token at step 31, 3.0 times as much, and stayed there. At the probe of step 31 negative "
        "episodes interfered 3.1 times as much as positive ones; duplication of sentences rose from 1 % to 14 % and "
        "stayed; success went from 60 % before to 20 % at the peak."
    )
    assert finding.remedy == ("a smaller learning rate (learn.lr is 1e-05)", "seal")
    assert finding.severity == "bad"
    assert finding.evidence["likelihood_fell"] == 27
    assert finding.evidence["onset"] == 31


def test_an_eruption_in_an_older_run_that_measured_less() -> None:
    values = erupting()
    found = named(diagnose(course({"entropy/token": values["entropy/token"]})))
    assert found["eruption"].claim == (
        "Entropy erupted at step 31. It rose from 0.30 to 0.90 nats a token at step 31, 3.0 times as much, and stayed "
        "there."
    )


def by_part(think: float, action: float, other: float, more: float = 0.0) -> dict[str, list[float]]:
    """Responses of 10 tokens of thought, 4 of action and 6 of the rest, all at 0.3 nats, then at these; `more` tokens
    of the rest then."""
    after = {"entropy/think": think, "entropy/action": action, "entropy/other": other}
    return {
        "entropy/token": [0.3] * 30 + [0.9] * 30,
        **{key: [0.3] * 30 + [value] * 30 for key, value in after.items()},
        "response/tokens": [20.0] * 30 + [20.0 + more] * 30,
        "response/think_tokens": [10.0] * 60,
        "response/action_tokens": [4.0] * 60,
    }


def test_an_eruption_says_in_which_part_of_the_responses_it_was() -> None:
    found = named(diagnose(course(by_part(0.5, 0.3, 1.3))))["eruption"]  # 10 × 0.2 and 6 × 1: 2 and 6 nats of 8
    assert (
        "About 75 % of the rise was in tags, stray text and thoughts that were never closed, 25 % in thoughts."
        in found.claim
    )
    assert found.evidence["rise/other"] == pytest.approx(0.75)
    assert found.evidence["rise/action"] == pytest.approx(0)


def test_a_part_that_grew_longer_counts_too() -> None:
    found = named(diagnose(course(by_part(0.3, 0.8, 0.3, more=20 / 3))))[
        "eruption"
    ]  # 4 × 0.5, and 20 / 3 × 0.3: 2 and 2
    assert found.evidence["rise/other"] == pytest.approx(0.5)
    assert "50 % of the rise was in actions" in found.claim
    assert "in thoughts" not in found.claim


def test_a_part_that_fell_has_no_share_in_the_rise() -> None:
    claim = named(diagnose(course(by_part(0.2, 0.3, 1.3))))["eruption"].claim  # -1 and 6 nats
    assert "About 100 % of the rise was in tags, stray text and thoughts that were never closed." in claim


def test_an_eruption_says_whether_it_was_in_a_few_responses() -> None:
    values = {"entropy/token": [0.3] * 30 + [0.9] * 30}
    few = named(diagnose(course(values | {"entropy/concentration": [0.15] * 30 + [0.7] * 30})))["eruption"]
    assert "At the peak 70 % of all entropy was in one response of 20 (15 % before)." in few.claim
    assert few.evidence["concentration/peak"] == pytest.approx(0.7)
    same = named(diagnose(course(values | {"entropy/concentration": [0.15] * 30 + [0.2] * 30})))["eruption"]
    assert "one response of 20" not in same.claim


def test_where_is_not_told_if_the_run_did_not_measure_it() -> None:
    values = by_part(0.5, 0.3, 1.3)
    for key in ("entropy/other", "response/think_tokens"):
        left = {name: numbers for name, numbers in values.items() if name != key}
        assert "of the rise" not in named(diagnose(course(left)))["eruption"].claim


def test_likelihood_that_falls_afterwards_is_not_said_to_come_before() -> None:
    values = erupting() | {"likelihood/valid": [-0.3] * 33 + [-0.9] * 27}
    assert "three steps before the likelihood" in named(diagnose(course(values)))["eruption"].claim


def test_duplication_that_went_away_is_not_said_to_stay() -> None:
    values = erupting() | {"degeneracy/duplication": [0.01] * 30 + [0.14] * 10 + [0.01] * 20}
    assert "rose from 1 % to 14 % and went back to 1 %" in named(diagnose(course(values)))["eruption"].claim


def test_seal_is_not_advised_where_it_is_on() -> None:
    finding = named(diagnose(course(erupting(), config=CONFIG | {"methods": ["seal"]})))["eruption"]
    assert "seal" not in finding.remedy


def test_cycles_are_forecast() -> None:
    cycle = [0.3] * 20 + [0.9] * 10
    found = named(diagnose(course({"entropy/token": cycle * 4}, steps=120, config=CONFIG | {"run": {"steps": 120}})))
    assert found["eruptions/more"].claim == "One more eruption followed, at step 111."
    assert found["eruptions/period"].claim == (
        "Eruptions began 30 steps apart; at that pace the next begins around step 141."
    )
    uneven = {"entropy/token": cycle * 2 + [0.3] * 10 + cycle}
    found = named(diagnose(course(uneven, steps=100, config=CONFIG | {"run": {"steps": 100}})))
    assert found["eruptions/period"].claim.startswith("Eruptions began 35 steps apart (30 to 40); at that pace")


def test_success_that_was_lost_again() -> None:
    values = list(np.interp(range(60), [0, 30, 60], [0.2, 0.8, 0.1]))
    finding = named(diagnose(course({"success/all": values})))["success/fell"]
    assert finding.claim.startswith("On training games success rose from 24 % to 77 % around step 31 and fell to 17 %")
    assert finding.remedy[1] == "a smaller learning rate (learn.lr is 1e-05)"


FLAT = HEALTHY | {"success/all": [0.2] * 60}


def test_nothing_learnt_for_want_of_valid_actions() -> None:
    values = FLAT | {"valid_ratio": [0.01] * 60, "verdict/no_action": [0.9] * 60, "verdict/stray_text": [0.09] * 60}
    (finding,) = diagnose(course(values)).causes
    assert finding.name == "cause/invalid"
    assert "90 % were refused as no_action (no tag of an action)" in finding.claim
    assert "isentrope sft" in finding.remedy[0]


def test_valid_actions_that_only_evaluations_tell_of() -> None:
    some = [evaluated(step, 0.5) | {"eval/seen/valid_ratio": share} for step, share in ((0, 0.9), (30, 0.5), (60, 0.1))]
    told = diagnose(course({key: values for key, values in FLAT.items() if key != "valid_ratio"}, evals=some))
    assert "90 % of the turns of the first evaluation, 10 % of the last" in named(told)["answers/lost"].claim


@pytest.mark.parametrize("groups", [1e308, math.inf, math.nan, 10**400])
def test_settings_that_no_run_has_break_no_diagnosis(groups: float) -> None:
    config = CONFIG | {"rollout": {"groups": groups, "group_size": 4}}
    assert course(FLAT, config=config).amount("rollout.groups") is None
    diagnose(course(FLAT | {"failures": [1.0] * 60}, config=config))


def naive_since(gaps: Curve, moved: Curve, gap: float) -> int | None:
    for place in range(3, len(gaps) - 1):
        before, after = max(gaps.values[:place]), min(gaps.values[place:])
        rounding = before <= 3 * median(gaps.values[:3]) + 1e-9 and before <= 0.05 * gap
        if rounding and after >= 5 * before and max(moved.before(gaps.steps[place]).values, default=0.0) >= HELD:
            return gaps.steps[place]
    return None


@given(
    st.lists(st.sampled_from((0.0, 1e-7, 2e-7, 1e-4, 0.01)), min_size=2, max_size=30),
    st.lists(st.sampled_from((0.0, 0.01, 0.1)), max_size=30),
)
def test_where_a_gap_opened_is_found_as_naively(gaps: list[float], moved: list[float]) -> None:
    facts = Facts(course({"mismatch/kl": gaps, "kl/k3": moved}), PhaseDetector())
    curves = (curve(facts.course.records, key) for key in ("mismatch/kl", "kl/k3"))
    assert updates._since(facts, 0.01) == naive_since(*curves, 0.01)  # pyright: ignore[reportPrivateUsage]


def test_a_policy_that_lost_the_form_of_an_answer_is_not_told_to_learn_it_first() -> None:
    values = FLAT | {"valid_ratio": [0.9] * 10 + [0.0] * 50, "verdict/too_long": [0.0] * 10 + [1.0] * 50}
    told = diagnose(course(values))
    finding = named(told)["answers/lost"]
    assert finding.claim == (
        "Valid actions were lost: 90 % of the turns at the start, 0 % at the end, most of them refused as too_long "
        "(cut off at the length limit before it was complete)."
    )
    assert finding.remedy == ("an earlier checkpoint", "a smaller learning rate (learn.lr is 1e-05)")
    assert not any("warm-up" in remedy or "max_response" in remedy for remedy in told.remedies)


def test_nothing_learnt_since_groups_are_equal() -> None:
    (finding,) = diagnose(course(FLAT | {"advantage/zero_groups": [0.95] * 60})).causes
    assert finding.name == "cause/equal_rewards"
    assert finding.claim.startswith("In 95 % of the groups all episodes got the same reward")


@pytest.mark.parametrize(
    ("kl", "name", "words"),
    [(1.0, "cause/kl_high", "is 1, 100 times what most recipes have"), (0.01, "cause/rate_low", "learn.lr is 1e-05")],
)
def test_nothing_learnt_since_the_policy_stands_still(kl: float, name: str, words: str) -> None:
    config = CONFIG | {"learn": {"lr": 1e-5, "kl": kl}}
    told = diagnose(course(FLAT | {"kl/k3": [1e-5] * 60}, config=config))
    (finding,) = told.causes
    assert finding.name == name
    assert words in finding.claim
    assert not any("smaller learning rate" in remedy or "learn.kl=" in remedy for remedy in told.remedies)


def test_nothing_learnt_and_nobody_knows_why() -> None:
    found = named(diagnose(course(FLAT)))
    assert found["stalled/unknown"].claim == (
        "None of the usual reasons shows in the numbers: 90 % of the turns are valid actions, episodes of 90 % of the "
        "groups earn differently and the policy came 0.02 nats a token from where it began."
    )
    less = {key: values for key, values in FLAT.items() if key != "kl/k3"}  # without a KL term nobody measured it
    assert named(diagnose(course(less)))["stalled/unknown"].claim == (
        "None of the usual reasons shows in the numbers: 90 % of the turns are valid actions and episodes of 90 % of "
        "the groups earn differently."
    )
    assert found["success/stalled"].claim == (
        "On training games success did not rise: 20 % of 80 episodes at the start, 20 % of 80 at the end (a difference "
        "under 15 points would not show)."
    )


def test_a_run_that_ended_early() -> None:
    finding = diagnose(course(HEALTHY, steps=12)).findings[0]
    assert finding.claim == "The run ended early: 12 of 60 steps are there."
    assert "--resume" in finding.remedy[0]
    assert diagnose(course(HEALTHY, steps=12, alive=True)).findings[0].name == "state/running"


def test_a_run_that_diverged() -> None:
    broken = course(HEALTHY, steps=12)
    broken.records[-1] |= {"grad_norm": None, "loss/total": None, "nonfinite": ["grad_norm", "loss/total"]}
    first, second = diagnose(broken).findings[:2]
    assert first.claim == "The run broke off: 12 of 60 steps are there."
    assert second.claim == "At step 12 these were not finite numbers: grad_norm and loss/total."


def test_failed_tasks() -> None:
    values = HEALTHY | {"failures": [0.0] * 10 + [4.0] * 50, "failures/time_limit": [None] * 10 + [4.0] * 50}
    (finding,) = diagnose(course(values)).causes  # 200 of 60 × 16: so many are told even where success rose
    assert finding.claim == (
        "Episodes are lost: 21 % of them broke for reasons outside of the policy (200 time_limit), and nothing is "
        "learnt from those."
    )
    assert "a larger task.step_seconds, if tasks are slow" in finding.remedy
    few = HEALTHY | {"failures": [0.0] * 50 + [1.0] * 10, "failures/time_limit": [None] * 50 + [1.0] * 10}
    told = diagnose(course(few))
    assert not told.causes
    assert named(told)["failures"].claim == (
        "Ten episodes failed for reasons outside of the policy, 1 % of all (10 time_limit), in ten steps, the first of "
        "them step 51."
    )


def test_alarms_are_told_with_their_steps() -> None:
    values = HEALTHY | {"grad_norm": ([0.5] * 9 + [9.0]) * 6}
    finding = named(diagnose(course(values)))["alarm/gradient_spike"]
    assert finding.claim == (
        "Step 10: the gradient's norm jumped to 9, 18 times its median of 0.5. So again at steps 20, 30, 40, 50 and 60."
    )


def test_an_alarm_that_only_the_run_recorded() -> None:
    event = {"step": 7, "kind": "alarm", "name": "odd", "text": "Something odd.", "remedy": "a rest"}
    finding = named(diagnose(course(HEALTHY, events=[event])))["alarm/odd"]
    assert (finding.claim, finding.remedy) == ("Step 7, as recorded: Something odd.", ("a rest",))


def test_a_warm_up() -> None:
    loss = [*np.linspace(1, 0.2, 9), *[0.2] * 11]
    records = [
        {"step": i + 1, "kind": "sft", "sft/loss": value, "sft/epoch": (i + 1) / 10} for i, value in enumerate(loss)
    ]
    records.append({"step": 20, "kind": "eval", "eval/seen/success": 0.4, "eval/seen/valid_ratio": 0.9})
    words = diagnose(Run(Path("w"), "sft", records=records)).words()
    assert words == (
        "The loss of the imitated tokens fell from 0.85 to 0.20 nats (the unit of entropy: a fair coin has 0.69), most "
        "of it by step 11 (2 × the games). "
        "Afterwards it solves 40 % of the seen games, and 90 % of its actions are valid."
    )


def test_a_warm_up_that_brought_nothing() -> None:
    records = [{"step": i + 1, "kind": "sft", "sft/loss": 1.0} for i in range(20)]
    records.append({"step": 20, "kind": "eval", "eval/seen/success": 0.0})
    found = named(diagnose(Run(Path("w"), "sft", records=records)))
    assert found["imitation/stalled"].severity == "warning"
    assert "more sft.games" in found["evaluation/seen"].remedy[0]


def test_actions_given_again_and_again(tmp_path: Path) -> None:
    empty = np.empty(0, dtype=np.float32)
    ids = np.empty(0, dtype=np.int32)

    def turn(action: str) -> Turn:
        return Turn("", None, "", ids, False, ids, empty, empty, empty, None, None, action, "ok", "tag", 0.0)

    turns = tuple(turn(action) for action in ("look", "look", "look", "go"))
    episode = Episode("w", "train", 0, "", "", 0, 0, "think_act", turns, False, "turn_limit")
    write_episodes(train_path(tmp_path, 60), [episode])
    told = diagnose(replace(course(HEALTHY), path=tmp_path, episode_files=episode_files(tmp_path)))
    assert named(told)["episodes/repeated"].claim == (  # two of three turns that have one before
        'In the episodes of step 60, 67 % of the actions repeat the one before, most often "look" (2 times).'
    )


@pytest.mark.parametrize("kind", ["train", "sft", "rft"])
def test_a_folder_without_numbers(kind: str) -> None:
    assert diagnose(Run(Path("run"), kind)).words() == "The folder has no numbers yet."


keys = st.sampled_from(
    [
        "success/all", "entropy/token", "valid_ratio", "kl/k3", "failures", "likelihood/valid", "grad_norm",
        "verdict/odd", "sft/loss", "degeneracy/duplication", "probe/interference/negative",
        "probe/interference/positive", "response/tokens", "eval/seen/success", "eval/seen/games",
        "advantage/zero_groups", "stop/turn_limit", "response/outcome/solved", "response/outcome/failed",
        "verdict/too_long", "context/shortened", "stop/context_limit", "mismatch/kl", "kl/old", "return/mean",
        "return/std", "advantage/std", "clip/fraction", "update/skipped",
    ]
)  # fmt: skip
values = st.one_of(st.none(), st.floats(allow_nan=True), st.floats(0, 1), st.text(max_size=3))
record = st.builds(
    lambda kind, numbers: {"kind": kind} | numbers,
    st.sampled_from(["train", "eval", "sft"]),
    st.dictionaries(keys, values, max_size=12),
)


@examples(50)
@given(
    st.lists(record, max_size=40), st.sampled_from(["train", "sft", "rft"]), st.sampled_from([{}, CONFIG, {"run": 3}])
)
def test_whatever_a_run_wrote_it_is_told_without_an_error(records: Any, kind: str, config: Any) -> None:
    run = Run(Path("r"), kind, config, [{"step": i} | line for i, line in enumerate(records)])
    told = diagnose(run)
    ways: dict[str, int] = {}
    for name, way in filter(None, (direction(run, remedy) for remedy in told.remedies)):
        assert way != 0
        assert ways.setdefault(name, way) == way  # nothing is to go both up and down
    assert all(finding.severity in SEVERITIES and finding.claim.endswith((".", ")")) for finding in told.findings)
    json.dumps(told.data(), allow_nan=False)


def test_curves() -> None:
    found = curve([{"step": i, "a": v} for i, v in enumerate([1.0, None, "x", float("nan"), 3.0, 5.0])], "a")
    assert (found.steps, found.values) == ((0, 4, 5), (1.0, 3.0, 5.0))
    line = Curve(tuple(range(10)), tuple(float(v) for v in range(10)))
    assert (line.width, line.start, line.end) == (2, 0.5, 8.5)
    assert line.noise == 0.0  # a straight line has none
    assert line.best == (9, 8.5)
    assert line.reached(4.5) == 5  # the mean of steps 4 and 5
    assert line.before(4, 2).values == (2.0, 3.0)
    assert line.between(3, 5).values == (3.0, 4.0, 5.0)
    assert Curve((1, 2, 3, 4), (0.0, 9.0, 1.0, 2.0)).highest_of_three() == 2.0


def test_wording() -> None:
    assert [percent(value) for value in (0, 0.004, 0.01, 0.145, 1)] == ["0 %", "0.4 %", "1 %", "14 %", "100 %"]
    assert [count(number, "step") for number in (1, 4, 13, 2000)] == [
        "one step",
        "four steps",
        "13 steps",
        "2,000 steps",
    ]
    assert [listed(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert sentence("it was.") == "It was."


def test_the_command_on_recorded_runs() -> None:
    result = CliRunner().invoke(
        app, ["doctor", *(str(ALFWORLD / name) for name in ("grpo", "qwen/grpo-lr1e-5", "warmup"))]
    )
    assert result.exit_code == 0
    said = " ".join(result.output.replace("\u00a0", " ").split())
    assert "On seen games success rose from 32 % (step 0) to 84 % (step 50), most of it by step 20; it is flat" in said
    assert "Entropy erupted at step 2. It rose from 0.031 to 0.084 nats a token" in said
    assert "The loss of the imitated tokens fell from 0.76 to 0.02 nats" in said


def test_the_command_gives_data() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json", str(ALFWORLD / "qwen" / "grpo-lr1e-5")])
    (told,) = json.loads(result.output)
    finding = next(finding for finding in told["findings"] if finding["name"] == "eruption")
    assert (finding["evidence"]["onset"], finding["severity"]) == (2, "bad")


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "kind": "train", "success/all": 0.5}) + "\n")
    event = {"step": 1, "kind": "alarm", "name": "x", "text": "\x1b]0;owned\x07[bold]hi[/bold]\x1b[2J", "remedy": ""}
    (tmp_path / "events.jsonl").write_text(json.dumps(event) + "\n")
    result = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert "[bold]hi[/bold]" in result.output


def test_what_is_no_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert result.exit_code == 2
    said = " ".join(result.output.replace("│", " ").split())  # the frame may come between words of the sentence
    assert "is not a run folder" in said


def test_one_folder_that_is_no_run_does_not_silence_the_others(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", str(tmp_path), str(ALFWORLD / "warmup")])
    assert result.exit_code == 0
    said = " ".join(result.output.split())
    assert "is not a run folder" in said
    assert "The loss of the imitated tokens" in said


def test_a_damaged_episode_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "kind": "train", "success/all": 0.5}) + "\n")
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes" / "step-000001.parquet").write_bytes(b"PAR1 no")
    assert CliRunner().invoke(app, ["doctor", str(tmp_path)]).exit_code == 0


def test_a_run_that_goes_on_is_said_to(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "kind": "train", "success/all": 0.5}) + "\n")
    (tmp_path / "config.toml").write_text("[run]\nsteps = 9\n")
    if not Path("/proc/locks").exists():
        pytest.skip("the kernel's list of locks, /proc/locks, is there on Linux alone")
    with (tmp_path / "run.lock").open("w") as lock:
        assert "ended early: 1 of 9" in CliRunner().invoke(app, ["doctor", str(tmp_path)]).output
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is going on; it has done step 1 of 9" in CliRunner().invoke(app, ["doctor", str(tmp_path)]).output


def test_shares_that_cannot_be_are_told_all_the_same() -> None:
    lines = [{"eval/seen/success": value, "eval/seen/games": 1.0, "kind": "eval"} for value in (3.0, 0.0)]
    assert diagnose(Run(Path("r"), "train", {}, [{"step": i} | line for i, line in enumerate(lines)])).words()


LOST = {
    "response/tokens": list(np.linspace(16, 40, 60)),
    "response/outcome/failed": list(np.linspace(16, 48, 60)),
    "response/outcome/solved": list(np.linspace(16, 18, 60)),
}
OVERLONG = "learn.overlong=0.2, if long responses bring nothing"
FEW_KNOWN = [None] * 32


@pytest.mark.parametrize(
    ("learn", "remedy"),
    [
        ({"aggregation": "turn"}, (WEIGHING, OVERLONG)),
        ({"aggregation": "turn", "advantage": {"divide_by_std": False}}, (WEIGHING + DIVIDE, OVERLONG)),
        ({"aggregation": "sequence"}, (WEIGHING, OVERLONG)),
        ({"aggregation": "sequence", "overlong": 0.2}, (WEIGHING,)),
        ({"aggregation": "token"}, (OVERLONG,)),
        ({"aggregation": "episode"}, (OVERLONG,)),
        ({"aggregation": "constant", "overlong": 0.2}, ()),
    ],
)
def test_responses_that_grow_where_nothing_is_solved(learn: dict[str, Any], remedy: tuple[str, ...]) -> None:
    config = CONFIG | {"learn": {"lr": 1e-5} | learn}
    found = named(diagnose(course(HEALTHY | LOST, config=config)))
    finding = found["length/failed"]
    assert finding.claim == (
        "Where the task was not solved, responses went from 17 tokens to 47; where it was, from 16 to 18."
    )
    assert finding.evidence == pytest.approx(
        {"failed/start": 17.085, "failed/end": 46.915, "solved/start": 16.068, "solved/end": 17.932}, abs=0.001
    )
    assert (finding.remedy, finding.severity, finding.steps) == (remedy, "warning", (60,))
    assert "length" not in found  # the same said twice


@pytest.mark.parametrize(
    "change",
    [
        {"response/outcome/solved": list(np.linspace(16, 24, 60))},  # they grow wherever they are
        {"response/outcome/failed": list(np.linspace(16, 22, 60))},  # too little
        {"response/outcome/failed": list(np.linspace(48, 16, 60))},  # shorter
        {"response/outcome/failed": [16.0, 60.0] * 29 + [60.0, 60.0]},  # no more than its noise
        {"response/outcome/failed": [0.0] * 60},
        {"response/outcome/solved": [None] * 60},  # nothing was ever solved
        {"response/outcome/solved": [16.0] * 20 + [None] * 40},  # only in the beginning
        {key: [*FEW_KNOWN, *LOST[key][32:]] for key in list(LOST)[1:]},  # resumed from numbers without them
    ],
)
def test_other_lengths_are_not_told_by_outcome(change: dict[str, list[float | None]]) -> None:
    config = CONFIG | {"learn": {"aggregation": "turn"}}
    found = named(diagnose(course(HEALTHY | LOST | change, config=config)))
    assert "length/failed" not in found
    assert found["length"].claim == "Responses went from 17 tokens to 39."
    assert found["length"].remedy == (OVERLONG,)


def test_lengths_are_told_from_one_and_a_half_times_on() -> None:
    longer = {"response/outcome/failed": list(np.linspace(16, 26, 60))}
    assert "length/failed" in named(diagnose(course(HEALTHY | LOST | longer)))
    assert not any(name.startswith("length") for name in named(diagnose(course(HEALTHY))))
    short = named(diagnose(course(HEALTHY | {"response/tokens": list(np.linspace(40, 16, 60))})))
    assert short["length"].remedy == ()
    few = {key: values[::9][:7] for key, values in LOST.items()}  # as steep, but seven steps say little
    assert not any(name.startswith("length") for name in named(diagnose(course(few, steps=7))))
