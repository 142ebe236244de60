"""What methods may do in an update, and what is said of a method that does something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.config.kinds import ClipOptions
from isentrope.core.errors import TrainError
from isentrope.core.method import Method
from isentrope.core.metric import Metric
from isentrope.core.types import Shaped, Term
from isentrope.learning.hooks import clipped
from isentrope.learning.losses.clipped import Clip
from tests.methods.helpers import one_update, sampled_by, sharp_policy, usual


def method_with(**hooks: Any) -> Method:
    return type("Mine", (Method,), {"name": "mine", **hooks})()


def updated(method: Method) -> Any:
    policy = sharp_policy()
    return one_update(policy, sampled_by(policy, usual(1)), [method])


def raises(*_: Any) -> Any:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("hook", ["begin", "shape", "weigh", "loss", "updated"])
def test_a_hook_that_raises_is_named(hook: str) -> None:
    with pytest.raises(TrainError, match=f"method mine, hook {hook}: raised ZeroDivisionError: division by zero"):
        updated(method_with(**{hook: raises}))


@pytest.mark.parametrize(
    ("hook", "given", "said"),
    [
        ("begin", 3, "gave 3: expected metrics"),
        ("begin", {"mine/x": "high"}, "the metric 'mine/x' = 'high'"),
        ("shape", None, "gave None: expected"),
        ("shape", np.zeros(2, dtype=np.float32), r"gave ndarray of shape \(2,\): expected"),
        ("shape", np.zeros(2, dtype=np.int64), "expected"),
        ("weigh", 1.0, "gave 1.0: expected a tensor"),
        ("weigh", torch.ones(2), r"gave Tensor of shape \(2,\)"),
        ("loss", 1.0, "gave 1.0: expected None or a Term"),
        ("loss", Term(torch.ones(2)), "expected None or a Term whose loss is a tensor of one number"),
    ],
)
def test_what_a_hook_may_not_give(hook: str, given: Any, said: str) -> None:
    with pytest.raises(TrainError, match=f"method mine, hook {hook}: .*{said}"):
        updated(method_with(**{hook: lambda *_: given}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_weights_are_finite_and_not_negative(value: float) -> None:
    method = method_with(weigh=lambda self, batch, stats: torch.full_like(stats.logp_N, value))
    with pytest.raises(TrainError, match=f"method mine, hook weigh: gave .* weights like {value}"):
        updated(method)


def test_weights_multiply_the_policy_loss() -> None:
    # Half of every token's weight is half of the gradient; a weight that follows the token is its own weighted sum.
    plain, ones = (
        updated(Method()),
        updated(method_with(weigh=lambda self, batch, stats: torch.ones_like(stats.logp_N))),
    )
    half = updated(method_with(weigh=lambda self, batch, stats: torch.full_like(stats.logp_N, 0.5)))
    assert torch.equal(ones.gradient, plain.gradient)
    torch.testing.assert_close(half.gradient, plain.gradient / 2)
    # no gradient flows through a weight, although it is made of the policy's own numbers
    sure = updated(method_with(weigh=lambda self, batch, stats: torch.exp(stats.logp_N)))
    assert torch.isfinite(sure.gradient).all()
    assert not torch.equal(sure.gradient, plain.gradient)


def test_two_methods_weights_are_multiplied_and_the_kl_stays() -> None:
    half = method_with(weigh=lambda self, batch, stats: torch.full_like(stats.logp_N, 0.5))
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(1))
    quarter = one_update(policy, episodes, [half, method_with(weigh=type(half).weigh)])
    torch.testing.assert_close(quarter.gradient, one_update(policy, episodes, []).gradient / 4)


def test_what_is_recorded() -> None:
    method = method_with(
        begin=lambda self, step, tokens: {"mine/begun": step},
        shape=lambda self, step, tokens, advantage_N: Shaped(advantage_N, {"mine/shaped": 2.0}),
        metrics=(Metric("mine/begun", "which step it is"), Metric("mine/shaped", "two")),
    )
    metrics = updated(method).metrics
    assert (metrics["mine/begun"], metrics["mine/shaped"]) == (1, 2)


def test_a_controller_sets_the_upper_clip() -> None:
    def begin(self: Method, step: int, tokens: Any) -> dict[str, float]:
        self.clip_high = 0.1
        return {}

    loss = Clip(ClipOptions(clip_low=0.25, clip_high=0.3))
    method = method_with(begin=begin)
    assert clipped([Method(), method], loss) is loss
    method.begin(1, None)  # type: ignore[arg-type]
    assert clipped([Method(), method, Method()], loss).clip == (0.25, 0.1)
    assert loss.clip == (0.25, 0.3)
    for value, said in ((float("nan"), "nan"), (0, "0"), (-0.1, "-0.1"), (float("inf"), "inf"), ("high", "'high'")):
        method.clip_high = value  # type: ignore[assignment]
        with pytest.raises(TrainError, match=f"method mine, hook begin: clip_high = {said}: expected a number above 0"):
            clipped([method], loss)


@pytest.mark.parametrize("hook", ["begin", "shape", "loss"])
def test_a_metric_that_the_class_does_not_declare_is_an_error(hook: str) -> None:
    gives: dict[str, Callable[..., Any]] = {
        "begin": lambda self, step, tokens: {"mine/x": 1.0, "mine/y": 2.0},
        "shape": lambda self, step, tokens, advantage_N: Shaped(advantage_N, {"mine/x": 1.0, "mine/y": 2.0}),
        "loss": lambda self, batch, stats: Term(stats.logp_N.sum() * 0, {"mine/x": 1.0, "mine/y": 2.0}),
    }
    declared = (Metric("mine/x", "one"),)
    said = f"method mine, hook {hook}: gave the metric 'mine/y', which `metrics` of its class does not declare"
    with pytest.raises(TrainError, match=said + r" \(there: mine/x\)"):
        updated(method_with(**{hook: gives[hook]}, metrics=declared))
    both = (*declared, Metric("mine/{name}", "any other"))
    assert updated(method_with(**{hook: gives[hook]}, metrics=both)).metrics["mine/y"] == 2
