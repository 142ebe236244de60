"""Calls the hooks of a part one by one, as an update does, and notes what is wrong with what they give and leave."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from isentrope.config.schema import LearnSettings
from isentrope.core.advantage import Advantage
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.part import Part, calling
from isentrope.core.types import Episode, Floats, RolloutPlan, StepTokens, Targets, TokenBatch
from isentrope.learning import hooks
from isentrope.learning.credit import Credit, assign_credit
from isentrope.learning.objective import policy_loss
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.methods.conformance.lab import Lab, planned, tiny_policy
from isentrope.models.policy import Policy

LEARN = LearnSettings()
_COPY = "work on a copy, as in x_N = x_N.copy() or x_N.clone()"


@dataclass
class Walk:
    """What was found, each in a sentence that names part and hook."""

    part: Part
    values: list[str] = field(default_factory=list[str])  # not finite
    gradients: list[str] = field(default_factory=list[str])
    inputs: list[str] = field(default_factory=list[str])  # changed in place
    called: set[str] = field(default_factory=set[str])  # hooks that gave something
    norm: float = 0.0  # of the gradients that its losses had, added up

    def say(self, where: list[str], hook: str, text: str) -> None:
        where.append(f"{self.part.what} {self.part.name or type(self.part).__name__}, hook {hook}: {text}")

    def finite(self, hook: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if not bool(torch.isfinite(torch.as_tensor(value)).all()):
                self.say(self.values, hook, f"{name} is not finite; look for a division by 0 or the log of one")

    @contextmanager
    def unchanged(self, hook: str, **records: object) -> Generator[None]:
        before = dict(leaves(records))
        yield
        after = dict(leaves(records))
        changed = [path for path, value in before.items() if not _same(value, after.get(path))]
        if changed:
            self.say(self.inputs, hook, f"changed {', '.join(changed)} in place, which others read too; {_COPY}")

    def backward(self, hook: str, loss: Tensor, policy: Policy) -> None:
        """The gradient that reaches the policy."""
        if not loss.requires_grad or not bool(torch.isfinite(loss)):
            return
        loss.backward()
        found = [p.grad for p in policy.module.parameters() if p.grad is not None]
        norm = float(torch.stack([gradient.norm() for gradient in found]).sum()) if found else 0.0
        if not np.isfinite(norm):
            self.say(self.gradients, hook, "the gradient is not finite; look for the root or the log of 0")
        self.norm += norm
        policy.module.zero_grad()


def leaves(value: object, path: str = "") -> Iterable[tuple[str, Any]]:
    """Copies of all arrays, tensors and plain values in a record, each with its path."""
    if isinstance(value, Tensor):
        yield path, value.detach().clone().numpy()
    elif isinstance(value, np.ndarray):
        yield path, cast("Any", value).copy()
    elif is_dataclass(value):
        for item in fields(value):
            yield from leaves(getattr(value, item.name), f"{path}.{item.name}")
    elif isinstance(value, Mapping):
        for key, child in cast("Mapping[str, object]", value).items():
            yield from leaves(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple):
        for place, child in enumerate(cast("list[object]", value)):
            yield from leaves(child, f"{path}[{place}]")
    else:
        yield path, value


def _same(old: Any, new: Any) -> bool:
    if not isinstance(old, np.ndarray):
        return bool(old == new)
    return cast("Any", np.array_equal)(old, new, equal_nan=old.dtype.kind == "f")


def walk(lab: Lab) -> Walk:
    """Three steps with a new object of the part's class. What it raises is not caught."""
    part, policy = lab.make(), tiny_policy()
    found = Walk(part)
    for step in (1, 2, 3):
        if isinstance(part, Method):
            _method(lab, found, part, policy, step)
        elif isinstance(part, Loss):
            _loss(lab, found, part, policy, step)
        elif isinstance(part, Advantage):
            _advantage(lab, found, part, step)
    hook = "loss" if isinstance(part, Method) else "per_token"
    if hook in found.called and found.norm == 0 and not found.gradients and not found.values:
        told = "no gradient reaches the policy; compute it from the stats that are given, without detach or no_grad"
        found.say(found.gradients, hook, told)
    return found


def batches(lab: Lab, step: int, advantage_N: Floats | None = None) -> Iterable[TokenBatch]:
    """The update of a step, piece by piece; the advantages are GRPO's if none are given."""
    sequences, tokens = flatten(lab.episodes[step])
    if advantage_N is None:
        advantage_N = assign_credit(lab.episodes[step], tokens, LEARN, 16).advantage_N
    return micro_batches(sequences, tokens, Targets(advantage_N, tokens.logp_N), micro_tokens=64)


def credited(advantage: Advantage, episodes: Sequence[Episode], tokens: StepTokens) -> Credit:
    """What the estimator gives, with a critic's values made up where it needs them."""
    values_N = np.sin(np.arange(len(tokens.logp_N), dtype=np.float32)) if advantage.needs_critic else None
    return assign_credit(episodes, tokens, LEARN, 16, value_N=values_N, advantage=advantage)


def _method(lab: Lab, found: Walk, method: Method, policy: Policy, step: int) -> None:
    planned(method, step, policy)
    with calling(method, "evaluation"):
        plan = method.evaluation(RolloutPlan())
        if not isinstance(cast(object, plan), RolloutPlan):
            raise ValueError(f"gave {plan!r:.60}: expected a RolloutPlan")
    episodes = lab.episodes[step]
    tokens = flatten(episodes)[1]
    advantage_N = assign_credit(episodes, tokens, LEARN, 16).advantage_N
    with found.unchanged("begin", tokens=tokens):
        found.finite("begin", hooks.begin([method], step, tokens))
    with found.unchanged("shape", tokens=tokens, advantage_N=advantage_N):
        shaped_N, metrics = hooks.shaped([method], step, tokens, advantage_N)
    found.finite("shape", {"an advantage": shaped_N} | metrics)
    for batch in batches(lab, step, shaped_N):
        stats = policy.stats(batch)
        with found.unchanged("weigh", batch=batch, stats=stats):
            weight_N = hooks.weights([method], batch, stats)
        if weight_N is not None:
            found.called.add("weigh")
        with found.unchanged("loss", batch=batch, stats=stats):
            losses, figures = hooks.terms([method], batch, stats)
        for loss in losses:
            found.called.add("loss")
            found.finite("loss", {"the loss": loss.detach()} | figures)
            found.backward("loss", loss, policy)
    hooks.updated([method], True)


def _loss(lab: Lab, found: Walk, loss: Loss, policy: Policy, step: int) -> None:
    for batch in batches(lab, step):
        stats = policy.stats(batch)
        with found.unchanged("per_token", batch=batch, stats=stats):
            loss_N = policy_loss(batch, stats, loss)
        found.called.add("per_token")
        found.finite("per_token", {"a loss": loss_N.detach()})
        found.backward("per_token", loss_N.sum(), policy)


def _advantage(lab: Lab, found: Walk, advantage: Advantage, step: int) -> None:
    episodes = lab.episodes[step]
    tokens = flatten(episodes)[1]
    with found.unchanged("estimate", episodes=episodes, tokens=tokens):
        credit = credited(advantage, episodes, tokens)
    found.finite("estimate", {"an advantage": credit.advantage_N} | credit.metrics)
    if credit.return_N is not None:
        found.finite("estimate", {"a return": credit.return_N})
