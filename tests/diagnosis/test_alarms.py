"""Alarms: each on a course with a known answer, once per episode of trouble, none on healthy runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.diagnosis.alarms import NAMES, REARM, Alarm, Alarms, replay

RECORDED = Path(__file__).parent / "recorded"


def run(**courses: Sequence[float | None]) -> list[Alarm]:
    """The alarms of a run; `a__b` is the metric a/b. Steps count from 1."""
    alarms, given_ = Alarms(), list[Alarm]()
    for step in range(max(len(course) for course in courses.values())):
        metrics = {key.replace("__", "/"): course[step] for key, course in courses.items() if step < len(course)}
        given_ += alarms.look(step + 1, metrics)
    return given_


def told(alarms: Sequence[Alarm]) -> list[tuple[str, int]]:
    return [(alarm.name, alarm.step) for alarm in alarms]


def test_eruption() -> None:
    (alarm,) = run(entropy__token=[0.2] * 20 + [0.8] * 10 + [0.2] * 10)
    assert (alarm.name, alarm.step) == ("eruption", 23)
    assert alarm.text == (
        "Entropy erupted: it left its level of 0.2 nats a token at step 21 and was at 0.8 by step 23."
    )
    assert "seal" in alarm.remedy
    assert alarm.numbers == {"onset": 21, "before": 0.2, "top": 0.8, "amplitude": pytest.approx(0.6)}


def test_collapse_without_success() -> None:
    (alarm,) = run(entropy__token=[0.5] * 10 + [0.03] * 10, success__all=[0.2] * 20)
    assert (alarm.name, alarm.step) == ("collapse", 13)  # the median of the last five
    assert alarm.text == (
        "Entropy collapsed: 0.5 nats a token in the first steps, 0.03 now; success went from 20 % to 20 %."
    )


def test_a_low_entropy_that_success_came_for_is_no_collapse() -> None:
    assert run(entropy__token=[0.5] * 10 + [0.03] * 10, success__all=[0.2] * 10 + [0.8] * 10) == []


def test_nearly_no_entropy_is_a_collapse_unless_all_is_solved() -> None:
    entropy = [0.05] * 10 + [0.0005] * 10
    assert told(run(entropy__token=entropy, success__all=[0.2] * 10 + [0.8] * 10)) == [("collapse", 13)]
    assert told(run(entropy__token=entropy)) == [("collapse", 13)]
    assert run(entropy__token=entropy, success__all=[0.2] * 8 + [1.0] * 12) == []
    assert run(entropy__token=[0.0] * 20, success__all=[0.2] * 20) == []  # there was never any


def test_likelihood_fall() -> None:
    (alarm,) = run(likelihood__valid=[-0.2] * 20 + [-0.8] * 10)
    assert (alarm.name, alarm.step) == ("likelihood_fall", 23)
    assert "since step 21: -0.2 nats a token before, -0.8 at its lowest" in alarm.text
    assert run(likelihood__valid=[-0.8] * 20 + [-0.2] * 10) == []  # rising is well


def test_duplication() -> None:
    (alarm,) = run(degeneracy__duplication=[0.01] * 10 + [0.14] * 10)
    assert (alarm.name, alarm.step) == ("duplication", 12)
    assert alarm.text == (
        "Sentences repeat themselves: 14 % of them stand more than once in their response, 1 % in the first steps."
    )
    assert run(degeneracy__duplication=[0.14] * 20) == []  # no more than at the start
    assert run(degeneracy__duplication=[0.0] * 10 + [0.04] * 10) == []
    assert run(degeneracy__duplication=[0.0] * 10 + [0.9] + [0.0] * 9) == []


def test_mismatch() -> None:
    (alarm,) = run(mismatch__kl=[1e-4] * 5 + [0.05] * 5)
    assert (alarm.name, alarm.step) == ("mismatch", 7)
    assert "the KL between them is 0.05 nats a token (limit 0.01)" in alarm.text
    (alarm,) = run(mismatch__truncated=[0.0] * 5 + [0.1] * 5)
    assert "10 % of the tokens" in alarm.text
    assert "learn.mismatch=truncate" in alarm.remedy


def test_gradient_spike() -> None:
    (alarm,) = run(grad_norm=[0.5] * 10 + [6.0] + [0.5] * 5)
    assert (alarm.name, alarm.step) == ("gradient_spike", 11)
    assert alarm.text == "The gradient's norm jumped to 6, 12 times its median of 0.5."
    assert run(grad_norm=[0.5] * 10 + [3.9] + [0.5] * 5) == []
    assert run(grad_norm=[0.5] * 2 + [60.0]) == []  # nobody knows yet what is usual
    assert run(grad_norm=[0.0] * 10 + [9.0]) == []
    assert run(grad_norm=[0.05] * 10 + [0.9]) == []  # one that is not even clipped does no harm
    assert run(grad_norm=[0.5, 0.0, 0.0, 0.0] * 5 + [3.0]) == []  # what is usual is told by steps that learnt
    assert told(run(grad_norm=[0.5, 0.0, 0.0, 0.0] * 5 + [6.0])) == [("gradient_spike", 21)]


@pytest.mark.parametrize(("success", "word"), [(1.0, "harder"), (0.0, "sft"), (0.5, "resample")])
def test_no_signal(success: float, word: str) -> None:
    (alarm,) = run(advantage__zero_groups=[0.2] * 5 + [0.9] * 8, success__all=[success] * 13)
    assert (alarm.name, alarm.step) == ("no_signal", 10)
    assert alarm.text.startswith("In 90 % of the groups of the last 5 steps all episodes did equally well")
    assert word in alarm.remedy
    assert run(advantage__zero_groups=[0.9, 0.9, 0.9, 0.9, 0.5] * 4, success__all=[0.0] * 20) == []


def test_updates_left_out() -> None:
    alarms = run(update__skipped=[0, 0, 2, 2, 2, 2, 3, 4])
    assert told(alarms) == [("not_finite", 3), ("not_finite", 7)]
    assert (
        alarms[0].text == "2 of the step's updates were left out: loss or gradient was not finite (2 since the start)."
    )


def test_tokens_left_out() -> None:
    assert run(update__dropped_share=[0, 1e-4, 0.005, 0]) == []  # a few do no harm
    (alarm,) = run(update__dropped_share=[0, 0, 0.05, 0])
    assert (alarm.name, alarm.step) == ("not_finite", 3)
    assert alarm.text == "Of 5 % of the step's tokens a log-prob, entropy or advantage was not finite."
    (alarm,) = run(update__dropped_share=[0, 1.0], update__skipped=[0, 2])
    assert "2 of the step's updates were left out: no token was left to learn from (2 since" in alarm.text


def test_an_episode_of_trouble_is_told_once_and_again_after_recovery() -> None:
    calm, spike = [0.5], [8.0]
    assert told(run(grad_norm=calm * 10 + spike * 3)) == [("gradient_spike", 11)]
    soon = calm * 10 + spike + calm * (REARM - 1) + spike
    later = calm * 10 + spike + calm * REARM + spike
    assert told(run(grad_norm=soon)) == [("gradient_spike", 11)]
    assert told(run(grad_norm=later)) == [("gradient_spike", 11), ("gradient_spike", 11 + REARM + 1)]


def test_what_is_missing_or_not_a_number_says_nothing() -> None:
    nothing: list[float | None] = [None, math.nan, math.inf] * 10
    keys = ("entropy__token", "likelihood__valid", "degeneracy__duplication", "mismatch__kl", "grad_norm")
    assert run(**dict.fromkeys(keys, nothing)) == []
    assert Alarms().look(1, {}) == []


def test_events_and_metrics() -> None:
    alarms = Alarms()
    lines: list[dict[str, Any]] = []
    for step, value in enumerate([0.2] * 20 + [0.8] * 10 + [0.2] * 10, 1):
        given_ = alarms.look(step, {"entropy/token": value})
        lines += alarms.events(given_)
        metrics = alarms.metrics(given_)
        assert metrics == {"phase": 0.0} if step < 23 else metrics["phase"] in (1.0, 2.0)
        assert ("alarm/eruption" in metrics) == (step == 23)
    assert [(line["step"], line["kind"], line["name"]) for line in lines] == [
        (23, "phase", "eruption"),
        (23, "alarm", "eruption"),
        (33, "phase", "subsidence"),
    ]
    assert all(set(line) == {"step", "kind", "name", "text", "remedy"} for line in lines)


metrics = st.fixed_dictionaries(
    {},
    optional={
        "entropy/token": st.sampled_from([0.0, 0.0005, 0.1, 0.12, 0.5]),
        "success/all": st.sampled_from([0.0, 0.5, 1.0]),
        "likelihood/valid": st.sampled_from([-0.1, -0.12, -0.9]),
        "degeneracy/duplication": st.sampled_from([0.0, 0.2]),
        "mismatch/kl": st.sampled_from([0.0, 0.1]),
        "grad_norm": st.sampled_from([0.5, 9.0]),
        "advantage/zero_groups": st.sampled_from([0.1, 1.0]),
        "update/skipped": st.sampled_from([0.0, 3.0]),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(metrics, max_size=40), st.integers(0, 40))
def test_a_resumed_run_gives_the_same_alarms(steps: list[dict[str, float]], cut: int) -> None:
    whole = Alarms()
    expected = [alarm for step, values in enumerate(steps) for alarm in whole.look(step, values)]
    first, second = Alarms(), Alarms()
    found = [alarm for step, values in enumerate(steps[:cut]) for alarm in first.look(step, values)]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    found += [alarm for step, values in enumerate(steps[cut:], cut) for alarm in second.look(step, values)]
    assert found == expected
    assert {alarm.name for alarm in found} <= set(NAMES)


def test_a_state_from_before_a_rule_existed_can_be_loaded() -> None:
    state = Alarms().state_dict()
    del state["rules"]["mismatch"], state["calm"]["mismatch"]
    alarms = Alarms()
    alarms.load_state_dict(state)
    assert alarms.look(1, {"mismatch/kl": 1.0}) == []


def recorded(path: Path) -> list[dict[str, Any]]:
    """A recorded run; how likely all responses were stands in for how likely the valid ones were."""
    run_ = json.loads(path.read_text())
    keys = [key for key in run_ if key not in ("about", "steps")]
    lines = [{"step": step} | {key: run_[key][i] for key in keys} for i, step in enumerate(run_["steps"])]
    return [line | {"likelihood/valid": -line["surprisal/response"] / line["response/tokens"]} for line in lines]


@pytest.mark.parametrize("path", sorted(RECORDED.glob("healthy-*.json")), ids=lambda path: path.stem)
def test_healthy_runs_give_no_alarm(path: Path) -> None:
    assert replay(recorded(path))[1] == []


def test_recorded_trouble() -> None:
    found = {
        path.stem: told(replay(recorded(path))[1]) for path in RECORDED.glob("*.json") if "healthy" not in path.stem
    }
    assert [name for name, _ in found["too-fast"]] == ["likelihood_fall", "eruption"]
    assert [name for name, _ in found["fast"]] == ["eruption", "likelihood_fall"]
    assert [name for name, _ in found["erupts"]] == ["eruption", "likelihood_fall", "gradient_spike"]
