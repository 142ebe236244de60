"""Methods together: with every base algorithm, in any order that should not matter, and as the sum of their parts."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.load import load_config
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.core.types import Episode, RolloutPlan
from isentrope.learning import hooks
from isentrope.methods.actre import ActRe, ActReOptions
from isentrope.methods.aem import Aem
from isentrope.methods.ea import Ea
from isentrope.methods.entropy_bonus import EntropyBonus, EntropyBonusOptions
from isentrope.methods.epo import Epo, EpoOptions
from isentrope.methods.higher_temperature import HigherTemperature
from isentrope.methods.registry import METHODS, make_methods
from isentrope.methods.seal import Seal, SealOptions
from isentrope.metrics.glossary import entry_of
from isentrope.models.sources.pocket import PocketTokens
from isentrope.runs.episodes import read_episodes
from tests.methods.helpers import (
    EPISODES,
    Flat,
    advantages_of,
    assert_same_gradient,
    check_order,
    check_packing,
    one_update,
    sampled_by,
    shape,
    sharp_policy,
    some_advantages,
    usual,
    write_down,
)
from tests.methods.runs import assert_same_run, check_resumed, play_run, records, steps_of, weights
from tests.reference import naive_methods

ALL = "methods=['higher_temperature','actre','epo','seal','aem','entropy_bonus','ea']"
NO_THINK = "methods=['higher_temperature','no_think','epo','seal','aem','entropy_bonus','ea']"
FOUR = "methods=['actre','epo','seal','aem']"
KEYS = {"plan/stage", "loss/epo", "epo/coefficient", "loss/seal", "seal/bce", "aem/weight_min"}


def made() -> dict[str, Method]:
    """One of each that touches an update, strong enough to be seen."""
    epo = Epo(EpoOptions(coefficient=0.2, alpha=0.5, kappa_low=0.7, kappa_high=1.2), steps=4)
    epo.history = [1.5]
    return {
        "epo": epo,
        "seal": Seal(SealOptions(alpha=0.4, width=5), seed=3),
        "bonus": EntropyBonus(EntropyBonusOptions(coefficient=0.1)),
        "ea": Ea(),
        "aem": Aem(),
        "actre": ActRe(steps=4),
    }


def chosen(*names: str) -> list[Method]:
    methods = made()
    return [methods[name] for name in names]


# With every base algorithm


@pytest.mark.parametrize("context", ["full", "window"])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_all_methods_run_with(algorithm: str, context: str, model: Path, tmp_path: Path) -> None:
    changes = (f"learn.algorithm={algorithm}", f"agent.context={context}", "rollout.group_size=4")
    check_run(play_run(model, tmp_path / "run", ALL, *changes), KEYS | {"loss/entropy_bonus", "ea/added"})


@pytest.mark.parametrize("context", ["full", "window"])
@pytest.mark.parametrize("algorithm", ["grpo", "gigpo", "ppo"])
def test_the_four_papers_methods_run_with(algorithm: str, context: str, model: Path, tmp_path: Path) -> None:
    changes = (f"learn.algorithm={algorithm}", f"agent.context={context}", "learn.mini_batches=2")
    check_run(play_run(model, tmp_path / "run", FOUR, *changes), KEYS)


def check_run(out: Path, keys: set[str]) -> None:
    steps = steps_of(out)
    assert len(steps) == 2
    for record in records(out):
        numbers = {key: value for key, value in record.items() if key not in ("step", "kind")}
        assert "nonfinite" not in record
        for key, value in numbers.items():
            assert math.isfinite(value), key
            assert entry_of(key)
    assert sum(step["update/count"] for step in steps) >= 1
    learnt = [step for step in steps if step["update/count"]]
    assert all(keys <= step.keys() for step in learnt)
    assert all(step["update/skipped"] == 0 for step in steps)
    assert [step["plan/stage"] for step in steps] == [1, 2]


def test_without_thinking_too(model: Path, tmp_path: Path) -> None:
    assert all(f"'{name}'" in NO_THINK + ALL for name in METHODS)  # no method has been forgotten
    steps = steps_of(play_run(model, tmp_path / "run", NO_THINK, "learn.mini_batches=2", "learn.epochs=2"))
    assert [step["update/count"] for step in steps] == [4, 4]
    assert all(math.isfinite(step["loss/total"]) for step in steps)


@pytest.mark.parametrize("algorithm", ["reinforce", "ppo"])
def test_groups_of_one(algorithm: str, model: Path, tmp_path: Path) -> None:
    changes = (ALL, "rollout.group_size=1", "rollout.groups=4")
    check_run(play_run(model, tmp_path / "run", *changes, f"learn.algorithm={algorithm}"), KEYS)
    with pytest.raises(ConfigError, match="a group is compared with itself, so every advantage would be 0"):
        play_run(model, tmp_path / "refused", *changes, "learn.algorithm=grpo")


@pytest.mark.parametrize("algorithm", ["grpo", "dapo", "gigpo"])
def test_all_rewards_equal(algorithm: str, model: Path, tmp_path: Path) -> None:
    changes = (f"learn.algorithm={algorithm}", "task.success_reward=0", "task.invalid_reward=0", "learn.overlong=0")
    steps = steps_of(play_run(model, tmp_path / "run", ALL, *changes))
    for step in steps:
        assert "nonfinite" not in step
        if algorithm == "dapo":  # every group was dropped: nothing to learn from, and the methods bear it
            assert (step["resample/missing"], step["update/count"]) == (2, 0)
        else:
            assert (step["advantage/zero_groups"], step["loss/policy"], step["ea/added"]) == (1, 0, 0)
            assert step["grad_norm"] > 0  # the terms of the loss are still there


def test_a_run_with_all_of_them_is_reproducible_and_can_be_resumed(model: Path, tmp_path: Path) -> None:
    changes = (ALL, "method.actre={branching='entropy', switch=2}", "learn.mini_batches=2")
    whole = check_resumed(model, tmp_path, *changes)
    assert [step["plan/stage"] for step in steps_of(whole)] == [1, 1, 2]
    other = play_run(model, tmp_path / "other", *changes, "run.steps=3", "run.seed=1")
    assert weights(other) != weights(whole)


def test_while_only_the_critic_learns_no_method_has_a_loss(model: Path, tmp_path: Path) -> None:
    changes = (FOUR, "learn.algorithm=ppo", "critic.warmup=2")
    whole = check_resumed(model, tmp_path, *changes)  # its first checkpoint has no classifier yet
    assert ["loss/seal" in step for step in steps_of(whole)] == [False, False, True]
    assert ["loss/epo" in step for step in steps_of(whole)] == [False, False, True]
    assert steps_of(whole)[1]["epo/history"] == pytest.approx(steps_of(whole)[0]["entropy/token"])


def test_all_of_them_at_zero_equal_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    out = play_run(
        model, tmp_path / "zero", ALL,
        "method.higher_temperature.temperature=1", "method.actre.switch=0", "method.epo.coefficient=0",
        "method.seal.alpha=0", "method.aem.strength=0", "method.entropy_bonus.coefficient=0", "method.ea.alpha=0",
    )  # fmt: skip
    assert_same_run(out, baseline, "plan/", "epo/")


# The sum of the parts


@pytest.mark.parametrize("full", [True, False])
def test_the_composed_loss_is_the_sum_of_the_single_terms(full: bool) -> None:
    policy, names = sharp_policy(), ("bonus", "epo", "seal")
    episodes = sampled_by(policy, usual(1, full))
    plain = one_update(policy, episodes, step=2)
    singles = [one_update(policy, episodes, chosen(name), step=2) for name in names]
    together = one_update(policy, episodes, chosen(*names), step=2)
    terms = ("loss/entropy_bonus", "loss/epo", "loss/seal")
    for term, single in zip(terms, singles, strict=True):
        assert together.metrics[term] == pytest.approx(single.metrics[term], abs=1e-6)
        assert single.metrics["loss/total"] == pytest.approx(
            plain.metrics["loss/total"] + single.metrics[term], abs=1e-6
        )
    total = plain.metrics["loss/total"] + sum(together.metrics[term] for term in terms)
    assert together.metrics["loss/total"] == pytest.approx(total, abs=1e-6)
    summed = plain.gradient + sum(single.gradient - plain.gradient for single in singles)
    assert_same_gradient(together.gradient, summed, 1e-5)


def test_the_gradient_of_all_of_them_is_that_of_the_equations() -> None:
    # L = L_policy(w · EA(A)) - 0.1 L_H - 0.2 [L_H - β L_smooth] + 0.4 BCE, at the second of four steps: β = 1 + e^-1.5.
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(2))
    written, flat = write_down(policy, episodes), Flat.of(episodes)
    added = naive_methods.ea(advantages_of(episodes), flat.entropy, 0.4, 2.0)
    loss = written.policy_loss([w * a for w, a in zip(aem_weights(flat), added, strict=True)])
    loss = loss + naive_methods.entropy_bonus(written.entropy, flat.episode, flat.turn, 0.1)
    numbers: dict[str, Any] = {"coefficient": 0.2, "beta": 1 + math.exp(-1.5), "alpha": 0.5, "low": 0.7, "high": 1.2}
    loss = loss + naive_methods.epo_loss(written.entropy, flat.episode, flat.turn, 1.5, **numbers)
    fresh = Seal(SealOptions(alpha=0.4, width=5), seed=3)
    classifier = [p.detach().double() for p in fresh._ready(torch.zeros(1, 32)).parameters()]
    logits = [naive_methods.seal_logit(state, classifier) for state in written.state]
    loss = loss + 0.4 * naive_methods.seal_loss(logits, flat.success, [True] * len(flat))
    ours = one_update(policy, episodes, chosen("actre", "epo", "seal", "bonus", "ea", "aem"), step=2)
    assert_same_gradient(ours.gradient, written.gradient(loss))
    assert ours.metrics["loss/total"] == pytest.approx(float(loss.detach()), abs=1e-5)


def aem_weights(flat: Flat) -> list[float]:
    return naive_methods.aem_weights(flat.entropy, flat.turn, flat.group, 1.0)


def test_packing_accumulation_and_order_of_episodes() -> None:
    names = ("actre", "ea", "epo", "aem", "seal", "bonus")

    class Together(Method):
        """All of them as one."""

        metrics = tuple(metric for part in chosen(*names) for metric in part.metrics)

        def __init__(self) -> None:
            super().__init__()
            self.parts = chosen(*names)

        def begin(self, step: int, tokens: Any) -> Any:
            return hooks.begin(self.parts, step, tokens)

        def shape(self, step: int, tokens: Any, advantage_N: Any) -> Any:
            return hooks.shaped(self.parts, step, tokens, advantage_N)[0]

        def loss(self, batch: Any, stats: Any) -> Any:
            terms = [term for part in self.parts if (term := part.loss(batch, stats))]
            return type(terms[0])(sum(term.loss for term in terms))

    check_packing(Together, 3, step=2)
    check_order(Together, 4, step=2)


# The order of methods


@settings(max_examples=40)
@given(EPISODES, st.permutations(["ea", "aem", "epo", "seal", "bonus", "actre"]), st.integers(0, 99))
def test_advantages_depend_on_the_order_of_ea_and_aem_alone(
    episodes: list[Episode], names: list[str], seed: int
) -> None:
    """They are applied in the order given; all others leave advantages alone."""
    flat, advantages = Flat.of(episodes), some_advantages(episodes, seed)
    expected = list(advantages)
    for name in names:
        if name == "ea":
            expected = naive_methods.ea(expected, flat.entropy, 0.4, 2.0)
        elif name == "aem":
            expected = [w * a for w, a in zip(aem_weights(flat), expected, strict=True)]
    ours = advantages
    for method in chosen(*names):
        ours = shape(method, episodes, ours)
    assert ours == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_order_of_ea_and_aem_does_matter() -> None:
    for names in (["ea", "aem"], ["aem", "ea"]):
        made_here = make_methods(load_config(None, [f"methods={names}"]))
        assert [method.name for method in made_here] == names
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(5))
    first, second = (one_update(policy, episodes, chosen(*names)) for names in (("ea", "aem"), ("aem", "ea")))
    assert float((first.gradient - second.gradient).norm() / first.gradient.norm()) > 0.01


def test_the_order_of_the_others_does_not() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(6))
    orders = list(itertools.permutations(("epo", "seal", "bonus", "aem")))[::5]
    updates = [one_update(policy, episodes, chosen(*names), step=2) for names in orders]
    for update in updates[1:]:
        assert_same_gradient(update.gradient, updates[0].gradient, 1e-5)
        assert update.metrics == pytest.approx(updates[0].metrics, abs=1e-6)


@pytest.mark.parametrize("first", ["actre", "higher_temperature"])
def test_actre_is_laid_over_a_higher_temperature_in_either_order(first: str, model: Path, tmp_path: Path) -> None:
    # Branching tokens at ActRe's temperature, all others at the higher one.
    plan, other = RolloutPlan("think_act", 0.6), [ActRe(ActReOptions(temperature=1.5), steps=4), HigherTemperature()]
    for method in other if first == "actre" else reversed(other):
        plan = method.plan(1, plan)
    assert (plan.order, plan.temperature) == ("act_think", 1.2)
    assert plan.temperature_rule is not None
    tokenizer = PocketTokens([])
    rule = plan.temperature_rule(tokenizer, ("a", "b"), plan.temperature, ("action",))
    assert rule is not None
    assert [rule([], 0.0), rule(tokenizer.answer("<action>"), 0.0)] == [1.2, 1.5]
    names = sorted(("actre", "higher_temperature"), reverse=first != "actre")
    changes = ("method.actre={temperature=1.5, switch=1.0}", "run.steps=1")
    out = play_run(model, tmp_path / "run", f"methods={names}", *changes)
    turns = [turn for e in read_episodes(out / "episodes/step-000001.parquet") for turn in e.turns]
    assert {t for turn in turns for t in turn.temperatures} == {np.float32(1.2), np.float32(1.5)}
    assert 0 < steps_of(out)[0]["actre/branching"] < 1


def test_no_token_is_called_a_branching_one_if_none_is(model: Path, tmp_path: Path) -> None:
    settings = "method.actre={variant='no_high_temperature', switch=1.0}"
    out = play_run(model, tmp_path / "run", "methods=['actre','higher_temperature']", settings)
    assert [step["actre/branching"] for step in steps_of(out)] == [0, 0]


def test_methods_do_not_share_their_numbers() -> None:
    # Each one's metrics have names of its own, so none hides another's.
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(7))
    own: list[set[str]] = []
    plain = set(one_update(policy, episodes, step=2).metrics)
    for name in ("ea", "aem", "epo", "seal", "bonus", "actre"):
        own.append(set(one_update(policy, episodes, chosen(name), step=2).metrics) - plain)
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(own, 2))
    assert np.all([len(keys) > 0 for keys in own])
