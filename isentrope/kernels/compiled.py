"""Pieces of a training pass through torch.compile, each compiled once for any number of tokens.

What is compiled lies in torch's own caches on disk, by the code and its settings: a second process finds it there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import Tensor

LEAN, ROOMY = 0.5, 0.7
"""Share of a piece's activations that is kept for the backward pass; what is cheapest to compute again is not. Lean,
gate and up are computed again: with SmolLM2-135M's shape this takes less than half of the memory and 7 % of the speed.
Roomy, no product is."""
log = logging.getLogger(__name__)


class Compiled:
    """A function through torch.compile, with the number of tokens left open; as it is if that fails."""

    def __init__(self, plain: Callable[..., Any], kept: float) -> None:
        """`kept`: the share of its activations. What is compiled is found by the code, so each share has its own."""
        self.plain, self.name, self.kept = plain, plain.__name__, kept
        own = FunctionType(
            plain.__code__.replace(co_name=f"{self.name}_{100 * kept:.0f}"), plain.__globals__, self.name
        )
        self.quick: Callable[..., Any] | None = torch.compile(own)  # pyright: ignore[reportUnknownMemberType]

    def __call__(self, *inputs: Any) -> Any:
        if self.quick is None:
            return self.plain(*inputs)
        for value in inputs:
            if isinstance(value, Tensor):
                torch._dynamo.maybe_mark_dynamic(value, 0)  # pyright: ignore
        try:
            with functorch_config.patch(activation_memory_budget=self.kept):
                return self.quick(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.warning("torch.compile failed for %s, which now runs as it is: %s", self.name, error)
            self.quick = None
            return self.plain(*inputs)


compiled = cache(Compiled)
