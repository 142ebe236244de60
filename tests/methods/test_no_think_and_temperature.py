"""The two methods that only change how episodes are played, and what is refused before anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.config.load import load_config
from isentrope.config.schema import AgentSettings, RunConfig
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.core.types import Episode, RolloutPlan
from isentrope.loop.evaluate import evaluation_plan
from isentrope.methods.higher_temperature import HigherTemperature, HigherTemperatureOptions
from isentrope.methods.no_think import NoThink
from isentrope.methods.registry import METHODS, make_methods
from isentrope.runs.episodes import read_episodes
from tests.methods.helpers import (
    EPISODES,
    advantages_of,
    assert_same_gradient,
    check_order,
    check_packing,
    check_zero,
    loss_of,
    one_update,
    sampled_by,
    seen,
    shape,
    sharp_policy,
    some_advantages,
    usual,
    write_down,
)
from tests.methods.runs import assert_same_run, play_run, records, steps_of, weights

PLAN = RolloutPlan("think_act", 0.6, None, {"kept": 1.0})


def hotter(temperature: float = 1.2) -> HigherTemperature:
    return HigherTemperature(HigherTemperatureOptions(temperature=temperature))


# Higher temperature


@given(st.integers(1, 99), st.floats(0.1, 5), st.floats(0.1, 5))
def test_the_plan_has_the_temperature_and_nothing_else_changes(step: int, base: float, temperature: float) -> None:
    plan = replace(PLAN, temperature=base)
    assert hotter(temperature).plan(step, plan) == replace(plan, temperature=temperature)
    assert hotter(temperature).evaluation(plan) == plan


def test_all_training_tokens_are_sampled_at_it_and_evaluation_keeps_its_own(model: Path, tmp_path: Path) -> None:
    out = play_run(model, tmp_path / "run", "methods=['higher_temperature']", "rollout.temperature=0.6")
    for step in (1, 2):
        episodes = read_episodes(out / "episodes" / f"step-00000{step}.parquet")
        found = np.concatenate([turn.temperatures for e in episodes for turn in e.turns])
        assert found == pytest.approx(np.full(len(found), 1.2))
    for step in (0, 2):
        episodes = read_episodes(out / "episodes" / f"eval-00000{step}-seen.parquet")
        found = np.concatenate([turn.temperatures for e in episodes for turn in e.turns])
        assert found == pytest.approx(np.full(len(found), 0.4))
    first = steps_of(out)[0]  # the first update is on the policy that sampled, at the temperature it sampled with
    assert first["ratio/min"] == pytest.approx(1, abs=1e-4)
    assert first["ratio/max"] == pytest.approx(1, abs=1e-4)


def test_it_equals_a_recipe_with_that_temperature(model: Path, baseline: Path, tmp_path: Path) -> None:
    # At the recipe's own temperature it does nothing; at another it is that recipe.
    zero = play_run(model, tmp_path / "a", "methods=['higher_temperature']", "method.higher_temperature.temperature=1")
    assert_same_run(zero, baseline)
    hot = play_run(model, tmp_path / "b", "methods=['higher_temperature']")
    recipe = play_run(model, tmp_path / "c", "rollout.temperature=1.2")
    assert_same_run(hot, recipe)
    assert weights(hot) != weights(baseline)


@pytest.mark.parametrize("full", [True, False])
def test_the_gradient_is_that_at_the_higher_temperature(full: bool) -> None:
    policy = sharp_policy()
    hot = [
        replace(e, turns=tuple(replace(t, temperatures=np.full_like(t.temperatures, 1.2)) for t in e.turns))
        for e in usual(1, full)
    ]
    episodes = sampled_by(policy, hot)
    written = write_down(policy, episodes)
    ours = one_update(policy, episodes, [hotter()])
    assert_same_gradient(ours.gradient, written.gradient(written.policy_loss(advantages_of(episodes))))


# No thinking


@given(st.integers(1, 99), st.sampled_from(("think_act", "act_think", "act")))
def test_the_order_is_act_in_training_and_evaluation(step: int, order: str) -> None:
    plan = replace(PLAN, order=order)
    assert NoThink().plan(step, plan) == NoThink().evaluation(plan) == replace(plan, order="act")


def test_no_think_equals_a_recipe_with_that_order(model: Path, tmp_path: Path) -> None:
    recipe = play_run(model, tmp_path / "recipe", "agent.order=act")
    for i, order in enumerate(("think_act", "act")):
        run = play_run(model, tmp_path / str(i), "methods=['no_think']", f"agent.order={order}")
        assert_same_run(run, recipe)
        for name in ("step-000001", "step-000002", "eval-000000-seen", "eval-000002-seen"):
            episodes = read_episodes(run / "episodes" / f"{name}.parquet")
            assert {episode.order for episode in episodes} == {"act"}
    assert any(step["valid_ratio"] > 0.5 for step in steps_of(run))
    assert "eval/seen/success" in records(run)[0]


def test_the_plan_of_an_evaluation() -> None:
    for methods, order in (
        (("no_think",), "act"),
        (("actre",), "think_act"),
        ((), "think_act"),
        (("epo",), "think_act"),
    ):
        plan = evaluation_plan(RunConfig(methods=methods))
        assert (plan.order, plan.temperature, plan.temperature_rule) == (order, 0.4, None)
    assert evaluation_plan(RunConfig(agent=AgentSettings(order="act_think"))).order == "act_think"


# Both


@pytest.mark.parametrize("make", [hotter, NoThink])
def test_they_touch_neither_advantages_nor_loss_nor_state(make: type[Method]) -> None:
    check_zero(make(), "nothing")
    check_packing(make, 2)
    check_order(make, 3)
    policy, method = sharp_policy(), make()
    episodes = sampled_by(policy, usual(4))
    assert torch.equal(one_update(policy, episodes, [method]).gradient, one_update(policy, episodes).gradient)
    assert method.state_dict() == {}
    with pytest.raises(ValueError, match="keeps no state"):
        method.load_state_dict({"x": 1})


@settings(max_examples=25)
@given(EPISODES)
def test_any_episodes_pass_through(episodes: list[Episode]) -> None:
    for method in (hotter(), NoThink()):
        advantages = some_advantages(episodes)
        assert shape(method, episodes, advantages) == advantages
        assert loss_of(method, episodes, np.zeros(len(advantages), dtype=np.float32)) == 0
        assert seen(method) == {}


# What is refused


def refused(*changes: str) -> str:
    with pytest.raises(ConfigError) as caught:
        make_methods(load_config(None, changes))
    return str(caught.value)


def test_only_one_method_may_set_the_form_of_a_response() -> None:
    for methods in ("['actre','no_think']", "['no_think','epo','actre']"):
        text = refused(f"methods={methods}")
        assert "only one may set the form of a response" in text
        assert "no_think asks for act" in text
        assert "actre asks for act_think then think_act" in text
        assert "Leave one of them out" in text


@pytest.mark.parametrize(
    ("method", "order", "fine"),
    [
        ("actre", "think_act", True), ("actre", "act", False), ("actre", "act_think", False),
        ("no_think", "think_act", True), ("no_think", "act", True), ("no_think", "act_think", False),
        ("epo", "act_think", True), ("epo", "act", True),
    ],
)  # fmt: skip
def test_the_recipe_must_not_ask_for_another_form(method: str, order: str, fine: bool) -> None:
    changes = (f"methods=['{method}']", f"agent.order={order}")
    if fine:
        assert len(make_methods(load_config(None, changes))) == 1
    else:
        text = refused(*changes)
        assert f'agent.order = "{order}" with methods = ["{method}"], which asks for' in text
        assert text.endswith("leave agent.order at think_act")


def test_unknown_methods_and_settings_are_named_with_the_nearest_one() -> None:
    assert "unknown method 'epoo'; did you mean epo?" in refused("methods=['epoo']")
    assert "unknown method 'no_thinking'; did you mean no_think?" in refused("methods=['no_thinking']")
    text = refused("methods=['zzz']")
    assert "did you mean" not in text
    assert all(name in text for name in METHODS)
    for setting, near in {
        "epo.kapa_low=1": "method.epo.kappa_low",
        "seal.aplha=1": "method.seal.alpha",
        "aem.strenght=1": "method.aem.strength",
        "actre.swich=1": "method.actre.switch",
        "ea.kapa=1": "method.ea.kappa",
        "entropy_bonus.coeficient=1": "method.entropy_bonus.coefficient",
        "higher_temperature.temprature=1": "method.higher_temperature.temperature",
    }.items():
        name = setting.split(".")[0]
        text = refused(f"methods=['{name}']", f"method.{setting}")
        assert f"method.{setting.split('=')[0]} = 1: no such setting; did you mean {near}?" in text
    assert "no such setting" in refused("methods=['no_think']", "method.no_think.x=1")


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("entropy_bonus.coefficient=-1", "expected"),
        ("entropy_bonus.aggregation=turns", "did you mean turn?"),
        ("epo.penalty=hing", "did you mean hinge?"),
        ("epo.variant=epo_base", "base"),
        ("ea.kappa=0", "expected"),
        ("seal.width=0", "expected"),
        ("seal.lr=0", "expected"),
        ("seal.groups=mixd", "did you mean mixed?"),
        ("aem.leave_out=fallin", "did you mean falling?"),
        ("actre.switch=-1", "expected"),
        ("actre.temperature=0", "expected"),
        ("actre.quantile=1.1", "expected"),
        ("actre.branching=tree", "did you mean trie?"),
        ("higher_temperature.temperature=0", "expected"),
        ("higher_temperature.temperature='hot'", "expected"),
    ],
)
def test_values_out_of_their_limits_are_refused(setting: str, part: str) -> None:
    text = refused(f"methods=['{setting.split('.')[0]}']", f"method.{setting}")
    assert f"method.{setting.split('=')[0]} = " in text
    assert part in text


def test_settings_of_a_method_that_is_not_there_and_a_method_named_twice_are_refused() -> None:
    assert 'add methods = ["epo"]' in refused("method.epo.alpha=1")
    assert "methods lists epo more than once" in refused("methods=['epo','epo']")
