"""The metrics against naive loops, and against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.stats import wilson
from isentrope.core.types import FAILURES, Episode, Turn
from isentrope.metrics.episodes import eval_metrics, rollout_metrics
from isentrope.metrics.glossary import sentence
from tests.builders.episodes import episode
from tests.builders.turns import turn

HAND = [
    episode(
        turn([1, 2, 3, 4], [-1, -2, -3, -4], think_span=(1, 2), action_span=(3, 4), reward=0.5),
        turn([5, 7], [-1, -1], continues=True, verdict="no_action", reward=-0.1, dropped=3),
        success=True,
    ),
    episode(turn([9], [-0.5]), kind="cool", stop="time_limit"),
]
BY_HAND = {
    "return/mean": 0.2, "return/std": 0.2, "success/all": 0.5, "success/heat": 1.0, "success/cool": 0.0,
    "episode/turns": 1.5, "episode/tokens": 3.5, "response/tokens": 7 / 3, "response/outcome/solved": 3.0,
    "response/think_tokens": 1.0, "response/thoughts": 1 / 3, "observation/characters": 0.0,
    "response/action_tokens": 1.0, "context/tokens": (2 + 8 + 2) / 3,
    "context/dropped": 1.0, "context/shortened": 1 / 3, "valid_ratio": 2 / 3,
    "verdict/no_action": 1 / 3, "stop/terminated": 0.5, "stop/time_limit": 0.5, "failures": 1.0,
    "failures/time_limit": 1.0,
    "entropy/token": 31 / 7, "entropy/think": 2.0, "entropy/action": 4.0, "entropy/other": 25 / 5,
    "entropy/concentration": 12 / 31,
    "entropy/response": (2.5 + 6 + 9) / 3, "entropy/turn": (4.25 + 9) / 2, "entropy/episode": (22 / 6 + 9) / 2,
    "entropy/first10": (22 / 6 + 9) / 2, "entropy/last10": (22 / 6 + 9) / 2, "surprisal/response": 12.5 / 3,
    "entropy/turns/1": (2.5 + 9) / 2, "entropy/turns/2": 6.0, "entropy/kind/heat": 22 / 6, "entropy/kind/cool": 9.0,
    "entropy/outcome/solved": 22 / 6, "surprisal/token": 12.5 / 7, "surprisal/relative": (12.5 - 31) / 7,
    "likelihood/valid": -10.5 / 5, "likelihood/solved": -12 / 6, "temperature/mean": 1.0, "temperature/not_one": 0.0,
}  # fmt: skip


def test_by_hand() -> None:
    assert rollout_metrics(HAND) == pytest.approx(BY_HAND)


def test_what_is_accepted_by_the_first_word() -> None:
    moves = [turn([1.0], action="move it", verdict="ok" if at < 2 else "inadmissible") for at in range(8)]
    rare = [turn([1.0], action="look"), turn([1.0], action="<move it"), turn([1.0], action="m" * 30)]
    found = rollout_metrics([episode(*moves, *rare)])
    assert {key: value for key, value in found.items() if key.startswith("accepted/")} == {"accepted/move": 0.25}
    many = [turn([1.0], action="go there") for _ in range(400)]
    assert "accepted/move" not in rollout_metrics([episode(*moves[:7], *many)])  # under 2 % of them
    sentence("accepted/move")


def test_groups_whose_episodes_are_one_and_the_same() -> None:
    def spoken(word: int, group: int, **more: object) -> Episode:
        return episode(
            turn([1.0], response_ids=np.array([word], dtype=np.int32), observation="four"), group=group, **more
        )

    same = [spoken(1, 0), spoken(1, 0)]
    found = rollout_metrics([*same, spoken(1, 1), spoken(2, 1), spoken(1, 2)])  # one alone is no group
    assert (found["episode/same"], found["observation/characters"]) == (0.5, 4.0)
    assert rollout_metrics([*same, spoken(9, 0, stop="task_error")])["episode/same"] == 1.0  # broken ones say nothing
    assert "episode/same" not in rollout_metrics(same[:1])


def test_lengths_by_outcome() -> None:
    lost = episode(turn([1, 1, 1]), turn([1]), stop="turn_limit")
    found = rollout_metrics([*HAND, lost])  # the one of HAND that broke is neither
    assert (found["response/outcome/solved"], found["response/outcome/failed"]) == (3.0, 2.0)


def test_where_a_few_responses_hold_the_entropy() -> None:
    calm = [turn([0.1] * 10) for _ in range(40)]
    assert rollout_metrics([episode(*calm)])["entropy/concentration"] == pytest.approx(0.05)
    noisy = [turn([0.1] * 10 + [5.0] * 19), *calm[1:]]  # 96 nats in one of 40 responses: two are a twentieth
    assert rollout_metrics([episode(*noisy)])["entropy/concentration"] == pytest.approx((96 + 1) / (96 + 39))
    assert "entropy/concentration" not in rollout_metrics([episode(turn([0.0, 0.0]))])


def test_what_an_engine_could_not_tell_is_left_out() -> None:
    unknown = turn([math.nan] * 3, [math.nan] * 3, think_span=(0, 1))
    found = rollout_metrics([episode(unknown)])
    assert not any(math.isnan(value) for value in found.values())
    assert not any(key.startswith(("entropy/", "surprisal/")) for key in found)
    assert found["response/tokens"] == 3
    some = rollout_metrics([episode(unknown, turn([1.0, math.nan, 3.0], [-1.0, math.nan, -1.0])), episode(turn([4.0]))])
    assert some["entropy/token"] == pytest.approx(8 / 3)
    assert some["entropy/response"] == some["entropy/turn"] == some["entropy/first10"] == pytest.approx(3.0)
    assert some["entropy/concentration"] == pytest.approx(0.5)  # 4 of 8 nats; what is not known counts nothing
    assert some["surprisal/response"] == pytest.approx(1.0)  # of the one response that is known whole
    assert "entropy/think" not in some


def test_first_and_last_ten_of_a_long_episode() -> None:
    found = rollout_metrics([episode(turn([0.0] * 8), turn([1.0] * 4 + [3.0] * 8))])
    assert found["entropy/first10"] == pytest.approx(0.2)
    assert found["entropy/last10"] == pytest.approx(2.6)


def test_nothing_gives_no_key() -> None:
    assert rollout_metrics([]) == {}
    assert eval_metrics("unseen", []) == {}
    no_turns = rollout_metrics([episode(stop="task_error")])
    assert no_turns == {
        "return/mean": 0.0, "return/std": 0.0, "success/heat": 0.0, "success/all": 0.0, "stop/task_error": 1.0,
        "failures": 1.0, "failures/task_error": 1.0, "episode/turns": 0.0, "episode/tokens": 0.0,
    }  # fmt: skip
    silent = rollout_metrics([episode(turn([]))])
    assert silent["response/tokens"] == 0.0
    assert not [key for key in silent if key.startswith(("entropy/", "surprisal/"))]


def test_names_from_a_task_become_one_part_of_a_key() -> None:
    found = rollout_metrics([episode(kind="pick / two\n"), episode(kind=""), episode(kind="all", success=True)])
    assert {"success/pick_two", "success/unnamed"} <= set(found)
    assert found["success/all"] == pytest.approx(1 / 3)


def tokens_of(one: Episode) -> list[float]:
    return [float(value) for each in one.turns for value in each.entropies]


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def part(episodes: list[Episode], name: str) -> list[float]:
    values: list[float] = []
    for one in episodes:
        for each in one.turns:
            for position, value in enumerate(each.entropies):
                think = each.think_span is not None and each.think_span[0] <= position < each.think_span[1]
                action = each.action_span is not None and each.action_span[0] <= position < each.action_span[1]
                if {"think": think, "action": action, "other": not think and not action}[name]:
                    values.append(float(value))
    return values


def turn_level(episodes: list[Episode]) -> float | None:
    levels: list[float] = []
    for one in episodes:
        means = [sum(each.entropies.tolist()) / len(each.entropies) for each in one.turns if len(each.entropies)]
        if means:
            levels.append(sum(means) / len(means))
    return mean(levels)


def over(values: Callable[[Episode], list[float]]) -> Callable[[list[Episode]], float | None]:
    """Mean over episodes of a mean; episodes without values are left out."""

    def naive(episodes: list[Episode]) -> float | None:
        found = [values(one) for one in episodes]
        return mean([sum(each) / len(each) for each in found if each])

    return naive


def over_turns(value: Callable[[Turn], float | None]) -> Callable[[list[Episode]], float | None]:
    def naive(episodes: list[Episode]) -> float | None:
        found = [value(each) for one in episodes for each in one.turns]
        return mean([each for each in found if each is not None])

    return naive


def contexts(episodes: list[Episode]) -> float | None:
    lengths: list[float] = []
    for one in episodes:
        row = 0
        for each in one.turns:
            row = row + len(each.context_ids) if each.continues else len(each.context_ids)
            lengths.append(row)
            row += len(each.response_ids)
    return mean(lengths)


def spread(episodes: list[Episode]) -> float:
    returns = [sum(each.reward for each in one.turns) for one in episodes]
    centre = sum(returns) / len(returns)
    return math.sqrt(sum((value - centre) ** 2 for value in returns) / len(returns))


def concentrated(episodes: list[Episode]) -> float | None:
    sums = sorted((sum(each.entropies.tolist()) for one in episodes for each in one.turns), reverse=True)
    spoken = sum(len(each.response_ids) > 0 for one in episodes for each in one.turns)
    return sum(sums[: math.ceil(spoken / 20)]) / sum(sums) if sum(sums) > 0 else None


def tokens_where(ended: Callable[[Episode], bool]) -> Callable[[list[Episode]], float | None]:
    return lambda all: mean([float(len(each.response_ids)) for one in all if ended(one) for each in one.turns])


def length(span: tuple[int, int] | None) -> float | None:
    return None if span is None else span[1] - span[0]


NAIVE: dict[str, Callable[[list[Episode]], float | None]] = {
    "return/mean": lambda all: mean([sum(each.reward for each in one.turns) for one in all]),
    "return/std": spread,
    "success/all": lambda all: mean([float(one.success) for one in all]),
    "success/heat": lambda all: mean([float(one.success) for one in all if one.kind == "heat"]),
    "episode/turns": lambda all: mean([float(len(one.turns)) for one in all]),
    "episode/tokens": lambda all: mean([float(len(tokens_of(one))) for one in all]),
    "response/tokens": over_turns(lambda each: float(len(each.response_ids))),
    "response/outcome/solved": tokens_where(lambda one: one.success),
    "response/outcome/failed": tokens_where(lambda one: not one.success and one.stop not in FAILURES),
    "response/think_tokens": over_turns(lambda each: length(each.think_span)),
    "response/action_tokens": over_turns(lambda each: length(each.action_span)),
    "context/tokens": contexts,
    "valid_ratio": over_turns(lambda each: float(each.verdict == "ok")),
    "entropy/token": lambda all: mean([value for one in all for value in tokens_of(one)]),
    "entropy/think": lambda all: mean(part(all, "think")),
    "entropy/action": lambda all: mean(part(all, "action")),
    "entropy/other": lambda all: mean(part(all, "other")),
    "entropy/response": over_turns(lambda each: mean(each.entropies.tolist())),
    "entropy/concentration": concentrated,
    "entropy/turn": turn_level,
    "entropy/episode": over(tokens_of),
    "entropy/first10": over(lambda one: tokens_of(one)[:10]),
    "entropy/last10": over(lambda one: tokens_of(one)[-10:]),
    "surprisal/response": over_turns(lambda each: -sum(each.logprobs.tolist()) if len(each.logprobs) else None),
}


@st.composite
def some_turns(draw: st.DrawFn) -> Turn:
    entropies = draw(st.lists(st.floats(0, 8, width=32), max_size=14))
    cuts = sorted(draw(st.lists(st.integers(0, len(entropies)), min_size=4, max_size=4)))
    return turn(
        entropies,
        [-value for value in entropies],
        think_span=draw(st.sampled_from([None, (cuts[0], cuts[1])])),
        action_span=draw(st.sampled_from([None, (cuts[2], cuts[3])])),
        verdict=draw(st.sampled_from(["ok", "no_action", "bad_tags"])),
        reward=draw(st.floats(-1, 10)),
        continues=draw(st.booleans()),
    )


some_episodes = st.builds(
    lambda turns, kind, success, stop: episode(*turns, kind=kind, success=success, stop=stop),
    st.lists(some_turns(), max_size=4), st.sampled_from(["heat", "cool"]), st.booleans(),
    st.sampled_from(["terminated", "truncated", "turn_limit", "context_limit", "clock", *FAILURES]),
)  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(st.lists(some_episodes, min_size=1, max_size=5))
def test_against_naive_loops(episodes: list[Episode]) -> None:
    found = rollout_metrics(episodes)
    for key, naive in NAIVE.items():
        expected = naive(episodes)
        assert (key in found) == (expected is not None), key
        if expected is not None:
            assert found[key] == pytest.approx(expected, rel=1e-5, abs=1e-6), key
    for group, total in (("stop/", 1.0), ("verdict/", 1 - found.get("valid_ratio", 1.0))):
        assert sum(value for key, value in found.items() if key.startswith(group)) == pytest.approx(total)
    assert all(math.isfinite(value) for value in found.values())
    for key in found:
        sentence(key)


def test_failures_and_what_was_mended_are_counted_by_kind() -> None:
    episodes = [
        episode(turn([1.0], mended="text_cut encoding"), turn([1.0], mended="text_cut"), stop="worker_died"),
        *(episode(turn([1.0]), stop=stop) for stop in ("garbage", "garbage", "engine_error", "terminated")),
    ]
    found = rollout_metrics(episodes)
    counted = {key: value for key, value in found.items() if key.startswith(("failures", "mended"))}
    assert counted == {
        "failures": 4.0, "failures/worker_died": 1.0, "failures/garbage": 2.0, "failures/engine_error": 1.0,
        "mended/text_cut": 2.0, "mended/encoding": 1.0,
    }  # fmt: skip
    assert eval_metrics("seen", episodes)["eval/seen/failures/garbage"] == 2.0
    for key in found:
        sentence(key)


def test_eval_by_hand() -> None:
    found = eval_metrics("unseen", HAND)
    ends = wilson(1, 2)
    assert found == pytest.approx(
        {
            "eval/unseen/success": 0.5, "eval/unseen/success/heat": 1.0, "eval/unseen/success/cool": 0.0,
            "eval/unseen/low": ends.low, "eval/unseen/high": ends.high,
            "eval/unseen/games": 2.0, "eval/unseen/return": 0.2,
            "eval/unseen/turns": 1.5, "eval/unseen/valid_ratio": 2 / 3, "eval/unseen/thoughts": 1 / 3,
            "eval/unseen/games/heat": 1.0, "eval/unseen/games/cool": 1.0, "eval/unseen/failures": 1.0,
            "eval/unseen/failures/time_limit": 1.0,
        }
    )  # fmt: skip
    for key in found:
        sentence(key)
