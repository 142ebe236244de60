"""Steps that are foretold: the simulation by hand, what must hold of it, and how close it comes to measurements."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.cluster.plan.cards import CARDS, card_named
from isentrope.cluster.plan.choose import advice, outcomes, recommended
from isentrope.cluster.plan.costs import Costs, Model
from isentrope.cluster.plan.layouts import Layout, Task, learn_seconds, memory_of, passes_of
from isentrope.cluster.plan.lengths import Assumed, Lengths, fixed, resampled
from isentrope.cluster.plan.rates import H200, Rates, rates_of
from isentrope.cluster.plan.simulate import Happened, Setup, simulate
from isentrope.cluster.plan.timeline import over_time, steady
from isentrope.config.load import load_config
from isentrope.core.errors import ConfigError
from isentrope.engines.native.sizes import MOST_RECORDED, padded
from isentrope.models.sources.shapes import SHAPES
from tools import plan_docs

# A model and a machine with round numbers: a token read takes 1 s, a token drawn 10 s for all, whatever is held.
UNIT = Model(layers=1, body=0.5, head=0.0, queries=0, kv=0, width=0, inner=0, vocabulary=0, parameters=1)
ROUND = replace(
    H200, bandwidth=1e30, products=1.0, drawing=1e30, learning=1.0, layer=0.0, smallest=0.0, row=0.0, response=0.0,
    traffic=0.0, moved=0.0, laid=0.0, late=0, patience=0, turn=0.0, padding="none",
)  # fmt: skip


class ByHand(Costs):
    def draw(self, rows: int, held: float) -> float:
        return 10.0


def played(steps: list[Lengths], together: bool = False, **given: Any) -> Happened:
    costs = ByHand(UNIT, replace(ROUND, together=together))
    setup = Setup(costs, 1, 8, 8, lambda _: (3.0, 4.0), sync=5.0, task_seconds=0.0)
    return simulate(replace(setup, **given), steps)


def test_two_turns_by_hand() -> None:
    """Read 3 tokens, draw the first with them and 1 more; the last is read with 4 others; 1 more. A task takes 2 s."""
    happened = played([fixed(1, 2, 2, 4, 3)], task_seconds=2.0)
    assert happened.samplers[0] == [
        (0.0, 2.0, "wait: tasks"), (2.0, 5.0, "prompts"), (5.0, 15.0, "tokens"), (15.0, 17.0, "wait: tasks"),
        (17.0, 22.0, "prompts"), (22.0, 32.0, "tokens"),
    ]  # fmt: skip
    assert happened.played == [34.0]
    assert happened.learner == [(0.0, 34.0, "wait: episodes"), (34.0, 37.0, "score"), (37.0, 41.0, "update")]


def test_a_group_reads_its_prompt_once_and_one_worker_plays_one_task_after_the_other() -> None:
    lengths = fixed(2, 1, 3, 0, 7, group_size=2)
    reads = [span for span in played([lengths]).samplers[0] if span[2] == "prompts"]
    assert reads == [(0.0, 8.0, "prompts")]  # 7, and one token of the other
    assert played([lengths], task_seconds=1.0, task_workers=2).played == [1 + 8 + 20 + 1.0]
    one, together = (played([lengths], mode, task_seconds=1.0).played[0] for mode in (False, True))
    assert together == 2 + 8 + 20 + 2
    assert one == 1 + 7 + 1 + 20 + 2  # the first is read as soon as it is there


def test_the_longest_response_holds_all_up_where_they_answer_together() -> None:
    new = np.array([[1, 5], [5, 1]])
    lengths = Lengths(np.ones_like(new), new, 1)
    apart, together = (played([lengths], mode).played[0] for mode in (False, True))
    assert together == 2 + 40 + 4 + 40
    assert apart == 2 + 2 + 40 + 2  # both long responses are drawn beside each other


def test_gates() -> None:
    """A rollout takes 31 s (1 read, 30 drawn), learning 7, a sync 5."""
    steps = [fixed(1, 1, 4, 0, 1)] * 4
    assert played(steps).learnt == [38.0, 38 + 43, 38 + 86, 38 + 129]
    ahead = played(steps, ahead=1)
    assert ahead.played == [31.0, 62, 93, 124]  # the weights of the step before are there at 38 + 5
    assert ahead.learnt == [38.0, 69, 100, 131]
    assert steady(played([steps[0]] * 6, ahead=1), [steps[0]] * 6, 1).step == 31.0

    def slowly(lengths: Lengths) -> tuple[float, float]:
        return 40.0, 60.0

    bound = steady(played([steps[0]] * 6, ahead=1, learn=slowly), [steps[0]] * 6, 1)
    assert (bound.step, bound.score, bound.update) == (100.0, 40.0, 60.0)
    slow = played(steps, ahead=1, sync=40.0)  # weights of the first step at 78: the third rollout waits for them
    assert slow.played == [31.0, 62, 78 + 31, 109 + 31]
    flying = played([fixed(2, 1, 4, 0, 1)] * 4, ahead=1, in_flight=True, slots=4)
    assert flying.begun[1] == 0.0
    assert flying.begun[2] == flying.learnt[0]


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 12), st.integers(0, 3))


@given(SIZES, st.integers(0, 2**32), st.booleans(), st.booleans())
def test_every_episode_is_played_once_and_no_second_is_lost(
    sizes: tuple[int, int, int, int], seed: int, in_flight: bool, together: bool
) -> None:
    samplers, turns, slots, ahead = sizes
    rng = np.random.default_rng(seed)
    steps = list[Lengths]()
    for _ in range(3 + 2 * max(1, ahead)):
        new = rng.integers(1, 6, (6, turns))
        ended = np.arange(turns) >= rng.integers(1, turns + 1, 6)[:, None]
        steps.append(Lengths(rng.integers(0, 5, (6, turns)) + 1, np.where(ended, 0, new), 3))
    rates = replace(H200, together=together)
    setup = Setup(
        Costs(Model.of(SHAPES["tiny"].facts()), rates), samplers, slots, -(-slots // samplers), lambda _: (1e-3, 2e-3),
        sync=1e-4, task_seconds=1e-4, ahead=max(1, ahead) if in_flight else ahead, in_flight=in_flight,
    )  # fmt: skip
    happened = simulate(setup, steps)
    assert len(happened.learnt) == len(steps)
    assert all(end > begin for begin, end in pairwise([0.0, *happened.learnt]))
    for spans in [*happened.samplers, happened.learner]:
        assert all(before[1] == pytest.approx(after[0]) for before, after in pairwise(spans))
    found = steady(happened, steps, setup.ahead)
    assert sum(found.sampling.values()) == pytest.approx(1, abs=0.02)
    assert sum(found.learning.values()) == pytest.approx(1)
    middles, sampling, learning = over_time(happened, 10, setup.ahead)
    assert len(middles) == 10
    for parts in (sampling, learning):
        assert all(sum(values[column] for values in parts.values()) <= 1 + 1e-6 for column in range(10))


def test_lengths_have_the_means_and_limits_that_were_asked_for() -> None:
    lengths = Assumed(200, 4, 12.0, 24, 40.0, 64, 300, 50, 100_000).lengths(0)
    assert lengths.turns.mean() == pytest.approx(12, rel=0.05)
    assert lengths.new[lengths.new > 0].mean() == pytest.approx(40, rel=0.02)
    assert (lengths.turns.max(), lengths.new.max()) == (24, 64)
    short = Assumed(20, 4, 24, 24, 64, 64, 300, 50, 1000).lengths(0)
    assert short.longest <= 1000
    assert int(short.turns.max()) == 6  # 300 + 6 × 64 + 5 × 50 are 934; one turn more needs 1,048
    again = resampled([lengths], 7, 4, 1)
    assert again.episodes == 28
    assert set(again.turns) <= set(lengths.turns)
    assert fixed(8, 1, 10, 0, 90, 8).computed == 90 + 80
    assert fixed(8, 1, 90, 0, 2, 8).computed == 8 * 92  # sharing saves too little


def test_passes_are_padded_as_the_engine_pads_them() -> None:
    small, large = (Costs(Model.of(SHAPES[name].facts()), H200) for name in ("smollm2-135m", "qwen2.5-7b"))
    assert small.read(10_368, 0, 0) == small.read(12_288, 0, 0)
    assert large.read(10_368, 0, 0) == large.read(padded(10_368, 0), 0, 0) < large.read(12_288, 0, 0)
    assert small.read(MOST_RECORDED, 0, 0) < small.read(MOST_RECORDED + 1, 0, 0)


# -- layouts


def task(shape: str = "qwen2.5-1.5b", card: str = "h200", *sets: str) -> Task:
    config = load_config("alfworld", [f"policy.model={shape}", *sets])
    return Task(config, SHAPES[shape].facts(), CARDS[card], rates_of(CARDS[card]), 3e-4)


ASSUMED = cache(Assumed(16, 8, 10, 24, 36, 64, 450, 60, 4096).lengths)


def test_what_a_card_has_to_hold_falls_with_the_cards() -> None:
    one = memory_of(task(), Layout(2, 1, 1), 128).learner
    for cards in (2, 4, 8):
        copies = memory_of(task(), Layout(cards + 1, cards, 1), 128).learner
        shards = memory_of(task(), Layout(cards + 1, cards, 1, sharded=True), 128).learner
        assert copies.moments == pytest.approx(one.moments / cards, rel=1e-6)
        assert copies.weights == one.weights
        for name in ("weights", "moments", "copies", "gradients", "reference"):
            assert getattr(shards, name) == pytest.approx(getattr(one, name) / cards, rel=1e-6)


def test_learning_gets_quicker_with_cards_until_one_conversation_is_left_for_each() -> None:
    lengths = ASSUMED(0)
    seconds = [sum(learn_seconds(task(), Layout(n, n, n), lengths)) for n in (1, 2, 4, 8)]
    assert all(before > after > before / 2 for before, after in pairwise(seconds))
    most = [sum(learn_seconds(task(), Layout(n, n, n), lengths)) for n in (256, 512)]
    assert most[0] == pytest.approx(most[1], rel=0.05)
    assert passes_of(task().config, False) == 1.5  # half of the old log-probs, and the reference


def test_plans_of_several_cards_and_their_settings() -> None:
    found = outcomes(task(), ASSUMED, 8)
    assert [one.layout.shared for one in found] == [True, False, False]
    best = recommended(found)
    assert best.steady.step <= min(one.steady.step for one in found) * 1.02
    for one in found:
        told = advice(task(), one)
        load_config("alfworld", ["policy.model=smollm2", *told.settings])  # what is there today is taken
    assert not advice(task(), outcomes(task(), ASSUMED, 1)[0]).settings
    assert outcomes(task(), ASSUMED, 1)[0].steady.step > found[0].steady.step


def test_what_does_not_fit_is_told_with_what_would() -> None:
    with pytest.raises(ConfigError, match=r"qwen2\.5-32b fits no split of 8 × NVIDIA H100 SXM") as caught:
        outcomes(task("qwen2.5-32b", "h100"), ASSUMED, 8)
    said = str(caught.value).split("These would fit: ")[1]
    assert "--gpus 32" in said
    assert "--card h200" in said
    assert outcomes(task("qwen2.5-32b", "h200"), ASSUMED, 8)
    with pytest.raises(ConfigError, match="fits no split of 1 ×"):
        outcomes(task("qwen2.5-7b", "h100"), ASSUMED, 1)
    with pytest.raises(ConfigError, match=r"no such card; did you mean h100\?"):
        card_named("h10")


# -- how close it comes


def test_the_table_is_that_of_the_kept_figures_and_within_its_bar() -> None:
    assert plan_docs.PAGE.read_text(encoding="utf-8") == plan_docs.rendered(), "run `python -m tools.plan_docs`"
    rows = plan_docs.rows()
    assert len(rows) >= 18
    assert max(abs(row.off) for row in rows) < 0.2
    assert max(abs(row.off) for row in rows if row.part == "**step**") < 0.15


def test_the_rates_of_the_h200_are_those_that_fit() -> None:
    assert max(map(abs, plan_docs.errors(H200))) < 0.1
    best = sum(error**2 for error in plan_docs.errors(H200))
    for name in plan_docs.FITTED:
        for factor in (0.97, 1.03):
            other: Rates = replace(H200, **{name: getattr(H200, name) * factor})
            other = replace(other, drawing=other.products)
            assert sum(error**2 for error in plan_docs.errors(other)) > best * 0.99
