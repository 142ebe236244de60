"""What alarms, phases and the doctor say of recorded runs that went wrong by themselves; docs/doctor.md lists them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.diagnosis.alarms import replay
from isentrope.diagnosis.doctor import diagnose
from isentrope.diagnosis.phases import DESCENT, ERUPTION, SUBSIDENCE
from isentrope.runs.folder import Run

RECORDED = Path(__file__).parent / "recorded" / "pocket"


def read(name: str) -> Run:
    run: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    keys = [key for key in run if key not in ("about", "config", "steps")]
    records = [
        {"step": step, "kind": "train"} | {key: run[key][i] for key in keys if run[key][i] is not None}
        for i, step in enumerate(run["steps"])
    ]
    return Run(Path(name), config=run["config"], records=records)


def claims(course: Run) -> str:
    """What it says, its technical words not explained, and what it advises."""
    told = diagnose(course)
    return " ".join([*(finding.claim for finding in told.findings), *told.remedies])


def test_all_are_looked_at() -> None:
    assert {path.stem for path in RECORDED.glob("*.json")} == set(ALARMS)


ALARMS = {
    "too-fast": [
        (5, "gradient_spike"), (14, "duplication"), (17, "eruption"), (26, "likelihood_fall"),
    ],
    "bonus-too-large": [(7, "eruption"), (8, "likelihood_fall"), (8, "gradient_spike"), (15, "no_signal")],
    "cold": [(11, "duplication"), (12, "eruption"), (12, "likelihood_fall")],
    "cold-and-slow": [],
    "ends-in-loops": [
        (21, "eruption"), (21, "duplication"), (22, "likelihood_fall"), (49, "eruption"), (54, "no_signal"),
        (55, "collapse"),
    ],
    "ever-shorter": [(8, "eruption"), (9, "likelihood_fall"), (38, "no_signal"), (50, "no_signal")],
    "much-too-fast": [
        (4, "gradient_spike"), (8, "gradient_spike"), (12, "eruption"), (12, "likelihood_fall"),
        (20, "gradient_spike"), (22, "duplication"), (33, "duplication"), (45, "gradient_spike"),
        (58, "gradient_spike"), (62, "gradient_spike"),
    ],
    "full-cycle": [
        (13, "gradient_spike"), (23, "eruption"), (23, "likelihood_fall"), (45, "no_signal"), (55, "no_signal"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ALARMS)
def test_alarms(name: str) -> None:
    assert [(alarm.step, alarm.name) for alarm in replay(read(name).records)[1]] == ALARMS[name]


def test_phases_of_a_full_cycle() -> None:
    alarms, _ = replay(read("full-cycle").records)
    spans = [(span.phase, span.first, span.last) for span in alarms.phases.spans()]
    assert spans == [(DESCENT, 1, 16), (ERUPTION, 17, 31), (SUBSIDENCE, 32, 59)]
    (eruption,) = alarms.phases.eruptions
    assert (eruption.before, eruption.top) == pytest.approx((0.191, 0.420), abs=1e-3)
    assert (eruption.noticed, eruption.over, eruption.back) == (23, 44, 53)


def test_the_story_of_a_full_cycle() -> None:
    words = claims(read("full-cycle"))
    assert (
        "Entropy erupted at step 17, one step before the likelihood of valid responses began to fall. It rose from "
        "0.19 to 0.42 nats a token at step 31, 2.2 times as much, and had subsided by step 53. At the probe of step 10 "
        "negative episodes interfered 2.0 times as much as positive ones; hallucinated actions rose from 2 % to 9 % "
        "and went back to 0.9 %;"
    ) in words


def test_duplication_that_outlives_its_eruption() -> None:
    words = claims(read("too-fast"))
    assert (
        "It rose from 0.19 to 0.37 nats a token at step 27, 1.9 times as much, and was down to 0.24 by step 63" in words
    )
    assert "duplication of sentences rose from 0 % to 26 % and stayed" in words
    assert "hallucinated actions rose from 2 % to 16 % and went back to 0.6 %" in words
    assert "learn.kl=0.01 (it is 0)" in words


def test_an_entropy_bonus_that_is_too_large_is_named_first() -> None:
    found = diagnose(read("bonus-too-large"))
    assert "the share of valid actions went from 88 % before to 0 % at the peak" in claims(read("bonus-too-large"))
    assert "Valid actions were lost: 88 % of the turns at the start, 0 % at the end" in claims(read("bonus-too-large"))
    assert found.remedies[0] == "a smaller method.entropy_bonus.coefficient (it is 0.3)"
    assert not any("max_response" in remedy for remedy in found.remedies)


def test_what_a_cold_policy_lost() -> None:
    words = claims(read("cold"))
    assert "success fell from 58 % to 0 %" in words
    assert "It rose from 0.018 to 0.12 nats a token at step 13, 6.5 times as much, and has not come down since" in words


def test_an_eruption_that_stayed_for_long_and_came_down_later_is_not_said_to_stay() -> None:
    words = claims(read("much-too-fast"))
    assert (
        "It rose from 0.20 to 0.68 nats a token at step 14, 3.4 times as much, and was down to 0.39 by step 72" in words
    )


def test_a_noisy_entropy_near_zero_is_not_said_to_stay_nor_to_sink() -> None:
    words = claims(read("cold-and-slow"))
    assert "Entropy went from 0.017 to 0.0081 nats a token, which may be noise, without an eruption." in words


def test_two_eruptions_and_a_collapse() -> None:
    course = read("ends-in-loops")
    alarms, given = replay(course.records)
    assert [(rise.onset, rise.peak, rise.back) for rise in alarms.phases.eruptions] == [(13, 21, 34), (45, 48, 54)]
    assert [span.phase for span in alarms.phases.spans()] == [DESCENT, ERUPTION, SUBSIDENCE, ERUPTION, SUBSIDENCE]
    assert given[-1].text == (
        "Entropy collapsed: 0.224 nats a token in the first steps, 0.042 now; success went from 0 % to 0 %."
    )
    first, second = (found for found in diagnose(course).findings if found.name == "eruption")
    assert "duplication of sentences rose from 0 % to 19 % and stayed" in first.claim
    assert "looping text rose from 33 % to 99 % and stayed" in second.claim
    assert "looping" not in first.claim  # 34 % of the responses, but after the eruption was gone
    assert "Eruptions began 32 steps apart; at that pace the next begins around step 77." in claims(course)


def test_answers_that_become_shorter() -> None:
    words = claims(read("ever-shorter"))
    assert "repeated actions rose from 0.7 % to 72 % and stayed" in words
    assert "Responses went from 14 tokens to 6." in words
