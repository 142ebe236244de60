"""Advantage estimators and losses from outside: equal to ours where they compute the same, and what is said of those
that do something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.config.load import load_config
from isentrope.config.schema import Choice, LearnSettings, RolloutSettings, RunConfig, RunSettings, setting
from isentrope.core.advantage import Advantage, Estimate, Outcomes
from isentrope.core.errors import ConfigError, TrainError
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Floats, StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning.learner import Learner
from isentrope.learning.registry import make_advantage, make_loss, part_problems
from isentrope.methods.options import option_problems
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy

HERE = __name__
SETTINGS = LearnSettings(lr=1e-2, warmup=0.0, kl=0.05, mini_batches=2, micro_tokens=200)


def learner_of(settings: LearnSettings, methods: list[Method] | None = None, steps: int = 3) -> Learner:
    config = RunConfig(run=RunSettings(steps=steps), learn=settings)
    return Learner(small_policy(), small_policy(seed=9) if settings.kl else None, config, methods or [])


def after_two_steps(settings: LearnSettings) -> tuple[torch.Tensor, list[dict[str, float]]]:
    learner = learner_of(settings)
    metrics = [learner.learn(step, make_episodes(step)).metrics for step in (1, 2)]
    return torch.cat([p.detach().flatten() for p in learner.policy.module.parameters()]), metrics


def with_part(settings: LearnSettings, name: str, kind: str, **options: Any) -> LearnSettings:
    return replace(settings, **{name: Choice(f"{HERE}:{kind}", options)})  # type: ignore[arg-type]


# The same as ours


@dataclass(frozen=True)
class CentredOptions:
    scale: float = setting(1.0, "what advantages are multiplied with", above=0)


class Centred(Advantage):
    """GRPO without its division."""

    name = "centred"
    options_class = CentredOptions
    options: CentredOptions
    metrics = (Metric("centred/largest", "The largest advantage."), Metric("centred/group/{number}", "A group's mean."))
    compares_groups = True

    def estimate(self, outcomes: Outcomes) -> Estimate:
        centred_E, means = np.zeros(len(outcomes.episodes)), dict[str, float]()
        for group in np.unique(outcomes.group_E):
            members = outcomes.group_E == group
            returns = outcomes.return_E[members]
            means[f"centred/group/{group}"] = float(returns.mean())
            if not np.all(returns == returns[0]):
                centred_E[members] = self.options.scale * (returns - returns.mean())
        largest = {"centred/largest": float(centred_E.max())}
        return Estimate(outcomes.per_token(centred_E[outcomes.episode_U]), metrics=largest | means)


@dataclass(frozen=True)
class BoundOptions:
    clip_low: float = setting(0.2, "below", above=0)
    clip_high: float = setting(0.2, "above", above=0)


class Bound(Loss):
    """PPO's."""

    name = "bound"
    options_class = BoundOptions
    options: BoundOptions

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> torch.Tensor:
        ratio = torch.exp((stats.logp_N - batch.old_logp_N).clamp(-20, 20))
        limited = ratio.clamp(1 - self.options.clip_low, 1 + self.options.clip_high)
        return -torch.minimum(ratio * batch.advantage_N, limited * batch.advantage_N)


class Plain(Loss):
    name = "plain"
    on_policy = True

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> torch.Tensor:
        return -batch.advantage_N * stats.logp_N


def test_an_estimator_that_computes_what_ours_does_gives_the_same_run() -> None:
    ours = replace(SETTINGS, advantage=Choice("grpo", {"divide_by_std": False}))
    weights, metrics = after_two_steps(ours)
    theirs, seen = after_two_steps(with_part(SETTINGS, "advantage", "Centred"))
    assert torch.equal(weights, theirs)
    own = [{key for key in step if key.startswith("centred/")} for step in seen]
    assert own == [{"centred/largest", "centred/group/0", "centred/group/1", "centred/group/2"}] * 2
    assert [{key: value for key, value in step.items() if key not in own[0]} for step in seen] == metrics
    twice, _ = after_two_steps(with_part(SETTINGS, "advantage", "Centred", scale=2.0))
    assert not torch.equal(weights, twice)


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.01, 0.02)])
def test_a_loss_that_computes_what_ours_does_gives_the_same_run(low: float, high: float) -> None:
    options = {"clip_low": low, "clip_high": high}
    weights, metrics = after_two_steps(replace(SETTINGS, loss=Choice("clip", options)))
    theirs, seen = after_two_steps(with_part(SETTINGS, "loss", "Bound", **options))
    assert torch.equal(weights, theirs)
    assert seen == metrics
    assert metrics[0]["clip/fraction"] > 0


def test_a_loss_without_a_clip_says_nothing_of_one() -> None:
    once = replace(SETTINGS, mini_batches=1)
    weights, metrics = after_two_steps(replace(once, loss=Choice("policy_gradient")))
    theirs, seen = after_two_steps(with_part(once, "loss", "Plain"))
    assert torch.equal(weights, theirs)
    assert seen == metrics
    assert not any(key.startswith("clip/") for step in seen for key in step)


def test_they_are_named_in_settings() -> None:
    config = load_config(
        None,
        [f"learn.advantage={HERE}:Centred", "learn.advantage.scale=2", f"learn.loss={HERE}:Plain", "run.steps=3"],
        option_problems,
    )
    advantage = make_advantage(config.learn)
    assert isinstance(advantage, Centred)
    assert advantage.options == CentredOptions(2.0)
    assert isinstance(make_loss(config.learn), Plain)
    assert part_problems(config) == []


def test_what_does_not_fit_the_other_settings() -> None:
    config = RunConfig(learn=with_part(LearnSettings(), "advantage", "Centred"), rollout=RolloutSettings(group_size=1))
    assert part_problems(config) == [
        f'rollout.group_size = 1 with learn.advantage.kind = "{HERE}:Centred": it compares the episodes of a group '
        "with each other; use 2 or more"
    ]
    config = RunConfig(learn=with_part(LearnSettings(epochs=2, mini_batches=3), "loss", "Plain"))
    [problem] = part_problems(config)
    assert problem.startswith(f'learn.loss.kind = "{HERE}:Plain" with 6 updates per step: without a ratio only')


# What an estimator may not do


class Odd(Advantage):
    """Gives what it was told to."""

    name = "odd"
    metrics = (Metric("odd/known", "A number."),)
    give: Callable[[Outcomes], Any]

    def estimate(self, outcomes: Outcomes) -> Estimate:
        return type(self).give(outcomes)


def ones(outcomes: Outcomes) -> Floats:
    return np.ones(len(outcomes.turn_N), dtype=np.float32)


def spoilt(outcomes: Outcomes, value: float) -> Estimate:
    return Estimate(np.where(np.arange(len(outcomes.turn_N)) == 4, value, 1.0))


def divided(outcomes: Outcomes) -> Estimate:
    raise ZeroDivisionError("division by zero")


WRONG: dict[str, tuple[Callable[[Outcomes], Any], str]] = {
    "one per episode": (
        lambda o: Estimate(o.return_E),
        r"gave ndarray of shape \(\d+,\) as advantages: expected",
    ),
    "two columns": (lambda o: Estimate(np.ones((len(o.turn_N), 2))), r"gave ndarray of shape \(\d+, 2\) as advantages"),
    "a list": (
        lambda o: Estimate(ones(o).tolist()),
        r"gave \[1.0, 1.0.* as advantages: expected \d+ floats",
    ),
    "a tensor": (lambda o: Estimate(torch.ones(len(o.turn_N))), r"gave Tensor of shape \(\d+,\) as advantages"),  # type: ignore[arg-type]
    "integers": (
        lambda o: Estimate(ones(o).astype(np.int64)),
        r"gave ndarray .* as advantages: expected \d+ floats",
    ),
    "nan": (lambda o: spoilt(o, np.nan), "gave 1 advantages like nan, from finite rewards: expected finite ones"),
    "infinity": (lambda o: spoilt(o, -np.inf), "gave 1 advantages like -inf, from finite rewards"),
    "no estimate": (ones, "raised AttributeError: .*'metrics'"),
    "nothing": (lambda o: None, "raised AttributeError: "),
    "an unknown metric": (
        lambda o: Estimate(ones(o), metrics={"odd/known": 1.0, "odd/unknown": 2.0}),
        r"gave the metric 'odd/unknown', which `metrics` of its class does not declare \(there: odd/known\)",
    ),
    "a metric that is text": (
        lambda o: Estimate(ones(o), metrics={"odd/known": "high"}),  # type: ignore[dict-item]
        "gave the metric 'odd/known' = 'high': expected a name and a number",
    ),
    "metrics that are none": (lambda o: Estimate(ones(o), metrics=3), "gave 3: expected metrics"),  # type: ignore[arg-type]
    "an error": (divided, "raised ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_estimator_that_does_something_else_is_named(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give, said = WRONG[case]
    monkeypatch.setattr(Odd, "give", staticmethod(give), raising=False)
    learner = learner_of(with_part(SETTINGS, "advantage", "Odd"))
    before = [p.clone() for p in learner.policy.module.parameters()]
    with pytest.raises(TrainError, match=f"advantage estimator odd, hook estimate: {said}"):
        learner.learn(1, make_episodes(3))
    assert all(torch.equal(a, b) for a, b in zip(before, learner.policy.module.parameters(), strict=True))


def test_it_is_called_by_its_class_where_it_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "give", staticmethod(divided), raising=False)
    monkeypatch.setattr(Odd, "name", "")
    with pytest.raises(TrainError, match="advantage estimator Odd, hook estimate: raised ZeroDivisionError"):
        learner_of(with_part(SETTINGS, "advantage", "Odd")).learn(1, make_episodes(3))


def test_rewards_that_are_not_finite_are_not_its_fault() -> None:
    """They cost the tokens of their group, as with our own estimators."""
    episodes = make_episodes(3)
    first = episodes[0]
    turns = (replace(first.turns[0], reward=float("nan")), *first.turns[1:])
    episodes = [replace(first, turns=turns), *episodes[1:]]
    for settings in (SETTINGS, with_part(SETTINGS, "advantage", "Centred")):
        metrics = learner_of(settings).credit(1, episodes).metrics
        lost = sum(len(t.response_ids) for e in episodes if e.group == first.group for t in e.turns)
        assert metrics["update/dropped_tokens"] == lost


class Uncritical(Advantage):
    name = "uncritical"
    needs_critic = True

    def estimate(self, outcomes: Outcomes) -> Estimate:
        assert outcomes.value_N is not None
        return Estimate(ones(outcomes))


def test_one_that_needs_a_critic_has_to_say_what_it_learns() -> None:
    learner = learner_of(with_part(replace(SETTINGS, kl=0.0), "advantage", "Uncritical"))
    assert learner.critic is not None
    with pytest.raises(TrainError, match="advantage estimator uncritical, hook estimate: gave None as returns"):
        learner.learn(1, make_episodes(3))


# What a loss may not do


class Strange(Loss):
    name = "strange"
    give: Callable[[TokenBatch, TokenStats], Any]

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> torch.Tensor:
        return type(self).give(batch, stats)


def raised(batch: TokenBatch, stats: TokenStats) -> torch.Tensor:
    raise KeyError("margin")


WRONG_LOSSES: dict[str, tuple[Callable[[TokenBatch, TokenStats], Any], str]] = {
    "a sum": (lambda b, s: s.logp_N.sum(), r"gave Tensor of shape \(\): expected a tensor of shape \(\d+,\)"),
    "too few": (lambda b, s: s.logp_N[:-1], r"gave Tensor of shape \(\d+,\): expected a tensor of shape"),
    "an array": (lambda b, s: s.logp_N.detach().numpy(), r"gave ndarray of shape \(\d+,\): expected a tensor"),
    "nothing": (lambda b, s: None, "gave None: expected a tensor"),
    "no gradient": (lambda b, s: s.logp_N.detach(), "gave a loss without gradient: expected one that is computed from"),
    "integers": (lambda b, s: b.turn_N, "gave a loss without gradient"),
    "an error": (raised, "raised KeyError: 'margin'"),
}


@pytest.mark.parametrize("case", WRONG_LOSSES)
def test_a_loss_that_does_something_else_is_named(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give, said = WRONG_LOSSES[case]
    monkeypatch.setattr(Strange, "give", staticmethod(give), raising=False)
    with pytest.raises(TrainError, match=f"loss strange, hook per_token: {said}"):
        learner_of(with_part(SETTINGS, "loss", "Strange")).learn(1, make_episodes(3))


def test_a_loss_that_is_not_finite_leaves_the_policy_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with our own: the update is left out and counted, and too many in a row end the run."""
    monkeypatch.setattr(Strange, "give", staticmethod(lambda b, s: s.logp_N * float("nan")), raising=False)
    learner = learner_of(with_part(replace(SETTINGS, max_skips=2), "loss", "Strange"))
    before = [p.clone() for p in learner.policy.module.parameters()]
    assert learner.learn(1, make_episodes(3)).metrics["update/skipped"] == 2
    with pytest.raises(TrainError, match="3 updates in a row had a non-finite loss"):
        learner.learn(2, make_episodes(3))
    assert all(torch.equal(a, b) for a, b in zip(before, learner.policy.module.parameters(), strict=True))


# What is no part


class Unwritten(Advantage):
    name = "unwritten"


class UnwrittenLoss(Loss):
    name = "unwritten"


class Refusing(Advantage):
    def __init__(self, options: Any = None) -> None:
        raise RuntimeError("not on a Monday")

    def estimate(self, outcomes: Outcomes) -> Estimate:
        return Estimate(ones(outcomes))


class Unsettled(Plain):
    options_class = dict


@dataclass(frozen=True)
class PickyOptions:
    low: float = setting(0.1, "low")
    high: float = setting(0.2, "high")

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} must be at most high = {self.high}")


class Picky(Plain):
    options_class = PickyOptions


def a_function(outcomes: Outcomes) -> Estimate:
    return Estimate(ones(outcomes))


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("advantage", f"{HERE}:a_function", "is <function a_function at .* expected a subclass of isentrope.Advantage"),
        ("advantage", f"{HERE}:HERE", "is 'tests.learning.test_outside', expected a subclass of isentrope.Advantage"),
        ("advantage", f"{HERE}:Plain", "is <class .*Plain'>, expected a subclass of isentrope.Advantage"),
        ("loss", f"{HERE}:Centred", "is <class .*Centred'>, expected a subclass of isentrope.Loss"),
        ("advantage", f"{HERE}:Unwritten", "could not make the advantage estimator .*abstract.*estimate"),
        ("loss", f"{HERE}:UnwrittenLoss", "could not make the loss .*abstract.*per_token"),
        ("advantage", f"{HERE}:Refusing", "could not make the advantage estimator .*: not on a Monday"),
        ("advantage", f"{HERE}:Missing", "could not load the advantage estimator .*has no attribute 'Missing'"),
        ("loss", "tests.learning.missing:Mine", "could not load the loss .*No module named 'tests.learning.missing'"),
        ("loss", "clipp", "no loss named 'clipp' .*; did you mean clip?"),
        ("loss", f"{HERE}:Unsettled", "learn.loss: its settings are <class 'dict'>, expected a dataclass"),
    ],
)
def test_what_is_no_part(name: str, kind: str, said: str) -> None:
    settings = replace(SETTINGS, **{name: Choice(kind)})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=said):
        learner_of(settings)


def test_a_check_of_its_own_settings_is_heard() -> None:
    settings = with_part(SETTINGS, "loss", "Picky", low=0.5)
    with pytest.raises(ConfigError, match=r"learn\.loss: low = 0\.5 must be at most high = 0\.2"):
        make_loss(settings)
    with pytest.raises(ConfigError, match=r"1 problem in the settings\n- learn\.loss: low = 0\.5 must be at most"):
        load_config(None, [f"learn.loss={HERE}:Picky", "learn.loss.low=0.5"], option_problems)


# Methods that change a loss's upper clip


class Raising(Method):
    name = "raising"

    def begin(self, step: int, tokens: StepTokens) -> dict[str, float]:
        self.clip_high = 1e-3 if step == 2 else None
        return {}


@pytest.mark.parametrize(
    ("loss", "name"), [(Choice("policy_gradient"), "policy_gradient"), (Choice(f"{HERE}:Plain"), "plain")]
)
def test_a_loss_without_an_upper_clip_has_none_to_change(loss: Choice, name: str) -> None:
    learner = learner_of(replace(SETTINGS, mini_batches=1, loss=loss), [Raising()])
    learner.learn(1, make_episodes(3))
    said = f"method raising, hook begin: set clip_high = 0.001, but the loss '{name}' has no clip_high to change"
    with pytest.raises(TrainError, match=said):
        learner.learn(2, make_episodes(3))


def test_an_outside_loss_takes_the_clip_of_a_method_for_one_step() -> None:
    settings = replace(SETTINGS, old_logprobs="recompute", epochs=2, lr=1e-4)  # ratios near 1, on both sides of it
    learner = learner_of(with_part(settings, "loss", "Bound"), [Raising()])
    ours = learner_of(settings, [Raising()])
    clipped = list[float]()
    for step in (1, 2, 3):
        metrics = learner.learn(step, make_episodes(3)).metrics
        assert metrics == ours.learn(step, make_episodes(3)).metrics
        clipped.append(metrics["clip/high"])
    assert clipped[1] > max(clipped[0], clipped[2])
    assert learner.loss.clip == (0.2, 0.2)


# Metrics of the pieces of an update


class Measuring(Method):
    """Measures the same in three ways, and keeps what it saw of every piece."""

    name = "measuring"
    metrics = (
        Metric("measuring/lowest", "The least likely token.", "nats", "min"),
        Metric("measuring/{side}/extreme", "The likeliest token.", "nats", "max"),
        Metric("measuring/mean", "Mean over tokens.", "nats"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[list[torch.Tensor]] = [[]]

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term:
        logp_N = stats.logp_N.detach()
        self.updates[-1].append(logp_N)
        mean = (batch.weights["token"] * logp_N).sum()
        return Term(
            0.0 * stats.logp_N.sum(),
            {
                "measuring/lowest": float(logp_N.min()),
                "measuring/upper/extreme": float(logp_N.max()),
                "measuring/mean": float(mean),
            },
        )

    def updated(self, applied: bool) -> None:
        self.updates.append([])


@pytest.mark.parametrize("micro_tokens", [64, 10**6])
@pytest.mark.parametrize(("epochs", "minis"), [(1, 1), (2, 2)])
def test_extremes_of_pieces_are_extremes_and_shares_add_up(micro_tokens: int, epochs: int, minis: int) -> None:
    method = Measuring()
    settings = replace(SETTINGS, micro_tokens=micro_tokens, epochs=epochs, mini_batches=minis)
    metrics = learner_of(settings, [method]).learn(1, make_episodes(3)).metrics
    updates = [pieces for pieces in method.updates if pieces]
    assert len(updates) == epochs * minis
    assert (len(updates[0]) > 1) == (micro_tokens == 64)
    every = torch.cat([piece for pieces in updates for piece in pieces])
    assert metrics["measuring/lowest"] == float(every.min())
    assert metrics["measuring/upper/extreme"] == float(every.max())
    means = [float(torch.cat(pieces).mean()) for pieces in updates]
    assert metrics["measuring/mean"] == pytest.approx(np.mean(means), rel=1e-5)


@pytest.mark.parametrize(
    ("key", "reduction", "said"),
    [("", "mean", "metric ''"), ("a b", "mean", "metric 'a b': expected names"), ("a//b", "mean", "a//b"),
     ("a/b", "sum", "metric a/b: reduction 'sum': expected mean, min or max")],
)  # fmt: skip
def test_what_a_metric_may_not_be(key: str, reduction: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Metric(key, "something", "nats", reduction)
