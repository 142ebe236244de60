"""What the doctor makes of warnings that a run recorded, and of credit that does not reach or does not follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isentrope.core.types import Scores
from isentrope.diagnosis.doctor import Diagnosis, diagnose
from isentrope.runs.episodes import write_episodes, write_scores
from isentrope.runs.folder import Run
from isentrope.runs.layout import CONFIG, METRICS, WARMUP, scores_path, train_path
from tests.builders.episodes import episode
from tests.builders.turns import said

FLAT = {"valid_ratio": 0.9, "kl/k3": 0.02, "update/count": 2.0, "advantage/zero_groups": 0.1}


def course(
    success: list[float], *warnings: Mapping[str, Any], settings: Mapping[str, Any] | None = None, **metrics: float
) -> Run:
    """A run of 8 × 8 episodes a step."""
    more = FLAT | {key.replace("__", "/"): value for key, value in metrics.items()}
    records = [{"step": i + 1, "kind": "train", "success/all": one} | more for i, one in enumerate(success)]
    events = [{"step": 0, "kind": "warning", "text": "it was said", "remedy": "this"} | one for one in warnings]
    config = {"run": {"steps": len(success)}, "rollout": {"groups": 8, "group_size": 8}, **(settings or {})}
    return Run(Path("run"), config=config, records=records, events=events, about={"parameters": 860_000})


def first(run: Run) -> str:
    return next((finding.name for finding in diagnose(run).causes), "")


def finding(diagnosis: Diagnosis, name: str) -> Any:
    return next((one for one in diagnosis.findings if one.name == name), None)


STILL = [0.4, 0.41] * 15


def test_a_run_too_short_to_show_its_rate() -> None:
    assert first(course([0.3] * 3)) == ""
    told = diagnose(course([0.3] * 3, {"name": "rate_low"}, settings={"learn": {"lr": 1e-8}}, kl__k3=1e-9))
    assert told.causes[0].name == "cause/rate_low"
    assert told.causes[0].claim == "The learning rate is too low, as the run warned before its first step: it was said."
    assert told.causes[0].remedy == ("a larger learn.lr (0.0001)",)
    assert first(course([0.3] * 3, {"name": "rate_high", "step": 2})) == "cause/rate_high"
    assert first(course([0.3] * 3, {"name": "rate_low"}, kl__k3=0.01)) == ""  # it moves all the same


def test_games_counted_by_the_run_itself() -> None:
    repeats = {"name": "same_games", "step": 3, "games": 2.0, "groups": 24.0}
    assert first(course(STILL)) == ""
    (cause,) = diagnose(course(STILL, repeats)).causes
    assert cause.claim.startswith(
        "Training plays the same games again and again: two different games in the 24 groups of its first 3 steps."
    )
    assert first(course(STILL, repeats | {"games": 12.0})) == ""


@pytest.mark.parametrize("value", ["many", None, [1], float("nan"), -1.0])
def test_an_event_may_say_anything(value: Any) -> None:
    names = ("same_games", "turn_limit", "rate_low", "form")
    odd = [{"name": name, "games": value, "groups": value, "text": value, "remedy": value} for name in names]
    settings = {"task": {"max_turns": 10}, "rollout": {"groups": 8, "group_size": 8, "temperature": 1e-300}}
    run = course(STILL, *odd, settings=settings, valid_ratio=0.05, mismatch__kl=1e-4)
    assert diagnose(run).words()


def test_a_limit_of_turns_that_the_expert_does_not_keep() -> None:
    short, limit = {"name": "turn_limit", "remedy": "--set task.max_turns=24"}, {"task": {"max_turns": 10}}
    told = diagnose(course(STILL, short, settings=limit, stop__turn_limit=0.7))
    assert told.causes[0].name == "cause/turn_limit"
    assert told.causes[0].remedy[0] == "task.max_turns=24"
    assert first(course(STILL, settings=limit, stop__turn_limit=0.7)) == ""
    assert first(course(STILL, short, settings=limit, stop__turn_limit=0.3)) == ""  # most come to an end
    rising = [0.2 + 0.02 * step for step in range(30)]
    assert first(course(rising, short, settings=limit, stop__turn_limit=0.7)) == ""


@pytest.mark.parametrize(("limit", "cut", "cause"), [(6, 0.85, "cause/turn_limit"), (6, 0.7, ""), (12, 0.85, "")])
def test_a_short_limit_without_such_a_warning(limit: int, cut: float, cause: str) -> None:
    assert first(course(STILL, settings={"task": {"max_turns": limit}}, stop__turn_limit=cut)) == cause


def test_a_form_that_was_not_taught() -> None:
    assert first(course(STILL, {"name": "form"}, valid_ratio=0.05)) == "cause/form"
    assert first(course(STILL, valid_ratio=0.05)) == "cause/invalid"
    rising = [0.2 + 0.02 * step for step in range(30)]
    assert first(course(rising, {"name": "form"})) == ""


def test_a_form_told_by_the_warm_up_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / WARMUP).mkdir()
    (tmp_path / WARMUP / METRICS).touch()
    (tmp_path / WARMUP / CONFIG).write_text('[agent]\norder = "think_act"\ncontext = "full"\n')
    run = course(STILL, valid_ratio=0.05, settings={"agent": {"context": "window"}})
    told = diagnose(Run(tmp_path, config=run.config, records=run.records))
    assert "agent.context is window, and the model was taught full" in told.causes[0].claim


def test_a_warning_that_no_cause_tells_is_a_finding_of_its_own() -> None:
    told = diagnose(course(STILL, {"name": "answers", "step": 1}))
    assert finding(told, "warning/answers").claim == "At step 1 the run warned: it was said."
    assert finding(told, "warning/answers").remedy == ("this",)
    rising = diagnose(course([0.2 + 0.02 * step for step in range(30)], {"name": "rate_high"}))
    assert (finding(rising, "warning/rate_high").severity, rising.remedies) == ("note", [])
    assert finding(diagnose(course([0.3] * 3, {"name": "rate_low"})), "warning/rate_low") is not None  # it moved


def test_a_rate_far_too_high_is_the_first_remedy() -> None:
    sinking = [0.9 - 0.02 * step for step in range(30)]
    spikes = course(sinking, settings={"learn": {"lr": 2e-3}}, degeneracy__duplication=0.0)
    for at, record in enumerate(spikes.records):
        record["degeneracy/duplication"] = 0.0 if at < 10 else 0.3
    alarm = finding(diagnose(spikes), "alarm/duplication")
    assert alarm.remedy[0] == "a smaller learning rate (learn.lr is 0.002)"


@pytest.mark.parametrize(
    ("kind", "factor", "tokens", "turns", "cause"),
    [
        ("gae", 0.9, 200.0, 15.0, "cause/discount"),
        ("gae", 0.9, 40.0, 15.0, ""),  # it reaches the middle
        ("gae", 0.99, 200.0, 15.0, ""),
        ("gae", 1.0, 200.0, 15.0, ""),
        ("gigpo", 0.9, 200.0, 15.0, ""),  # a turn
        ("gigpo", 0.5, 200.0, 15.0, "cause/discount"),
    ],
)
def test_a_reward_that_does_not_reach(kind: str, factor: float, tokens: float, turns: float, cause: str) -> None:
    settings = {"learn": {"advantage": {"kind": kind, "discount": factor}}}
    run = course(STILL, settings=settings, episode__tokens=tokens, episode__turns=turns)
    assert first(run) == cause
    rising = [0.2 + 0.02 * step for step in range(30)]
    assert first(course(rising, settings=settings, episode__tokens=tokens, episode__turns=turns)) == ""


def stored(folder: Path, advantage_of: Any, groups: int = 8) -> Run:
    """A run with one stored step: in each group four episodes are won and four are not."""
    played = [
        episode(said([1, 2], reward=10.0 * won), said([3]), index=g, group=g, member=m, success=bool(won))
        for g in range(groups)
        for m in range(8)
        for won in [float((m + g) % 2)]
    ]
    write_episodes(train_path(folder, 5), played)
    places = np.repeat(np.arange(len(played)), 2)
    values = np.array([advantage_of(played, place) for place in range(len(played))], dtype=np.float32)
    turns, lengths = np.tile([0, 1], len(played)), np.tile([2, 1], len(played))
    advantage_N = np.repeat(values, 3)
    write_scores(scores_path(folder, 5), Scores(places, turns, lengths, advantage_N, np.ones_like(advantage_N)))
    return Run.open(folder)


@pytest.mark.parametrize(
    ("advantage_of", "cause"),
    [
        (lambda played, place: played[place].ret - 5, ""),
        (lambda played, place: (place % 7) / 7 - 0.5 + 0.2 * played[place].ret, ""),  # noisy, but it follows
        (lambda played, place: 5 - played[place].ret, "cause/advantages"),
        (lambda played, place: played[place - 1].ret - 5, "cause/advantages"),  # of the episode before
        (lambda played, place: float((place * 7919) % 13) - 6, "cause/advantages"),
        (lambda played, place: 0.0, ""),  # none at all is another matter
    ],
)
def test_advantages_that_do_not_follow_the_returns(advantage_of: Any, cause: str, tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    run = stored(tmp_path, advantage_of)
    flat = course(STILL)
    run = Run(tmp_path, config=flat.config, records=flat.records, episode_files=run.episode_files)
    assert first(run) == cause


def test_few_episodes_tell_nothing_of_advantages(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    run = stored(tmp_path, lambda played, place: 5 - played[place].ret, groups=3)
    flat = course(STILL)
    assert first(Run(tmp_path, config=flat.config, records=flat.records, episode_files=run.episode_files)) == ""


def test_the_mean_advantage_of_an_episode(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    played = [episode(said([1, 2]), said([3])), episode(said([4]), member=1)]
    write_episodes(train_path(tmp_path, 1), played)
    scores = Scores(np.array([0, 0]), np.array([0, 1]), np.array([2, 1]), np.array([1, 2, 6], np.float32), np.ones(3))
    write_scores(scores_path(tmp_path, 1), scores)
    assert Run.open(tmp_path).advantages(1, played) == {0: 3.0}  # the second was not learnt from
