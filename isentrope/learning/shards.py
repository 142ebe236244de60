"""Weights that all ranks hold whole, and an optimiser of which each rank has a part.

Every weight is cut into as many equal parts as there are ranks. A rank has Adam's moments of its own parts alone, and
changes those alone: in place, or as float32 copies where the weights are held in bfloat16 (optimiser.py). Before an
update each rank gets the sum of all ranks' gradients of its parts; after it the parts are put together again,
everywhere.

A checkpoint has what one process writes, whole: a run goes on with any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from isentrope.learning.group import Group

State = dict[str, Any]


class Shards:
    """Takes the place of `Masters`."""

    def __init__(self, weights: Sequence[nn.Parameter], wanted: bool, group: Group) -> None:
        self.weights, self.group = list(weights), group
        self.rounded = [number for number, weight in enumerate(self.weights) if weight.dtype != torch.float32]
        """Numbers of the weights that are less precise than their copies."""
        self.rounded = self.rounded if wanted else []
        self.learning = [nn.Parameter(self._own(number).detach()) for number in range(len(self.weights))]
        self._sums: dict[int, Tensor] = {}  # float32 gradients of such weights, over the passes so far

    def hooks(self) -> list[tuple[nn.Parameter, Callable[[Tensor], None]]]:
        """What takes a weight's gradient after each backward pass."""
        return [(self.weights[number], self._taker(number)) for number in self.rounded]

    def _taker(self, number: int) -> Callable[[Tensor], None]:
        def take(weight: Tensor) -> None:
            assert weight.grad is not None
            new = weight.grad.float()
            self._sums[number] = new if number not in self._sums else self._sums[number].add_(new)
            weight.grad = None

        return take

    def _own(self, number: int) -> Tensor:
        """The own part of a weight: its own memory if it can be, else a copy."""
        part = self._part(self.weights[number])
        return part.float() if number in self.rounded else part

    def _part(self, whole: Tensor) -> Tensor:
        """Of as many equal ones; the last ones may be shorter."""
        size = -(-whole.numel() // self.group.size)
        return whole.detach().contiguous().view(-1)[self.group.rank * size :][:size]

    def _filled(self, flat: Tensor, size: int) -> Tensor:
        return nn.functional.pad(flat, (0, size - len(flat))) if len(flat) < size else flat

    def _padded(self, whole: Tensor) -> Tensor:
        """Flat, in float32, filled up with zeros to equal parts."""
        size = -(-whole.numel() // self.group.size)
        return self._filled(whole.detach().float().flatten(), size * self.group.size)

    def _joinable(self, number: int, part: Tensor) -> Tensor:
        return self._filled(part, -(-self.weights[number].numel() // self.group.size))

    def _like_weight(self, number: int, joined: Tensor) -> Tensor:
        weight = self.weights[number]
        return joined[: weight.numel()].view(weight.shape)

    @torch.no_grad()
    def clip(self, parameters: Sequence[Any], limit: float) -> float:
        """Sum the gradients over the ranks, and hold their norm to the limit. Gives the norm before."""
        self._collect()
        norms = get_total_norm([part.grad for part in self.learning if part.grad is not None])
        square = norms.to(self.learning[0].device, torch.float64).square()
        self.group.add(square)
        norm = square.sqrt().float()
        clip_grads_with_norm_(self.learning, limit, norm)
        return float(norm)

    def _collect(self) -> None:
        found = [self._sums.get(number, weight.grad) for number, weight in enumerate(self.weights)]
        somewhere = np.any(self.group.all_of([grad is not None for grad in found]), axis=0).tolist()
        self.zero()
        for number, (weight, part) in enumerate(zip(self.weights, self.learning, strict=True)):
            grad, found[number] = found[number], None
            if somewhere[number]:
                grad = torch.zeros_like(weight, dtype=torch.float32) if grad is None else grad
                part.grad = self.group.part_of_sum(self._padded(grad))[: len(part)].to(part.dtype)

    def zero(self) -> None:
        self._sums.clear()
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def write(self) -> None:
        """Put the parts together, rounded to the weights' precision."""
        for number, (weight, part) in enumerate(zip(self.weights, self.learning, strict=True)):
            weight.copy_(self._like_weight(number, self.group.joined(self._joinable(number, part.to(weight.dtype)))))

    # What a checkpoint has: whole at the first rank, nothing elsewhere

    @torch.no_grad()
    def whole_copies(self) -> dict[int, Tensor]:
        return {number: self._whole(number, self.learning[number]) for number in self.rounded}

    @torch.no_grad()
    def whole_adam(self, adam: State) -> State:
        """The state of torch's AdamW."""
        state = {
            number: {name: self._whole(number, value) if value.dim() else value for name, value in moments.items()}
            for number, moments in adam["state"].items()
        }
        return {**adam, "state": state}

    def _whole(self, number: int, part: Tensor) -> Tensor:
        joined = self.group.joined_at_first(self._joinable(number, part.detach()))
        return part if joined is None else self._like_weight(number, joined).cpu()

    @torch.no_grad()
    def own_state(self, state: State | None) -> State:
        """Of an optimiser's state, which the first rank has, the parts of this one."""
        told = self.group.all_of(None if state is None else _without_tensors(state))[0]
        assert told is not None
        adam = {
            number: {
                name: self._sent(number, _at(state, "adam", "state", number, name)) if value is None else value
                for name, value in moments.items()
            }
            for number, moments in told["adam"]["state"].items()
        }
        masters = {number: self._sent(number, _at(state, "masters", number)) for number in told["masters"]}
        return {**told, "adam": {**told["adam"], "state": adam}, "masters": masters}

    def _sent(self, number: int, whole: Tensor | None) -> Tensor:
        own = self.learning[number]
        part = self._joinable(number, torch.empty_like(own, dtype=torch.float32).detach())
        self.group.part_from_first(None if whole is None else self._padded(whole.to(own.device)), part)
        return part[: len(own)].clone()

    @torch.no_grad()
    def load(self, copies: Mapping[int, Tensor]) -> None:
        """The own parts of copies from a checkpoint; of other weights those that they have now."""
        for number, (weight, part) in enumerate(zip(self.weights, self.learning, strict=True)):
            part.copy_(copies[number] if number in copies else self._part(weight))
        self.write()


def _without_tensors(state: State) -> State:
    """None stands for each tensor with more than one number in it."""
    adam = state["adam"]
    moments = {
        number: {name: None if isinstance(value, Tensor) and value.dim() else value for name, value in one.items()}
        for number, one in adam["state"].items()
    }
    return {**state, "adam": {**adam, "state": moments}, "masters": list(state.get("masters", {}))}


def _at(state: Any, *path: Any) -> Any:
    for name in path:
        state = None if state is None else state[name]
    return state
