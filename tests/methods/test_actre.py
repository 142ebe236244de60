"""ActRe: its two stages, which tokens are hot, and numbers that belong to the temperature a token was sampled with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isentrope.core.errors import ConfigError
from isentrope.core.types import Episode, RolloutPlan, TokenTemperature
from isentrope.methods.actre import ActRe, ActReOptions
from isentrope.models.sources.pocket import PocketTokens
from isentrope.runs.checkpoints import join_tensors, split_tensors
from isentrope.runs.episodes import read_episodes
from tests.methods.helpers import (
    EPISODES,
    advantages_of,
    assert_same_gradient,
    check_order,
    check_packing,
    check_zero,
    one_update,
    other_prompts,
    ragged,
    sampled_by,
    seen,
    shape,
    sharp_policy,
    shuffled,
    some_advantages,
    usual,
    write_down,
)
from tests.methods.runs import assert_same_run, check_resumed, play_run, steps_of, weights
from tests.reference import naive_methods

BASE, HOT = 0.9, 1.3
DIALECT = PocketTokens(["go to", " desk", " 1", " 10", "look"])
USUAL = ("go to desk 1", "go to desk 10", "look")


def actre(steps: int = 4, **options: Any) -> ActRe:
    return ActRe(ActReOptions(temperature=HOT, **options), steps)


def rule_of(method: ActRe, tokenizer: Any, admissible: tuple[str, ...] | None) -> TokenTemperature | None:
    """The temperatures of a response in the first step, at a base temperature of 0.9."""
    plan = method.plan(1, RolloutPlan(temperature=BASE))
    assert plan.temperature_rule is not None
    return plan.temperature_rule(tokenizer, admissible, BASE, ("action",))


def temperatures(rule: TokenTemperature, ids: Sequence[int], entropies: Sequence[float]) -> list[float]:
    """As the engine asks for them: before each token, with the tokens so far."""
    return [rule(ids[:j], entropy) for j, entropy in enumerate(entropies)]


# The stages


@pytest.mark.parametrize(
    ("steps", "switch", "last"),
    [
        (10, 0.5, 5), (10, 0.0, 0), (10, 1.0, 10), (10, 0.3, 3), (10, 7, 7), (10, 2.0, 2), (10, 1.5, 1), (10, 99, 10),
        (2, 0.5, 1), (1, 1.0, 1), (1, 0.0, 0), (150, 0.5, 75), (100, 0.29, 29),
    ],
)  # fmt: skip
def test_the_switch_is_a_share_of_the_steps_or_a_step_number(steps: int, switch: float, last: int) -> None:
    method = actre(steps, switch=switch)
    stages = [method.stage(step) for step in range(1, steps + 1)]
    assert stages == [1] * last + [2] * (steps - last)
    assert stages == [naive_methods.actre_stage(step, steps, switch) for step in range(1, steps + 1)]
    assert method.stage(steps + 5) == (1 if switch > steps + 5 else 2)  # past the end


@given(st.integers(1, 200), st.floats(0, 1))
def test_a_share_ends_at_the_nearest_step(steps: int, switch: float) -> None:
    method = actre(steps, switch=switch)
    first = sum(method.stage(step) == 1 for step in range(1, steps + 1))
    assert abs(first - switch * steps) <= 0.5


@pytest.mark.parametrize(
    ("variant", "stages"), [("full", [1, 1, 2, 2]), ("no_stage1", [2] * 4), ("no_stage2", [1] * 4)]
)
def test_ablations_of_a_stage(variant: str, stages: list[int]) -> None:
    method = actre(variant=variant)
    assert [method.stage(step) for step in range(1, 5)] == stages
    assert stages == [naive_methods.actre_stage(step, 4, 0.5, variant) for step in range(1, 5)]


def test_what_the_plan_says_in_each_stage() -> None:
    method, before = actre(), RolloutPlan("think_act", BASE, None, {"kept": 1.0})
    first, second = method.plan(1, before), method.plan(3, before)
    assert (first.order, first.temperature) == ("act_think", BASE)
    assert first.notes == {"kept": 1.0, "stage": 1.0, "action_temperature": HOT}
    assert first.temperature_rule is not None
    assert (second.order, second.temperature, second.temperature_rule) == ("think_act", BASE, None)
    assert second.notes == {"kept": 1.0, "stage": 2.0}
    cool = actre(variant="no_high_temperature").plan(1, before)
    assert (cool.order, cool.temperature_rule, cool.notes) == ("act_think", None, {"kept": 1.0, "stage": 1.0})
    for variant in ("full", "no_stage1", "no_stage2", "no_high_temperature"):
        assert actre(variant=variant).evaluation(before) == before  # think_act, no rule, whatever the variant


def test_stages_in_a_run(model: Path, tmp_path: Path) -> None:
    out = play_run(model, tmp_path / "a", "methods=['actre']", "run.steps=3", "method.actre.switch=2")
    assert [step["plan/stage"] for step in steps_of(out)] == [1, 1, 2]
    assert [step.get("plan/action_temperature") for step in steps_of(out)] == [1.2, 1.2, None]
    assert [step.get("actre/branching", 0) > 0 for step in steps_of(out)] == [True, True, False]
    orders = [{e.order for e in read_episodes(out / "episodes" / f"step-00000{n}.parquet")} for n in (1, 2, 3)]
    assert orders == [{"act_think"}, {"act_think"}, {"think_act"}]
    for step in (0, 3):
        assert {e.order for e in read_episodes(out / "episodes" / f"eval-00000{step}-seen.parquet")} == {"think_act"}
    out = play_run(model, tmp_path / "b", "methods=['actre']", "method.actre.variant=no_stage2", "run.steps=1")
    assert {e.order for e in read_episodes(out / "episodes" / "eval-000001-seen.parquet")} == {"think_act"}


# The rules


ADMISSIBLE = st.lists(st.sampled_from((*USUAL, "go to", "x", "")), min_size=1, max_size=5, unique=True)


@settings(max_examples=60)
@given(ADMISSIBLE, st.sampled_from(USUAL), st.lists(st.integers(5, DIALECT.size - 1), max_size=3), st.integers(0, 6))
@example(["go to desk 1", "go to desk 10"], "go to desk 1", [18], 0)  # a tab in front
def test_the_trie_rule_equals_the_naive_reference(admissible: list[str], said: str, stray: list[int], at: int) -> None:
    ids = DIALECT.answer(f"<action>{said}</action><think>x</think>")
    ids = [*ids[:at], *stray, *ids[at:]]
    rule = rule_of(actre(branching="trie"), DIALECT, tuple(admissible))
    assert rule is not None
    assert not rule.needs_entropy
    written = {a: DIALECT.pieces(DIALECT.answer(f"<action>{a}</action>")) for a in admissible}
    pieces = DIALECT.pieces(ids)
    theirs = [HOT if naive_methods.branching(pieces[:j], written) else BASE for j in range(len(ids))]
    assert temperatures(rule, ids, [0.0] * len(ids)) == theirs


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(["<action>", "</action>", "<think>", "x", "look", "<act", "ion>", "<", "/action>", "</act"]),
        max_size=9,
    ),
    st.none() | st.floats(0, 3),
    st.integers(0, 99),
)
def test_the_entropy_rule_equals_the_naive_reference(texts: list[str], threshold: float | None, seed: int) -> None:
    ids = [token for text in texts for token in DIALECT.answer(text)]
    entropies = np.random.default_rng(seed).uniform(0, 3, len(ids)).tolist()
    method = actre(branching="entropy")
    method.threshold = threshold
    rule = rule_of(method, DIALECT, None)
    assert rule is not None
    assert rule.needs_entropy
    theirs, counted = naive_methods.entropy_temperatures(DIALECT.pieces(ids), entropies, threshold, BASE, HOT)
    assert temperatures(rule, ids, entropies) == theirs
    assert method.entropies == counted


@settings(max_examples=40)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=20), st.floats(0, 1))
def test_the_next_threshold_is_the_quantile_of_this_step(entropies: list[float], share: float) -> None:
    method = actre(branching="entropy", quantile=share)
    method.entropies = list(entropies)
    shape(method, usual(0), some_advantages(usual(0)))
    assert method.threshold == pytest.approx(naive_methods.quantile(entropies, share), abs=1e-9)
    assert seen(method)["actre/threshold"] == method.threshold
    assert method.entropies == []  # the next step begins anew
    shape(method, usual(0), some_advantages(usual(0)), 2)
    assert method.threshold == pytest.approx(naive_methods.quantile(entropies, share), abs=1e-9)  # none seen: it stays


def test_the_entropy_rule_by_hand() -> None:
    # <action> go_to desk 1 </action> <think>: the three tokens of the action count, the closing tag does not. At the
    # first step nothing is hot. Entropies 1, 2, 3: the 0.5 quantile is 2. At the next step entropies above 2 are hot
    # from behind the opening tag until the closing one is complete.
    ids, method = DIALECT.answer("<action>go to desk 1</action><think>"), actre(branching="entropy", quantile=0.5)
    rule = rule_of(method, DIALECT, None)
    assert rule is not None
    assert temperatures(rule, ids, [9, 1, 2, 3, 4, 9]) == [BASE] * 6
    shape(method, usual(0), some_advantages(usual(0)))
    assert method.threshold == 2
    rule = rule_of(method, DIALECT, None)
    assert rule is not None
    assert temperatures(rule, ids, [9, 2, 2.1, 1, 3, 9]) == [BASE, BASE, HOT, BASE, HOT, BASE]


def test_which_rule_is_taken() -> None:
    cases = {
        ("auto", USUAL): "_TrieRule", ("auto", ()): "NoneType", ("auto", None): "_EntropyRule",
        ("trie", USUAL): "_TrieRule", ("trie", ()): "NoneType",
        ("entropy", USUAL): "_EntropyRule", ("entropy", ()): "_EntropyRule", ("entropy", None): "_EntropyRule",
    }  # fmt: skip
    for (branching, admissible), kind in cases.items():
        assert type(rule_of(actre(branching=branching), DIALECT, admissible)).__name__ == kind
    with pytest.raises(ConfigError, match="lists no admissible actions; use"):
        rule_of(actre(branching="trie"), DIALECT, None)


def test_the_share_of_hot_tokens_is_recorded_in_stage_one_only() -> None:
    # Four action tokens, of which one is at 1.3 and three at the base temperature; the thought does not count.
    [episode] = ragged([[[6]]], 0)
    hot = np.array([HOT, BASE, HOT, BASE, BASE, BASE], dtype=np.float32)
    turn = replace(episode.turns[0], think_span=(0, 2), action_span=(2, 6), temperatures=hot)
    method = actre()
    for step, expected in ((1, {"actre/branching": 0.25}), (3, {})):
        method.plan(step, RolloutPlan(temperature=BASE))
        shape(method, [replace(episode, turns=(turn,))], [0.0] * 6, step)
        assert seen(method) == expected


@pytest.mark.parametrize("text", ["<action>go to desk 1</act", "<action></action>", "<act", "", "<action>"])
def test_cut_and_empty_responses(text: str) -> None:
    # Cut in the middle of a tag, an action of no length, nothing at all: temperatures are given, and nothing is hot
    # that is not inside of an action.
    ids = DIALECT.answer(text)
    for branching, admissible in (("trie", USUAL), ("entropy", None)):
        method = actre(branching=branching)
        method.threshold = 0.0
        rule = rule_of(method, DIALECT, admissible)
        assert rule is not None
        found = temperatures(rule, ids, [1.0] * len(ids))
        assert all((value == HOT) <= (b"<action>" in DIALECT.pieces(ids[:j])) for j, value in enumerate(found))


# Learning


@pytest.mark.parametrize("full", [True, False])
def test_the_gradient_is_that_at_the_tokens_own_temperatures(full: bool) -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(1, full))
    assert {t for e in episodes for turn in e.turns for t in turn.temperatures.tolist()} > {1.0}
    written = write_down(policy, episodes)
    ours = one_update(policy, episodes, [actre()])
    assert_same_gradient(ours.gradient, written.gradient(written.policy_loss(advantages_of(episodes))))
    cool = [
        replace(e, turns=tuple(replace(t, temperatures=np.ones_like(t.temperatures)) for t in e.turns))
        for e in episodes
    ]
    assert float((ours.gradient - one_update(policy, cool).gradient).norm() / ours.gradient.norm()) > 0.05


@settings(max_examples=25)
@given(EPISODES, st.integers(0, 99))
def test_advantages_stay_and_order_and_other_tokens_change_nothing(episodes: list[Episode], seed: int) -> None:
    advantages, recorded = some_advantages(episodes, seed), []
    moved, places = shuffled(episodes, seed)
    for these, given_ones in (
        (episodes, advantages),
        (other_prompts(episodes, seed), advantages),
        (moved, [advantages[i] for i in places]),
    ):
        method = actre()
        method.plan(1, RolloutPlan())
        assert shape(method, these, given_ones) == given_ones
        recorded.append(seen(method))
    assert recorded[1] == recorded[0]
    assert recorded[2] == pytest.approx(recorded[0])


def test_packing_accumulation_and_order_do_not_change_the_gradient() -> None:
    check_packing(actre, 2)
    check_order(actre, 3)


# Nothing to do, and state


def test_without_its_first_stage_it_equals_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    check_zero(actre(switch=0.0), "actre/")
    for i, change in enumerate(("variant='no_stage1'", "switch=0")):
        run = play_run(model, tmp_path / str(i), "methods=['actre']", f"method.actre={{{change}}}")
        assert_same_run(run, baseline, "plan/stage")
        assert [step["plan/stage"] for step in steps_of(run)] == [2, 2]


def test_at_the_base_temperature_its_first_stage_is_plain_act_think(model: Path, tmp_path: Path) -> None:
    plain = play_run(model, tmp_path / "plain", "agent.order=act_think")
    own = ("plan/", "actre/")
    for i, change in enumerate(("variant='no_high_temperature', switch=1.0", "temperature=1.0, switch=1.0")):
        run = play_run(model, tmp_path / str(i), "methods=['actre']", f"method.actre={{{change}}}")
        ours = [{key: v for key, v in step.items() if not key.startswith(own)} for step in steps_of(run)]
        assert ours == steps_of(plain)  # evaluations differ: those of ActRe are think_act
        assert weights(run) == weights(plain)
        assert all(step["actre/branching"] == 0 for step in steps_of(run))


def test_the_threshold_survives_a_checkpoint() -> None:
    for threshold in (None, 0.1, 1 / 3):
        method, again = actre(), actre()
        method.threshold = threshold
        tensors, tree = split_tensors(method.state_dict())
        again.load_state_dict(join_tensors(json.loads(json.dumps(tree)), tensors))
        assert again.threshold == threshold


def test_a_resumed_run_has_the_same_threshold(model: Path, tmp_path: Path) -> None:
    settings = "method.actre={branching='entropy', switch=1.0, quantile=0.3}"
    whole = check_resumed(model, tmp_path, "methods=['actre']", settings)
    hot = [step["actre/branching"] for step in steps_of(whole)]
    assert hot[0] == 0
    assert min(hot[1:]) > 0.1
    thresholds = [step["actre/threshold"] for step in steps_of(whole)]
    state = json.loads((whole / "checkpoints/step-000003/state.json").read_text())
    assert repr(thresholds[-1]) in json.dumps(state)
    assert len(set(thresholds)) == 3


def test_orders_that_contradict_it_are_refused(model: Path, tmp_path: Path) -> None:
    for order in ("act", "act_think"):
        expected = rf'agent\.order = "{order}" with methods = \["actre"\], which asks for act_think then think_act'
        with pytest.raises(ConfigError, match=expected + "; leave agent.order at think_act"):
            play_run(model, tmp_path / "x", "methods=['actre']", f"agent.order={order}")
    assert not (tmp_path / "x").exists()
