"""Defines the base class of policy losses: a loss for each response token of a batch.

    class Mine(Loss):
        name = "mine"

        def per_token(self, batch, stats):
            return -batch.advantage_N * stats.logp_N

How tokens are averaged (`learn.aggregation`), the KL term and what methods add are not the loss's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from isentrope.core.part import Part
from isentrope.core.types import TokenBatch, TokenStats

if TYPE_CHECKING:  # keeps `isentrope --help` free of torch
    from torch import Tensor


class Loss(Part, ABC):
    """Subclass it and write `per_token`. A setting called `clip_high` is the upper clip that methods may change; with
    `clip_low` beside it the metrics tell how many tokens were clipped."""

    what = "loss"
    by_response = False  # its ratio is one for a whole response: the geometric mean over its tokens
    on_policy = False  # it has no ratio, so only the first update of a step would be right

    @abstractmethod
    def per_token(self, batch: TokenBatch, stats: TokenStats) -> Tensor:
        """Of shape N, with gradient. The old log-probs are `batch.old_logp_N`, those of now `stats.logp_N`."""

    @property
    def clip(self) -> tuple[float, float] | None:
        """How far below and above 1 a ratio is clipped; None: it is not."""
        low, high = (getattr(self.options, name, None) for name in ("clip_low", "clip_high"))
        return None if low is None or high is None else (float(low), float(high))

    def with_clip_high(self, value: float) -> Self:
        """The same loss with another upper clip."""
        if getattr(self.options, "clip_high", None) is None:
            name = self.name or type(self).__name__
            raise ValueError(f"set clip_high = {value}, but the loss {name!r} has no clip_high to change")
        return type(self)(replace(self.options, clip_high=value))
