"""Entropy by turn, kind and outcome, surprisal and likelihood: by hand, against plain loops, and at the edges."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode
from isentrope.learning.tokens import step_tokens
from isentrope.metrics.entropy import FROM_TURN, entropy_metrics, likelihood_metrics, surprisal_metrics
from isentrope.metrics.episodes import rollout_metrics
from tests.builders.episodes import episode, episodes
from tests.builders.turns import turn
from tests.metrics import naive


def test_turns_fall_into_buckets_that_double() -> None:
    long = episode(*(turn([float(number)]) for number in range(1, 41)))
    found = entropy_metrics(step_tokens([long]))
    means = {1: 1, 2: 2.5, 4: 5.5, 8: 11.5, 16: 23.5, 32: 36}
    assert {key: found[f"entropy/turns/{key}"] for key in means} == means


def test_a_broken_episode_is_neither_solved_nor_failed() -> None:
    step = [
        episode(turn([1.0], [-1.0]), success=True),
        episode(turn([2.0, 4.0], [-2.0, -4.0], verdict="no_action")),
        episode(turn([9.0], [-9.0]), stop="worker_died"),
    ]
    found = entropy_metrics(step_tokens(step)) | likelihood_metrics(step_tokens(step))
    assert (found["entropy/outcome/solved"], found["entropy/outcome/failed"]) == (1.0, 3.0)
    assert (found["likelihood/solved"], found["likelihood/failed"], found["likelihood/valid"]) == (-1.0, -3.0, -5.0)


def test_surprisal_by_hand() -> None:
    found = surprisal_metrics(step_tokens([episode(turn([0.5, 1.0], [-2.0, -0.5]), turn([1.0], [-3.0]))]))
    assert found == pytest.approx(
        {"surprisal/response": 2.75, "surprisal/token": 5.5 / 3, "surprisal/relative": (1.5 - 0.5 + 2.0) / 3}
    )


def test_what_is_not_known_is_left_out() -> None:
    nan = math.nan
    found = rollout_metrics([episode(turn([nan, nan], [nan, nan]), turn([1.0, nan], [nan, -2.0]), success=True)])
    assert (found["entropy/kind/heat"], found["entropy/turns/2"], found["likelihood/solved"]) == (1.0, 1.0, -2.0)
    assert not {"entropy/turns/1", "surprisal/response", "surprisal/relative", "likelihood/failed"} & set(found)
    for nothing in ([], [episode()], [episode(turn([]))]):
        step = step_tokens(nothing)
        assert entropy_metrics(step) == surprisal_metrics(step) == likelihood_metrics(step) == {}


def expected(step: list[Episode]) -> dict[str, float | None]:
    mean, values = naive.mean, naive.token_values
    valid = [x for one in step for each in one.turns if each.verdict == "ok" for x in each.logprobs.tolist()]
    logp, entropy = values(step, "logprobs"), values(step, "entropies")
    return {
        **{f"entropy/turns/{first}": naive.entropy_by_turn(step, first) for first in FROM_TURN},
        **{f"entropy/kind/{kind}": mean(values(step, "entropies", kind=kind)) for kind in ("heat", "cool")},
        "entropy/outcome/solved": mean(values(step, "entropies", True)),
        "entropy/outcome/failed": mean(values(step, "entropies", False)),
        "likelihood/valid": mean(valid),
        "likelihood/solved": mean(values(step, "logprobs", True)),
        "likelihood/failed": mean(values(step, "logprobs", False)),
        "surprisal/token": mean([-value for value in logp]),
        "surprisal/relative": mean([-a - b for a, b in zip(logp, entropy, strict=True)]),
    }


@given(episodes)
@settings(max_examples=60, deadline=None)
def test_equals_plain_loops(step: list[Episode]) -> None:
    found = rollout_metrics(step)
    for key, value in expected(step).items():
        assert (found.get(key) is None) == (value is None), key
        assert found.get(key) == (None if value is None else pytest.approx(value, rel=1e-6, abs=1e-6)), key


@given(episodes, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_episodes_does_not_matter(step: list[Episode], order: random.Random) -> None:
    mixed = list(step)
    order.shuffle(mixed)
    assert rollout_metrics(mixed) == pytest.approx(rollout_metrics(step), rel=1e-9, abs=1e-9)
