"""The optimiser: learning rate, gradient clipping, and skipping of updates that are not finite.

Weights held in bfloat16 learn through float32 copies (`Masters`). A bfloat16 number has 8 significant bits: a change
below a 500th of a weight's size rounds to no change at all, and the updates of reinforcement learning are smaller than
that. So gradients are added up in float32, the copies take the update, and the weights become the copies rounded.
Weights that are float32 already are their own copies. Where copies, gradients and moments would not fit on the card,
`lean_adamw.py` takes their place (`learn.optimiser`, `learn.moments`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from isentrope.config.schema import LearnSettings
from isentrope.core.errors import TrainError
from isentrope.learning.group import ALONE, Group
from isentrope.learning.lean_adamw import LeanAdamW
from isentrope.learning.shards import Shards
from isentrope.models.policy import Policy

HOOK = "isentrope_masters"
"""The attribute under which a weight keeps what moves its gradient to where gradients are added up."""


def learning_rate(update: int, total: int, peak: float, warmup: float, floor: float) -> float:
    """Rate of update number `update` (from 0): a linear rise over the first share, then a cosine to floor · peak."""
    rising = max(1, round(total * warmup)) if warmup > 0 else 0
    if update < rising:
        return peak * (update + 1) / rising
    progress = min(1.0, (update - rising) / max(1, total - 1 - rising))
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2)


def after_backward(weight: nn.Parameter, take: Callable[[Tensor], None]) -> None:
    """Have the weight's gradient taken after each backward pass, by this optimiser and by none before it."""
    earlier: Any = getattr(weight, HOOK, None)
    if earlier is not None:
        earlier.remove()
    setattr(weight, HOOK, weight.register_post_accumulate_grad_hook(take))


class Masters:
    def __init__(self, weights: Sequence[nn.Parameter], wanted: bool = True) -> None:
        self.weights = list(weights)
        self.copies: dict[int, nn.Parameter] = {}
        """By the number of the weight."""
        for number, weight in enumerate(self.weights):
            if wanted and weight.dtype != torch.float32:
                self.copies[number] = nn.Parameter(weight.detach().float())
                after_backward(weight, self._taker(number))

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

    def clip(self, parameters: Sequence[Any], limit: float) -> float:
        """Hold the gradients' norm to the limit. Gives the norm before."""
        return float(torch.nn.utils.clip_grad_norm_(parameters, limit))

    def zero(self) -> None:
        """Gradients are where the optimiser looks for them: it clears them itself."""

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

    def whole_copies(self) -> dict[int, nn.Parameter]:
        return self.copies

    def whole_adam(self, adam: dict[str, Any]) -> dict[str, Any]:
        return adam

    def own_state(self, state: dict[str, Any] | None) -> dict[str, Any]:
        assert state is not None
        return state


class Optimiser:
    """AdamW with a gradient limit. An update with a non-finite loss or gradient is skipped and counted."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        grad_clip: float = 1.0,
        max_skips: int = 5,
        master_weights: bool = True,
        kind: str = "adamw",
        moments: str = "card",
        group: Group = ALONE,
    ) -> None:
        learning = [p for p in parameters if p.requires_grad]
        if not learning:
            raise TrainError("no weight may learn: all are frozen (requires_grad is False), so nothing would change")
        self.lean = kind == "adamw8" or moments == "host"
        wanted = master_weights and not self.lean
        self.masters = Masters(learning, wanted) if group.size == 1 else _shards(learning, wanted, group)
        self.parameters: list[Any] = self.masters.learning
        """What has a gradient; for a lean optimiser what it holds of each weight."""
        self.fused = not self.lean and all(p.is_cuda for p in self.parameters)  # one kernel for all weights
        if self.lean:
            self.adam: Any = LeanAdamW(
                learning, betas, weight_decay, eight_bits=kind == "adamw8", on_host=moments == "host",
                master=master_weights,
            )  # fmt: skip
            self.parameters = self.adam.held
            for held in (one for one in self.adam.held if one.rest is not None):
                after_backward(held.weight, held.take)
        else:
            self.adam = torch.optim.AdamW(
                self.parameters, lr=0.0, betas=betas, weight_decay=weight_decay, fused=self.fused or None
            )
        self.seconds = 0.0  # of updates whose moments are on the host: they come and go meanwhile
        self.grad_clip, self.max_skips = grad_clip, max_skips
        self.updates = 0  # attempted, so that the schedule goes on over a skipped one
        self.skipped = 0
        self.skipped_in_a_row = 0

    def step(self, loss: float, rate: float) -> float:
        """Apply the gradients that have been accumulated. Gives their norm before clipping."""
        norm = self.masters.clip(self.parameters, self.grad_clip)
        self.updates += 1
        if math.isfinite(loss) and math.isfinite(norm):
            for group in self.adam.param_groups:
                group["lr"] = rate
            began = time.perf_counter()
            self.adam.step()
            self.seconds += time.perf_counter() - began if self.lean and self.adam.travels else 0.0
            self.masters.write()
            self.skipped_in_a_row = 0
            self._zero()
        else:
            self._zero()
            self._count_skip(f"had a non-finite loss or gradient (loss {loss}, gradient norm {norm})")
        return norm

    def skip(self, reason: str) -> None:
        """Leave an update out, and count it as one that was not finite; `reason` goes on from "updates in a row"."""
        self.pass_by()
        self._count_skip(reason)

    def _count_skip(self, reason: str) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row > self.max_skips:
            raise TrainError(
                f"{self.skipped_in_a_row} updates in a row {reason}; the policy is unchanged since the last finite "
                "one. Try a smaller learn.lr (sft.lr in a warm-up) or learn.grad_clip, or run in float32 with "
                "run.dtype=float32"
            )

    def pass_by(self) -> None:
        """Let the schedule go on without an update; gradients that happen to be there are dropped."""
        self.updates += 1
        self._zero()

    def _zero(self) -> None:
        self.adam.zero_grad(set_to_none=True)
        self.masters.zero()

    def state_dict(self) -> dict[str, object]:
        """Of N ranks the first has it whole; all of them are asked."""
        state: dict[str, object] = {
            "adam": self.masters.whole_adam(self.adam.state_dict()),
            "updates": self.updates,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
        }
        copies = self.masters.whole_copies()
        return state | ({"masters": copies} if copies else {})

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Of N ranks the first has it; None at the others."""
        if state is not None and self.lean != ("rest" in state["adam"]):
            raise TrainError(
                "the checkpoint is of another kind of optimiser; go on with the learn.optimiser and learn.moments that "
                "it was made with (its settings.toml has them)"
            )
        state = self.masters.own_state(state)
        self.masters.load(cast("dict[int, Tensor]", state.get("masters", {})))
        adam = cast("dict[str, Any]", state["adam"])
        if self.lean:
            self.adam.load_state_dict(adam)
            self._load_counts(state)
            return
        # as it suits this device, not the one that wrote the checkpoint; where counts of steps are put depends on it
        groups = [{**group, "fused": self.fused or None} for group in adam["param_groups"]]
        self.adam.load_state_dict({**adam, "param_groups": groups})
        self._load_counts(state)

    def _load_counts(self, state: Mapping[str, object]) -> None:
        self.updates, self.skipped = int(state["updates"]), int(state["skipped"])  # type: ignore[call-overload]
        self.skipped_in_a_row = int(state["skipped_in_a_row"])  # type: ignore[call-overload]


def _shards(weights: Sequence[nn.Parameter], wanted: bool, group: Group) -> Shards:
    shards = Shards(weights, wanted, group)
    for weight, take in shards.hooks():
        after_backward(weight, take)
    return shards


def make_optimiser(policy: Policy, settings: LearnSettings, group: Group = ALONE) -> Optimiser:
    return Optimiser(
        policy.module.parameters(),
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        grad_clip=settings.grad_clip,
        max_skips=settings.max_skips,
        master_weights=settings.master_weights,
        kind=settings.optimiser,
        moments=settings.moments,
        group=group,
    )
