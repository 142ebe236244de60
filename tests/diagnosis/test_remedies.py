"""What the doctor advises: fitted to what ran. And what it tells of what was done about alarms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.diagnosis.doctor import Diagnosis, diagnose
from isentrope.diagnosis.remedies import (
    DIVIDE,
    PENALTY,
    WEIGHING,
    Finding,
    direction,
    reconciled,
    to_calm,
    to_widen,
)
from isentrope.runs.folder import Run

LEARN = {"lr": 1e-3, "kl": 0.01}
TURNS = {"aggregation": "turn"}
CONFIG: dict[str, Any] = {
    "run": {"steps": 60},
    "learn": LEARN,
    "rollout": {"groups": 4, "group_size": 4, "temperature": 1.0},
    "methods": [],
}


def undivided(kind: str = "grpo") -> dict[str, Any]:
    return {"advantage": {"kind": kind, "divide_by_std": False}}


UNDIVIDED = undivided()
SLOWER = "a smaller learning rate (learn.lr is 0.001)"


def course(config: dict[str, Any] | None = None, steps: int = 60, **metrics: list[float]) -> Run:
    records = [
        {"step": i + 1, "kind": "train"} | {key.replace("__", "/"): values[i] for key, values in metrics.items()}
        for i in range(steps)
    ]
    return Run(Path("run"), config=CONFIG | (config or {}), records=records)


def finding(diagnosis: Diagnosis, name: str) -> Finding:
    return next(found for found in diagnosis.findings if found.name == name)


@pytest.mark.parametrize(
    ("config", "remedies"),
    [
        ({}, (SLOWER, "seal")),
        ({"learn": {"lr": 1e-3, "kl": 0.0}}, (SLOWER, "learn.kl=0.01 (it is 0)", "seal")),
        (
            {"methods": ["entropy_bonus"], "method": {"entropy_bonus": {"coefficient": 0.3}}},
            ("a smaller method.entropy_bonus.coefficient (it is 0.3)", SLOWER, "seal"),
        ),
        ({"methods": ["entropy_bonus"]}, ("a smaller method.entropy_bonus.coefficient", SLOWER, "seal")),
        ({"methods": ["seal"]}, (SLOWER,)),
        ({"methods": ["higher_temperature"]}, ("a lower sampling temperature (it is 1.2)", SLOWER, "seal")),
        ({"rollout": {"temperature": 1.5}}, ("a lower sampling temperature (it is 1.5)", SLOWER, "seal")),
        ({"learn": LEARN | UNDIVIDED | {"aggregation": "turn"}}, (WEIGHING + DIVIDE, SLOWER, "seal")),
        ({"learn": LEARN | UNDIVIDED | {"aggregation": "sequence"}}, (WEIGHING, SLOWER, "seal")),
        (
            {"learn": LEARN | {"aggregation": "turn", "advantage": {"kind": "grpo", "divide_by_std": True}}},
            (WEIGHING, SLOWER, "seal"),
        ),
        ({"learn": LEARN | UNDIVIDED | {"aggregation": "token"}}, (SLOWER, "seal")),
        ({"learn": LEARN | UNDIVIDED | {"aggregation": "episode"}}, (SLOWER, "seal")),
        # RLOO never divides, and dividing without a penalty did not help
        ({"learn": LEARN | TURNS | undivided("rloo")}, (WEIGHING, SLOWER, "seal")),
        (
            {"learn": LEARN | UNDIVIDED | {"aggregation": "turn"}, "task": {"invalid_reward": 0.0}},
            (WEIGHING, PENALTY, SLOWER, "seal"),
        ),
        ({"methods": ["aem"]}, ("no aem", SLOWER, "seal")),
    ],
)
def test_against_an_eruption(config: dict[str, Any], remedies: tuple[str, ...]) -> None:
    assert to_calm(course(config)) == remedies
    erupts = diagnose(course(config, entropy__token=[0.3] * 30 + [0.9] * 30))
    assert finding(erupts, "eruption").remedy == remedies


@pytest.mark.parametrize(
    ("config", "weighed"),
    [
        ({"learn": LEARN | {"aggregation": "turn"}}, (WEIGHING, SLOWER, "seal")),
        ({"learn": LEARN | UNDIVIDED | {"aggregation": "turn"}}, (WEIGHING + DIVIDE, SLOWER, "seal")),
        ({"learn": LEARN | TURNS | undivided("gigpo")}, (WEIGHING + DIVIDE, SLOWER, "seal")),
        ({"learn": LEARN | TURNS | undivided("gigpo_mixed")}, (WEIGHING, SLOWER, "seal")),
        ({"learn": LEARN | {"aggregation": "token"}}, (SLOWER, "seal")),
        ({"learn": LEARN | {"aggregation": "token"}, "methods": ["seal"]}, (SLOWER,)),
    ],
)
def test_against_sentences_that_repeat_themselves(config: dict[str, Any], weighed: tuple[str, ...]) -> None:
    repeats = diagnose(course(config, degeneracy__duplication=[0.01] * 30 + [0.14] * 30))
    earlier = "an earlier checkpoint, since what was learnt this way tends to stay"
    assert finding(repeats, "alarm/duplication").remedy == (earlier, *weighed)


@pytest.mark.parametrize(
    ("config", "remedies"),
    [
        ({}, ("entropy_bonus or epo or aem", SLOWER)),
        (
            {"rollout": {"temperature": 0.2}},
            ("a higher rollout.temperature (it is 0.2)", "entropy_bonus or epo or aem", SLOWER),
        ),
        ({"methods": ["epo"]}, ("a larger method.epo.coefficient", "entropy_bonus or aem", SLOWER)),
        (
            {"methods": ["aem", "epo", "entropy_bonus"]},
            ("a larger method.entropy_bonus.coefficient", "a larger method.epo.coefficient", SLOWER),
        ),
    ],
)
def test_against_a_collapse(config: dict[str, Any], remedies: tuple[str, ...]) -> None:
    assert to_widen(course(config)) == remedies
    collapsed = diagnose(course(config, entropy__token=[0.5] * 30 + [0.01] * 30, success__all=[0.2] * 60))
    assert finding(collapsed, "alarm/collapse").remedy == remedies


def test_nothing_is_advised_twice() -> None:
    told = diagnose(course(entropy__token=[0.3] * 30 + [0.9] * 30, grad_norm=[0.1] * 30 + [2.0] + [0.1] * 29))
    assert told.remedies.count(SLOWER) == 1
    assert "a smaller learn.lr" not in told.remedies
    assert "a smaller learn.grad_clip" in told.remedies


@pytest.mark.parametrize("resample", [0, 3])
def test_dynamic_sampling_is_not_advised_where_it_is_on(resample: int) -> None:
    config = {"learn": {"lr": 1e-3, "resample": resample}}
    told = diagnose(course(config, advantage__zero_groups=[0.9] * 60, success__all=[0.5] * 60))
    assert {"alarm/no_signal", "cause/equal_rewards"} <= {found.name for found in told.findings}
    assert sum("dynamic sampling" in remedy for remedy in told.remedies) == (resample == 0)


def test_a_method_that_was_switched_on_is_told_and_counts_as_on() -> None:
    erupts = course(entropy__token=[0.3] * 30 + [0.9] * 30)
    text = "The method seal is on from step 34, because of the alarm eruption."
    erupts.events.append({"step": 33, "kind": "switch", "name": "seal", "text": text, "remedy": ""})
    told = diagnose(erupts)
    assert (finding(told, "switched").claim, finding(told, "switched").steps) == (text, (33,))
    assert "seal" not in finding(told, "eruption").remedy


@pytest.mark.parametrize("went_on", [False, True])
def test_a_run_that_was_paused_is_not_said_to_have_ended_early(went_on: bool) -> None:
    text = "The run was paused after step 33, because of the alarm eruption."
    paused = course(steps=40 if went_on else 33, entropy__token=[0.3] * 30 + [0.9] * 10)
    paused.events.append({"step": 33, "kind": "pause", "name": "pause", "text": text, "remedy": ""})
    found = finding(diagnose(paused), "state/short")
    assert found.claim == ("The run ended early: 40 of 60 steps are there." if went_on else text)
    assert found.remedy == ("--resume, to go on from its last checkpoint",)


def test_what_came_with_an_eruption_is_not_taken_from_the_next() -> None:
    """The first comes down in part. Duplication rises with the second alone; hallucination with both, and in between it
    was gone."""
    told = diagnose(
        course(
            entropy__token=[0.3] * 20 + [0.9] * 10 + [0.6] * 20 + [1.6] * 10,
            degeneracy__duplication=[0.0] * 50 + [0.2] * 10,
            degeneracy__hallucinated=[0.0] * 20 + [0.3] * 10 + [0.0] * 20 + [0.3] * 10,
        )
    )
    first, second = (found for found in told.findings if found.name == "eruption")
    assert (first.steps[0], second.steps[0]) == (21, 51)
    assert "uplication" not in first.claim
    assert "Hallucinated actions rose from 0 % to 30 % and went back to 0 %" in first.claim
    assert "Duplication of sentences rose from 0 % to 20 % and stayed" in second.claim
    assert "hallucinated actions rose from 0 % to 30 % and stayed" in second.claim


def test_several_further_eruptions_are_listed() -> None:
    told = diagnose(course({"run": {"steps": 150}}, steps=150, entropy__token=([0.3] * 20 + [0.9] * 10) * 5))
    assert finding(told, "eruptions/more").claim == "Two more eruptions followed, at steps 111 and 141."


def test_the_findings_as_data_are_json() -> None:
    told = diagnose(course(advantage__zero_groups=[1.0] * 60))  # success was not recorded: the alarm has no number
    assert finding(told, "alarm/no_signal").evidence["share"] == 1.0
    json.dumps(told.data(), allow_nan=False)


@pytest.mark.parametrize(
    ("remedy", "way"),
    [
        (SLOWER, ("learn.lr", -1)),
        ("a larger learn.lr (0.0001)", ("learn.lr", 1)),
        ("larger groups (rollout.group_size of 6 to 16)", ("rollout.group_size", 1)),
        ("a lower sampling temperature (it is 1.2)", ("rollout.temperature", -1)),
        ("a higher rollout.temperature, of 1", ("rollout.temperature", 1)),
        ("learn.kl=0.01 (it is 0)", ("learn.kl", 0)),  # the settings of these tests have it
        ("learn.kl=0.1", ("learn.kl", 1)),
        ("entropy_bonus or epo", ("entropy", 1)),
        ("seal", ("entropy", -1)),
        ("easier tasks", None),
    ],
)
def test_which_way_a_remedy_goes(remedy: str, way: tuple[str, int] | None) -> None:
    assert direction(course(), remedy) == way


def test_later_advice_does_not_contradict_earlier() -> None:
    first = Finding("cause/rate_low", "", "bad", remedy=("a larger learn.lr",))
    second = Finding("evaluation/seen", "", "bad", remedy=(SLOWER, "easier tasks"))
    third = Finding("alarm/collapse", "", "warning", remedy=("entropy_bonus", "learn.kl=0.01"))
    kept = reconciled(course(), (third, first, second), stands=False)
    assert [finding.remedy for finding in kept] == [("entropy_bonus",), ("a larger learn.lr",), ("easier tasks",)]


def test_what_stands_still_is_never_slowed_down() -> None:
    falls = course(kl__k3=[1e-6] * 60, success__all=[0.9] * 30 + [0.1] * 30, grad_norm=[0.1] * 30 + [2.0] + [0.1] * 29)
    told = diagnose(falls)
    assert {"success/fell", "alarm/gradient_spike"} <= {found.name for found in told.findings}
    assert not any("smaller" in remedy for remedy in told.remedies)
    moves = course(kl__k3=[0.1] * 60, success__all=[0.9] * 30 + [0.1] * 30)
    assert SLOWER in diagnose(moves).remedies
