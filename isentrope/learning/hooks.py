"""Calls the hooks of a run's methods in an update, in the methods' order, and checks what they give.

A hook that raises, or gives something of another shape or kind, ends the step with an error that names the method and
the hook. The run can be resumed from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from isentrope.core.errors import TrainError
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.part import Part, calling, check_declared, numbers, shape_of
from isentrope.core.types import Floats, Metrics, Shaped, StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning.group import Group
from isentrope.learning.records import EXTREMES, Extremes, Figures


def begin(methods: Sequence[Method], step: int, tokens: StepTokens) -> Metrics:
    """Show the step's tokens to every method; what the methods record."""
    metrics: Metrics = {}
    for method in methods:
        with calling(method, "begin"):
            metrics |= numbers(method, method.begin(step, tokens))
    return metrics


def clipped(methods: Sequence[Method], loss: Loss) -> Loss:
    """The loss of the step: with the upper clip of the last method that sets one, else as it is."""
    setting = [method for method in methods if method.clip_high is not None]
    if not setting:
        return loss
    value = setting[-1].clip_high
    with calling(setting[-1], "begin"):
        if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise ValueError(f"clip_high = {value!r}: expected a number above 0, or None for the loss's own")
        return loss.with_clip_high(float(value))


def extremes(parts: Sequence[Part], records: Iterable[Mapping[str, object]]) -> Extremes:
    """Those metrics of the records of which the smallest or largest value counts, as the parts declare it."""
    ways = {"min": min, "max": max}
    declared = [metric for part in parts for metric in part.metrics if metric.reduction in ways]
    keys = {key for record in records for key in record} if declared else set[str]()
    found = {key: ways[metric.reduction] for key in keys for metric in declared if metric.match(key) is not None}
    return {**EXTREMES, **found}


def shaped(methods: Sequence[Method], step: int, tokens: StepTokens, advantage_N: Floats) -> tuple[Floats, Metrics]:
    """The advantages as the methods leave them, and what the methods record of that."""
    metrics: Metrics = {}
    for method in methods:
        with calling(method, "shape"):
            given = method.shape(step, tokens, advantage_N)
            new_N, recorded = (given.advantage_N, given.metrics) if isinstance(given, Shaped) else (given, {})
            advantage_N = _one_for_each_token(new_N, advantage_N.shape)
            metrics |= numbers(method, recorded)
    return advantage_N, metrics


def weights(methods: Sequence[Method], batch: TokenBatch, stats: TokenStats) -> Tensor | None:
    """The product of what the methods multiply each token's policy loss with; None: no method weighs."""
    product_N: Tensor | None = None
    fixed: TokenStats | None = None
    for method in methods:
        if type(method).weigh is Method.weigh:
            continue
        if fixed is None:
            columns = (stats.logp_N, stats.entropy_N, stats.hidden_ND, stats.states_BTD)
            fixed = TokenStats(*(column.detach() for column in columns))
        with calling(method, "weigh"), torch.no_grad():
            given = cast(object, method.weigh(batch, fixed))
            if given is None:
                continue
            if not isinstance(given, Tensor) or given.shape != stats.logp_N.shape:
                raise ValueError(f"gave {shape_of(given)}: expected a tensor of shape {tuple(stats.logp_N.shape)}")
            if given.requires_grad:
                raise ValueError("gave weights with a gradient: expected plain factors, such as weight_N.detach()")
            wrong_N = ~(torch.isfinite(given) & (given >= 0))
            if bool(wrong_N.any()):
                first = float(given[wrong_N][0])
                raise ValueError(
                    f"gave {int(wrong_N.sum())} weights like {first}: expected finite weights of at least 0"
                )
            weight_N = given.to(stats.logp_N)
            product_N = weight_N if product_N is None else product_N * weight_N
    return product_N


def terms(methods: Sequence[Method], batch: TokenBatch, stats: TokenStats) -> tuple[list[Tensor], Figures]:
    """What the methods add to the loss, and what the methods record of it."""
    losses: list[Tensor] = []
    metrics: Figures = {}
    for method in methods:
        with calling(method, "loss"):
            term = cast(object, method.loss(batch, stats))
            if term is None:
                continue
            if (
                not isinstance(term, Term)
                or not isinstance(loss := cast(object, term.loss), Tensor)
                or loss.numel() != 1
            ):
                raise ValueError(f"gave {shape_of(term)}: expected None or a Term whose loss is a tensor of one number")
            check_declared(method, term.metrics)
            losses.append(loss)
            metrics |= term.metrics
    return losses, metrics


def own_weights(method: Method) -> list[nn.Parameter]:
    """A method's own: those of its attributes, and of what is in lists and tables of them."""
    found: dict[int, nn.Parameter] = {}

    def look(value: object, deep: int = 2) -> None:
        if isinstance(value, nn.Module):
            found.update({id(one): one for one in value.parameters()})
        elif isinstance(value, nn.Parameter):
            found[id(value)] = value
        elif deep and isinstance(value, dict | list | tuple):
            items = cast("dict[object, object] | list[object]", value)
            for one in list(items.values() if isinstance(items, dict) else items):
                look(one, deep - 1)

    for value in vars(method).values():
        look(value)
    return list(found.values())


def add_gradients(methods: Sequence[Method], group: Group) -> None:
    """Every rank gets the sum over the ranks of the gradients of methods' own weights."""
    if group.size == 1:
        return
    for method in methods:
        weights = own_weights(method)
        known = group.all_of([None if weight.grad is None else tuple(weight.shape) for weight in weights])
        if len({len(one) for one in known}) > 1:
            told = ", ".join(str(len(one)) for one in known)
            raise TrainError(f"method {method.name}: its ranks have {told} weights of their own; they must be the same")
        for number, weight in enumerate(weights):
            if any(one[number] is not None for one in known):
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad.contiguous()
                group.add(weight.grad)


def updated(methods: Sequence[Method], applied: bool) -> None:
    for method in methods:
        with calling(method, "updated"):
            method.updated(applied)


def states(methods: Sequence[Method]) -> dict[str, object]:
    """What has to survive a restart, by the methods' names."""
    kept: dict[str, object] = {}
    for method in methods:
        with calling(method, "state_dict"):
            kept[method.name] = method.state_dict()
    return kept


def load_states(methods: Sequence[Method], kept: Mapping[str, dict[str, object]]) -> None:
    for method in methods:
        if method.name not in kept:
            raise TrainError(
                f"the checkpoint has no state of the method {method.name!r}; it has {', '.join(kept) or 'none'}. "
                "Resume with the methods that the run began with"
            )
        with calling(method, "load_state_dict"):
            method.load_state_dict(dict(kept[method.name]))


def _one_for_each_token(value: object, shape: tuple[int, ...]) -> Floats:
    array_N = cast("Floats", value)
    if not isinstance(value, np.ndarray) or array_N.shape != shape or array_N.dtype.kind != "f":
        raise ValueError(f"gave {shape_of(array_N)}: expected {shape[0]} floats, one for each token")
    return array_N.astype(np.float32, copy=False)
