"""The forecast of entropy's drift, and how it is kept against what followed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.token_weights import MODES, token_weights
from isentrope.core.types import Episode, Scores
from isentrope.learning.tokens import step_tokens
from isentrope.metrics.entropy import predicted_drift
from isentrope.metrics.observe import Drift
from tests.builders.episodes import episode, episodes
from tests.builders.turns import turn
from tests.metrics import naive
from tests.reference import naive as reference


def scores(rows: list[tuple[int, int, list[float], list[float]]]) -> Scores:
    return Scores(
        np.array([e for e, _, _, _ in rows], dtype=np.int64),
        np.array([t for _, t, _, _ in rows], dtype=np.int64),
        np.array([len(a) for _, _, a, _ in rows], dtype=np.int64),
        np.array([x for _, _, a, _ in rows for x in a], dtype=np.float32),
        np.array([x for _, _, _, r in rows for x in r], dtype=np.float32),
    )


def test_the_forecast_by_hand() -> None:
    step = [episode(turn([0.5, 1.0], [-2.0, -0.5])), episode(turn([9.0], [-9.0]), turn([1.0], [-3.0]))]
    # 2 · (2 - 0.5) + 2 · (0.5 - 1) = 2 of the first response, -1 · (3 - 1) = -2 of the second
    rows = [(0, 0, [2.0, 2.0], [1.0, 1.1]), (1, 1, [-1.0], [0.9])]
    assert predicted_drift(step_tokens(step), scores(rows)) == pytest.approx({"drift/predicted": 0.0})
    assert predicted_drift(step_tokens(step), scores(rows[:1])) == pytest.approx({"drift/predicted": 1.0})


@pytest.mark.parametrize(("advantage", "surprisal", "sign"), [(1, 3, 1), (1, 1, -1), (-1, 3, -1), (-1, 1, 1)])
def test_its_sign(advantage: float, surprisal: float, sign: int) -> None:
    """Learning more of what is rarer than usual raises entropy; a negative advantage turns it round."""
    found = predicted_drift(step_tokens([episode(turn([2.0], [-surprisal]))]), scores([(0, 0, [advantage], [1.0])]))
    assert math.copysign(1, found["drift/predicted"]) == sign


def test_what_was_not_learnt_from_or_is_not_known_is_left_out() -> None:
    step = [episode(turn([1.0, math.nan, 1.0], [-2.0, -2.0, -4.0]))]
    assert predicted_drift(step_tokens(step), scores([(0, 0, [1, 1, 1], [1, 1, math.nan])])) == {"drift/predicted": 1.0}
    assert predicted_drift(step_tokens(step), scores([(0, 0, [1, 1, 1], [math.nan] * 3)])) == {}
    assert predicted_drift(step_tokens(step), scores([])) == {}


@given(episodes, st.data())
@settings(max_examples=40, deadline=None)
def test_the_forecast_equals_plain_loops(step: list[Episode], data: st.DataObject) -> None:
    rows: list[tuple[int, int, list[float], list[float]]] = []
    for e, one in enumerate(step):
        for t, each in enumerate(one.turns):
            size = len(each.response_ids)
            values = st.lists(st.floats(-3, 3, width=32), min_size=size, max_size=size)
            ratios = st.lists(st.sampled_from([1.0, math.nan]), min_size=size, max_size=size)
            rows.append((e, t, data.draw(values), data.draw(ratios)))
    found = predicted_drift(step_tokens(step), scores(rows)).get("drift/predicted")
    turns = [step[e].turns[t] for e, t, _, _ in rows]
    learnt = [[not math.isnan(x) for x in ratio] for _, _, _, ratio in rows]
    value = naive.forecast(turns, [a for _, _, a, _ in rows], learnt)
    assert found == (None if value is None else pytest.approx(value, rel=1e-6, abs=1e-6))


def weighed(step: list[Episode], found: Scores, mode: str) -> Scores:
    """With the weights of one mini-batch of all tokens that were learnt from."""
    length_U, learnt = found.length_U, ~np.isnan(found.ratio_N)
    episode_N, turn_N = np.repeat(found.episode_U, length_U), np.repeat(np.arange(len(length_U)), length_U)
    weight_N = np.zeros(len(learnt), dtype=np.float32)
    weight_N[learnt] = token_weights(mode, episode_N[learnt], turn_N[learnt], 64.0)
    return replace(found, weight_N=weight_N)


def test_the_weights_of_the_update_turn_the_sign() -> None:
    # A · (S - H) is 1 for each of four tokens of a long response and -2 for the one of a short response.
    step = [episode(turn([1.0] * 4, [-2.0] * 4), turn([1.0], [-3.0]))]
    found = scores([(0, 0, [1.0] * 4, [1.0] * 4), (0, 1, [-1.0], [1.0])])
    # as tokens: (4 - 2)/5 = 0.4; as turns: (1 - 2)/2 = -0.5
    expected = {"token": 0.4, "turn": -0.5, "sequence": -0.5, "episode": 0.4, "constant": 0.4}
    for mode in MODES:
        value = predicted_drift(step_tokens(step), weighed(step, found, mode))["drift/predicted"]
        assert value == pytest.approx(expected[mode], rel=1e-6), mode


@pytest.mark.parametrize("mode", MODES)
@given(step=episodes, seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_forecast_is_aggregated_as_the_loss_is(mode: str, step: list[Episode], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, int, list[float], list[float]]] = []
    terms, episode_of, turn_of = list[float](), list[int](), list[int]()
    for e, one in enumerate(step):
        for t, each in enumerate(one.turns):
            a = rng.normal(size=len(each.response_ids)).astype(np.float32)
            known = ~np.isnan(each.logprobs) & ~np.isnan(each.entropies)
            learnt = known & (rng.random(len(a)) < 0.8)  # a token of which something is not known is never learnt from
            rows.append((e, t, a.tolist(), np.where(learnt, 1.0, np.nan).tolist()))
            surprisal = -each.logprobs.astype(float) - each.entropies.astype(float)
            terms += (a.astype(float) * surprisal)[learnt].tolist()
            episode_of += [e] * int(learnt.sum())
            turn_of += [len(rows)] * int(learnt.sum())
    found = predicted_drift(step_tokens(step), weighed(step, scores(rows), mode)).get("drift/predicted")
    if not terms:
        assert found is None
        return
    # `constant` gives all tokens the same weight: a mean over them is that over tokens
    value = reference.mean_over(terms, episode_of, turn_of, "token" if mode == "constant" else mode)
    assert found == pytest.approx(value, rel=1e-5, abs=1e-6)
    if mode == "token":
        # to the last bit what it was before
        assert (
            found == predicted_drift(step_tokens(step), scores(rows))["drift/predicted"]
        )  # to the last bit what it was before


def test_several_mini_batches_weigh_alike_however_large_they_are() -> None:
    step = [episode(turn([1.0] * 3, [-2.0] * 3)), episode(turn([1.0], [-3.0]))]
    found = scores([(0, 0, [1.0] * 3, [1.0] * 3), (1, 0, [-1.0], [1.0])])
    two = replace(found, weight_N=np.array([1 / 3, 1 / 3, 1 / 3, 1.0], dtype=np.float32))
    assert predicted_drift(step_tokens(step), two)["drift/predicted"] == pytest.approx((1 - 2) / 2)
    none = replace(found, weight_N=np.zeros(4, dtype=np.float32))  # its updates were left out
    assert predicted_drift(step_tokens(step), none) == {}


def told(drift: Drift, entropy: float | None, forecast: float | None) -> dict[str, float]:
    return drift.look({"entropy/token": entropy, "drift/predicted": forecast})


def test_agreement_by_hand() -> None:
    drift = Drift()
    assert told(drift, 1.0, +2.0) == {}
    assert told(drift, 1.5, -1.0) == {"drift/measured": 0.5, "drift/agreement": 1.0}
    assert told(drift, 1.75, 0.0) == {"drift/measured": 0.25, "drift/agreement": 0.5}
    # a forecast of 0 has no sign; the third pair makes a correlation: of (2, -1, 0) and (0.5, 0.25, -0.75)
    found = told(drift, 1.0, None)
    assert found["drift/agreement"] == 0.5
    assert found["drift/correlation"] == pytest.approx(naive.correlation([(2, 0.5), (-1, 0.25), (0, -0.75)]))
    assert told(drift, None, 5.0)["drift/agreement"] == 0.5  # nothing was measured, so nothing is compared
    assert "drift/measured" not in told(drift, 2.0, 1.0)
    assert told(drift, math.nan, 1.0).keys() == {"drift/agreement", "drift/correlation"}


curves = st.lists(st.tuples(st.floats(0, 3) | st.none(), st.floats(-2, 2) | st.none()), max_size=12)


@given(curves, st.integers(0, 12))
@settings(max_examples=80, deadline=None)
def test_equals_plain_loops_and_survives_a_restart(steps: list[tuple[float | None, float | None]], cut: int) -> None:
    whole, again = Drift(), Drift()
    pairs: list[tuple[float, float]] = []
    for number, (entropy, forecast) in enumerate(steps):
        found = told(whole, entropy, forecast)
        if number == cut:
            fresh = Drift()
            fresh.load_state_dict(json.loads(json.dumps(again.state_dict())))
            again = fresh
        assert told(again, entropy, forecast) == found
        before, made = steps[number - 1] if number else (None, None)
        if entropy is not None and before is not None and made is not None:
            pairs.append((made, entropy - before))
        signed = [(p > 0) == (d > 0) for p, d in pairs if p != 0 and d != 0]
        assert found.get("drift/agreement") == (sum(signed) / len(signed) if signed else None)
        spread = min((np.std([p for p, _ in pairs]), np.std([d for _, d in pairs])), default=0) if pairs else 0
        if len(pairs) >= 3 and spread > 1e-3:
            assert found["drift/correlation"] == pytest.approx(naive.correlation(pairs), abs=1e-6)
