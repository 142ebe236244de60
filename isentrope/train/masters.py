"""Float32 copies of bfloat16 weights, which are what the optimiser changes.

A bfloat16 number has 8 significant bits: a change below a 500th of a weight's size rounds to no change at all, and the
updates of reinforcement learning are smaller than that. So gradients are added up in float32, the copies take the
update, and the weights become the copies rounded. Weights that are float32 already are their own copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

HOOK = "isentrope_masters"
"""The attribute under which a weight keeps what moves its gradient to its copy."""


class Masters:
    def __init__(self, weights: Sequence[nn.Parameter], wanted: bool = True) -> None:
        self.weights = list(weights)
        self.copies: dict[int, nn.Parameter] = {}
        """By the number of the weight."""
        for number, weight in enumerate(self.weights):
            if wanted and weight.dtype != torch.float32:
                self.copies[number] = nn.Parameter(weight.detach().float())
                earlier: Any = getattr(weight, HOOK, None)
                if earlier is not None:  # of an optimiser before this one, which would take the gradients away
                    earlier.remove()
                setattr(weight, HOOK, weight.register_post_accumulate_grad_hook(self._taker(number)))

    @property
    def learning(self) -> list[nn.Parameter]:
        """What the optimiser is to change."""
        return [self.copies.get(number, weight) for number, weight in enumerate(self.weights)]

    def _taker(self, number: int) -> Callable[[Tensor], None]:
        copy = self.copies[number]

        def take(weight: Tensor) -> None:
            """After each backward pass: the gradient moves over, so that passes are added up in float32."""
            assert weight.grad is not None
            if copy.grad is None:
                copy.grad = weight.grad.float()
            else:
                copy.grad += weight.grad
            weight.grad = None

        return take

    @torch.no_grad()
    def write(self) -> None:
        """Round the copies into the weights."""
        if self.copies:
            weights = [self.weights[number] for number in self.copies]
            cast("Any", torch)._foreach_copy_(weights, list(self.copies.values()))  # one kernel for many weights

    @torch.no_grad()
    def load(self, copies: Mapping[int, Tensor]) -> None:
        """From a checkpoint. Weights that were bfloat16 then and are float32 now take the copies' values whole."""
        for number, value in copies.items():
            self.learning[number].copy_(value)
        self.write()
