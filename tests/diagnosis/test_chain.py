"""The doctor's principles on series made by hand: the chain of the signal, what changed when, what is read, and
evaluations against training. Each has cases in which it speaks and cases, as near as possible, in which it must not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isentrope.core.types import Episode
from isentrope.diagnosis.doctor import Diagnosis, diagnose
from isentrope.diagnosis.played import answered, played
from isentrope.runs.episodes import EpisodeFile, write_episodes
from isentrope.runs.folder import Run
from tests.builders.episodes import episode
from tests.builders.turns import said

STEPS = 30
STILL = [0.4, 0.41] * (STEPS // 2)
SOUND = {
    "valid_ratio": 0.9, "kl/k3": 0.02, "kl/old": 1e-4, "update/count": 2.0, "advantage/zero_groups": 0.1,
    "advantage/std": 3.0, "return/std": 4.0, "grad_norm": 0.6, "lr": 1e-4, "entropy/token": 0.2, "loss/policy": 1e-3,
    "loss/total": 1e-3, "episode/tokens": 300.0, "episode/turns": 14.0,
}  # fmt: skip


def course(success: Sequence[float], settings: dict[str, Any] | None = None, **metrics: Any) -> Run:
    """A run of 8 × 8 episodes a step; a metric is one number, or one for each step (None: not there)."""
    series = SOUND | {key.replace("__", "/"): value for key, value in metrics.items()}
    records: list[dict[str, Any]] = []
    for at, one in enumerate(success):
        row = {key: value[at] if isinstance(value, list) else value for key, value in series.items()}
        known = {key: value for key, value in row.items() if value is not None}
        records.append({"step": at + 1, "kind": "train", "success/all": one} | known)
    config = {"run": {"steps": len(success)}, "rollout": {"groups": 8, "group_size": 8}, "task": {"max_turns": 18}}
    settings = {"learn": {"grad_clip": 1.0, "lr": 1e-4, "kl": 0.01}} | (settings or {})
    return Run(Path("run"), config=config | settings, records=records, about={"parameters": 860_000})


def told(run: Run) -> Diagnosis:
    return diagnose(run)


def first(run: Run) -> str:
    return next((cause.name.removeprefix("cause/") for cause in told(run).causes), "")


def claim(run: Run) -> str:
    return told(run).causes[0].claim


# The chain


def test_a_sound_chain_names_no_link_and_is_told_in_numbers() -> None:
    assert told(course(STILL)).causes == []
    (unknown,) = [one for one in told(course(STILL)).findings if one.name == "stalled/unknown"]
    assert "advantages have a spread of 3, the gradient's norm is 0.2 times that, the clip leaves 100 % of it" in (
        unknown.claim
    )


STANDS = {"kl__k3": 1e-5}
CLIPPED = {"learn": {"grad_clip": 1e-8, "lr": 1e-4, "kl": 0.01}}
LORA = {"policy": {"lora_rank": 16.0, "lora_alpha": 0.02}}
SEAL = {"method": {"seal": {"alpha": 1000.0, "width": 3}}, "methods": ["seal"]}


@pytest.mark.parametrize(
    ("settings", "metrics", "cause"),
    [
        # rewards
        ({}, {"return__std": 0.0, "advantage__std": 0.0, "advantage__zero_groups": 1.0}, "equal_rewards"),
        ({}, {"return__std": [0.0] * 25 + [1.0] * 5, "advantage__zero_groups": 0.95}, "equal_rewards"),
        ({}, {"return__std": [0.0, 4.0] * 15, "advantage__zero_groups": 0.5}, ""),
        # advantages
        ({}, {"advantage__std": 0.0}, "advantages_zero"),
        ({}, {"advantage__learnt": 0.0}, "advantages_zero"),  # a method took them
        ({}, {"advantage__learnt": 2.0}, ""),
        ({}, {"advantage__std": 0.0, "advantage__zero_groups": 0.95, "return__std": 4.0}, "equal_rewards"),  # rightly 0
        # terms
        (SEAL, {"loss__seal": 300.0, "grad_norm": 200.0}, "term"),
        (SEAL, {"loss__seal": 0.07}, ""),
        (SEAL, {"loss__seal": 300.0}, ""),  # a large number without a gradient
        ({}, {"loss__mine": -300.0, "grad_norm": 200.0}, "term"),
        # tokens
        ({}, STANDS | {"update__tokens": 0.05}, "tokens"),
        ({}, STANDS | {"grad_norm": 1e-4}, "tokens"),
        ({}, STANDS | {"grad_norm": 1e-4, "advantage__std": 2e-3}, "frozen"),  # as the advantages
        ({}, {"update__tokens": 0.05}, ""),  # it moves
        (LORA, STANDS | {"grad_norm": 5e-5}, "adapters"),
        ({"policy": {"lora_rank": 16.0, "lora_alpha": 32.0}}, STANDS | {"grad_norm": 5e-5}, "tokens"),
        # clip
        (CLIPPED, STANDS, "clipped_away"),
        ({"learn": {"grad_clip": 0.1, "lr": 1e-4, "kl": 0.01}}, {}, ""),
        ({"learn": {"grad_clip": 1e-4, "lr": 1e-4, "kl": 0.01}}, STANDS, "frozen"),  # AdamW makes that up
        # updates
        ({"critic": {"warmup": 27}}, {"grad_norm": [None] * 27 + [0.6] * 3, "kl__k3": None}, "not_updated"),
        ({"critic": {"warmup": 3}}, {"grad_norm": [None] * 3 + [0.6] * 27}, ""),
    ],
)  # fmt: skip
def test_the_first_link_that_lets_nothing_through(settings: Any, metrics: Any, cause: str) -> None:
    assert first(course(STILL, settings, **metrics)) == cause


def test_steps_without_a_win_have_equal_rewards_rightly() -> None:
    rare = [0.15 if step % 5 == 0 else 0.0 for step in range(STEPS)]
    spread = [2.0 if step % 5 == 0 else 0.0 for step in range(STEPS)]
    assert first(course(rare, return__std=spread)) == ""
    assert first(course(rare, return__std=0.0, advantage__zero_groups=1.0)) == "equal_rewards"


def test_nothing_of_it_is_named_in_a_run_that_learns() -> None:
    rising = [0.2 + 0.02 * step for step in range(STEPS)]
    for settings, metrics in ((SEAL, {"loss__seal": 300.0, "grad_norm": 200.0}), (CLIPPED, STANDS), ({}, {})):
        assert told(course(rising, settings, **metrics)).causes == []


def test_claims_have_their_numbers() -> None:
    words = claim(course(STILL, SEAL, loss__seal=300.0, grad_norm=200.0))
    assert "loss/seal is 300" in words
    assert "method.seal.alpha is 1000" in words
    assert "width" not in words
    growing = [0.01 * 3.0**step for step in range(STEPS)]
    words = claim(course(STILL, loss__my_kl=300.0, my_kl__weight=growing, grad_norm=200.0))
    assert "my_kl/weight grew from 0.01 to 6.9e+11" in words
    assert "It holds the policy at its reference." in words
    assert "policy.lora_alpha=32 (it is 0.02)" in told(course(STILL, LORA, **STANDS, grad_norm=5e-5)).remedies
    words = claim(course(STILL, {"critic": {"warmup": 27}}, grad_norm=[None] * 27 + [0.6] * 3, kl__k3=None))
    assert "updated in 3 of 30 steps" in words
    assert "(critic.warmup is 27)" in words


def test_a_warning_of_the_rate_is_not_repeated_where_something_else_holds_the_policy() -> None:
    run = course(STILL, CLIPPED, **STANDS)
    run.events.append({"step": 10, "kind": "warning", "name": "rate_low", "text": "it hardly moves", "remedy": "more"})
    assert [one.name for one in told(run).findings if one.name.startswith("warning/")] == []


# What changed when


def fallen(at: int = 14, before: float = 0.55, after: float = 0.0) -> list[float]:
    """Success that falls at a step."""
    wave = [0.02 * (-1) ** step for step in range(STEPS)]
    return [max(0.0, (before if step < at else after) + wave[step] * (step < at or after > 0)) for step in range(STEPS)]


def test_a_fall_at_one_step_that_the_policy_does_not_explain() -> None:
    (cause,) = told(course(fallen())).causes
    assert (cause.name, cause.steps) == ("cause/world_changed", (15,))
    assert cause.claim.startswith(
        "The task changed at step 15, not the policy: within a step success fell from 54 % to 0 %"
    )
    assert first(course(fallen(after=0.1))) == "world_changed"


def jump(low: float, high: float, at: int = 14) -> list[float]:
    return [low if step < at else high for step in range(STEPS)]


@pytest.mark.parametrize(
    "metrics",
    [
        {"kl__old": [1e-4] * 13 + [0.1] + [1e-4] * 16},  # one step took it far
        {"kl__k3": jump(0.02, 0.3)},
        {"entropy__token": jump(0.2, 0.9)},
        {"valid_ratio": jump(0.9, 0.2)},  # it forgot the form
        {"temperature__mean": jump(1.0, 1.6)},
    ],
)
def test_a_fall_that_the_policy_explains(metrics: Any) -> None:
    assert first(course(fallen(), **metrics)) != "world_changed"


def test_a_slope_is_no_break() -> None:
    slope = [float(value) for value in np.interp(range(STEPS), [0, 8, 20, STEPS], [0.55, 0.55, 0.0, 0.0])]
    assert first(course(slope)) != "world_changed"
    assert first(course([0.55] * 14 + [0.0] * 3 + [0.5] * 13)) != "world_changed"  # it came back
    assert first(course([0.55] * 14 + [0.0] * 13 + [0.55] * 3)) != "world_changed"
    assert first(course([0.55] * 12 + [0.44, 0.33, 0.22, 0.11] + [0.0] * 14)) != "world_changed"
    assert first(course(STILL)) == ""


def test_kinds_of_actions_that_are_refused_from_then_on() -> None:
    run = course(fallen(), accepted__move=jump(0.95, 0.0), accepted__go=0.9, valid_ratio=jump(0.95, 0.7))
    assert "refuses actions that it took before: move from 95 % to 0 % of them are accepted" in claim(run)


def test_a_limit_of_a_worlds_texts_is_a_possible_cause_where_actions_are_known(tmp_path: Path) -> None:
    (cause,) = told(stored(course(STILL), walks(cut=40), tmp_path)).causes
    assert cause.evidence["strength"] == 0.6
    (cause,) = told(stored(course(STILL, valid_ratio=0.1), walks(cut=40), tmp_path)).causes
    assert cause.evidence["strength"] == 0.96


# What stored episodes show


def stored(run: Run, episodes: list[Episode], folder: Path, step: int = 30, split: str | None = None) -> Run:
    path = folder / f"{split or 'train'}.parquet"
    write_episodes(path, episodes)
    files = [*run.episode_files, EpisodeFile(path, step, "eval" if split else "train", split)]
    return Run(run.path, config=run.config, records=run.records, episode_files=files, about=run.about)


PLACES = [f"{what} {number}" for what in ("drawer", "shelf", "table", "cabinet", "fridge") for number in range(1, 9)]


def walk(member: int, lag: int = 0, cut: int = 1000, nats: float = 20.0, group: int = 0, **more: Any) -> Episode:
    """An episode that goes to ten places; each observation names the place of `lag` actions before the last one."""
    rng, turns = np.random.default_rng([group, member]), list[Any]()
    visits = [PLACES[place] for place in rng.permutation(len(PLACES))[:10]]
    for at, place in enumerate(visits):
        shown = visits[at - 1 - lag] if at > lag else "the room"
        text = f"You arrive at {shown}. On it you see {'a thing, ' * int(rng.integers(1, 30))}and nothing else."[:cut]
        ids = [int(word) for word in rng.integers(0, 50, 4)]
        turns.append(said(ids, observation=text, action=f"go to {place}", logprobs=np.full(4, -nats / 40, np.float32)))
    return episode(*turns, group=group, member=member, stop="turn_limit", **more)


def walks(**more: Any) -> list[Episode]:
    return [walk(member, group=group, **more) for group in range(4) for member in range(4)]


@pytest.mark.parametrize(("lag", "at_once", "late"), [(0, 1.0, 0.0), (1, 0.0, 1.0)])
def test_what_an_observation_answers(lag: int, at_once: float, late: float) -> None:
    now, later, actions = answered(walks(lag=lag))
    assert (now, later) == pytest.approx((at_once, late), abs=0.12)  # words of one place are in others
    assert actions > 100


@pytest.mark.parametrize(
    ("episodes", "cause"),
    [
        (walks, ""),
        (lambda: walks(lag=1), "observations_late"),
        (lambda: walks(cut=40), "observations_cut"),
        (lambda: [walk(0, group=group) for group in range(4) for _ in range(4)], "repeated_samples"),
        (lambda: [walk(0, group=group, nats=0.1) for group in range(4) for _ in range(4)], ""),  # hardly open
    ],
)
def test_what_is_read_and_said(episodes: Callable[[], list[Episode]], cause: str, tmp_path: Path) -> None:
    assert first(stored(course(STILL), episodes(), tmp_path)) == cause
    rising = [0.2 + 0.02 * step for step in range(STEPS)]
    assert first(stored(course(rising), episodes(), tmp_path)) == ""


def test_groups_that_repeat_as_the_run_counted_them() -> None:
    assert first(course(STILL, episode__same=1.0, advantage__zero_groups=1.0)) == "repeated_samples"
    assert first(course(STILL, episode__same=0.1)) == ""


def moves(accepted: int, listed: bool) -> list[Episode]:
    plain = walks()
    more = [
        said([1], action="move it", verdict="ok" if at < accepted else "inadmissible", admissible=("move it",) * listed)
        for at in range(12)
    ]
    return [*plain, episode(*more, group=9)]


@pytest.mark.parametrize(("accepted", "listed", "cause"), [(0, True, "world_refuses"), (0, False, ""), (6, True, "")])
def test_a_world_that_refuses_what_it_lists(accepted: int, listed: bool, cause: str, tmp_path: Path) -> None:
    assert first(stored(course(STILL), moves(accepted, listed), tmp_path)) == cause


def test_what_the_world_still_takes_after_it_changed(tmp_path: Path) -> None:
    assert "Every kind of action is still accepted (go)" in claim(stored(course(fallen()), walks(), tmp_path))
    assert "of 12 that begin with move none was accepted" in claim(stored(course(fallen()), moves(0, True), tmp_path))


def test_nothing_is_told_of_no_episodes() -> None:
    assert played([]).turns == 0
    assert played([episode()]).episodes == 1
    assert answered([episode(said([1], action="go"))]) == (0.0, 0.0, 0)


def test_one_log_prob_for_all() -> None:
    def spoken(logprob: float) -> list[Episode]:
        return [episode(said([1] * 50, logprobs=np.full(50, logprob, np.float32))) for _ in range(3)]

    assert played(spoken(-5.0)).one_logprob == -5.0
    assert played(spoken(0.0)).one_logprob is None  # as sure as can be
    assert played(walks()).one_logprob is not None  # made so


# Evaluation against training

RISING = [0.3 + 0.01 * step for step in range(STEPS)]


def judged(
    success: float, turns: float, thoughts: float | None = None, first: float | None = None, games: float = 100.0
) -> Run:
    run = course(RISING, response__thoughts=0.99, episode__turns=12.0)
    for step, value in ((0, success if first is None else first), (30, success)):
        record = {"eval/unseen/success": value, "eval/unseen/games": games, "eval/unseen/turns": turns}
        record |= {} if thoughts is None else {"eval/unseen/thoughts": thoughts}
        run.records.append({"step": step, "kind": "eval"} | record)
    return run


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (judged(0.02, 17.8, 0.0), "evaluation_form"),
        (judged(0.1, 4.9, 0.99), "evaluation_cut"),
        (judged(0.1, 16.0, 0.99), ""),  # far below, and alike in what is compared
        (judged(0.5, 4.9, 0.0), ""),  # no worse than training
        (judged(0.48, 4.9, 0.0, games=9000.0), ""),  # a little worse
        (judged(0.35, 4.9, 0.0, first=0.1), ""),  # it rises
    ],
)
def test_evaluations_that_play_something_else(run: Run, cause: str) -> None:
    assert first(run) == cause


def test_evaluations_by_their_stored_episodes(tmp_path: Path) -> None:
    run = judged(0.1, 16.0)
    short = [episode(*one.turns[:4], split="unseen", stop="truncated") for one in walks()]
    run = stored(stored(run, walks(), tmp_path), short, tmp_path, split="unseen")
    assert first(run) == "evaluation_cut"
    assert "they end after four turns at the latest, 90 % of them unsolved" in claim(run)
