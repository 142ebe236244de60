"""AdamW for models whose float32 optimiser would not fit on the card: small numbers, or numbers kept elsewhere.

A bfloat16 weight learns as a float32 number in three parts of a byte budget:

    the number        the weight itself and the 16 bits it lacks (`rest`): 2 bytes more, nothing is lost
    its gradient      added up in float32 over the passes, as ever: 4 bytes
    its two moments   float32 in the host's memory, exact; or 8 bits each with a scale for every 256 of them

so that 7.6 billion weights take 71 GiB with 8 bits and 57 GiB with the moments in the host's memory, where torch's
AdamW with float32 copies takes 128. The gradient is whole before the update begins: clipping by its norm and any number
of passes work as they always did. The update goes over 16 million numbers at a time.

In 8 bits a moment is scale · (c/C)^p: p = 4 and a sign for the first, p = 8 for the second, whose square root Adam
divides by. So codes are dense near zero, where most moments of a block lie: over four orders of magnitude of a block's
first moments a code is at most 38 % from the next, over eight of its second ones 37 %, near a block's largest 3 %.
A number between two codes becomes one of them by chance, in proportion, so that its mean is the number (`encode`):
Adam's second moment changes by a thousandth in an update, which rounding to the nearest code would lose for ever. The
random numbers are named by update, weight and place, so an update that is made again is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from isentrope.core.errors import TrainError
from isentrope.core.seeding import stream_key

BLOCK = 256  # numbers with one scale
CHUNK = 1 << 24  # numbers that are updated at once
EPS = 1e-8  # Adam's
FIRST, SECOND = 4, 8  # p of the moments' codes
BUFFERS = 3  # of chunks on their way: one comes, one is computed, one goes
Kept = tuple[Tensor, ...]
"""The moments of a chunk: two in float32; or codes and scales of the first, then of the second."""


# The pure functions


def split(value: Tensor) -> tuple[Tensor, Tensor]:
    """A float32 number as the nearest bfloat16 one and the 16 bits that this lacks. Halfway cases go away from zero, so
    that the two always give back the number: all of 2^32 patterns of bits go to one pair each."""
    bits = value.contiguous().view(torch.int32)
    rest = bits.to(torch.int16)  # the lower half, from -2^15 to 2^15 - 1
    return ((bits - rest) >> 16).to(torch.int16).view(torch.bfloat16), rest


def joined(weight: Tensor, rest: Tensor) -> Tensor:
    """The float32 number of which these are the parts."""
    return ((weight.view(torch.int16).to(torch.int32) << 16) + rest).view(torch.float32)


def encode(values: Tensor, power: int, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (int8 for a signed moment, uint8 for one that is never negative) and the scale of each block. `noise`, in
    [0, 1) for each number, chooses between the two codes around it. What is not zero has no code zero if it is not
    signed: Adam divides by it."""
    signed = power == FIRST
    levels = 127 if signed else 255
    blocks = _blocks(values)
    scale = blocks.abs().amax(1)
    size = (blocks.abs() / scale.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).clamp_(max=1.0)
    below = (_root(size, power) * levels).floor_().clamp_(max=levels - 1)
    low, high = _power(below / levels, power), _power((below + 1) / levels, power)
    code = below + (_blocks(noise) < (size - low) / (high - low))
    if not signed:
        code = torch.maximum(code, (size > 0).to(code.dtype))
        return code.to(torch.uint8).flatten()[: len(values)], scale
    return torch.copysign(code, blocks).to(torch.int8).flatten()[: len(values)], scale


def decode(codes: Tensor, scale: Tensor, power: int) -> Tensor:
    levels = 127 if power == FIRST else 255
    part = _blocks(codes).float() / levels
    size = _power(part.abs(), power) * scale[:, None]
    return (torch.copysign(size, part) if power == FIRST else size).flatten()[: len(codes)]


@dataclass(frozen=True)
class Step:
    """What an update of a weight depends on, beside its gradient and its moments."""

    count: int  # its number, from 1
    rate: float
    betas: tuple[float, float]
    decay: float


def advance(value: Tensor, grad: Tensor, m: Tensor, v: Tensor, step: Step, *, rounded: bool = False) -> None:
    """Adam's update with decoupled weight decay, all in place and in float32, operation by operation as torch's.

    |m| / √v has a largest value that gradients can give it; moments that were rounded are held to it too."""
    b1, b2 = step.betas
    value.mul_(1 - step.rate * step.decay)
    m.lerp_(grad, 1 - b1)
    v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
    whole1, whole2 = 1 - b1**step.count, math.sqrt(1 - b2**step.count)
    below = (v.sqrt() / whole2).add_(EPS)
    if rounded:
        most = largest_move(b1, b2) * whole2 * (1 + 1e-5)
        value.add_((m / below).clamp_(-most, most), alpha=-step.rate / whole1)
    else:
        value.addcdiv_(m, below, value=-step.rate / whole1)


def largest_move(b1: float, b2: float) -> float:
    """The most that |m| / √v can be: by Cauchy and Schwarz √Σ a_i²/b_i, where the gradient i updates ago counts
    a_i = (1 - b1) b1^i in m and b_i = (1 - b2) b2^i in v. Infinite where v forgets faster than m."""
    if b1 * b1 >= b2:
        return math.inf
    return (1 - b1) / math.sqrt((1 - b2) * (1 - b1 * b1 / b2))


def _blocks(values: Tensor) -> Tensor:
    """[blocks, BLOCK], filled up with zeros."""
    missing = -len(values) % BLOCK
    return (nn.functional.pad(values, (0, missing)) if missing else values).view(-1, BLOCK)


def _root(x: Tensor, power: int) -> Tensor:
    return x.sqrt().sqrt_() if power == FIRST else x.sqrt().sqrt_().sqrt_()


def _power(x: Tensor, power: int) -> Tensor:
    x = x.square().square_()
    return x if power == FIRST else x.square_()


# The optimiser


class Held:
    """A weight that learns, with what belongs to it. `grad` is where its gradient is added up."""

    def __init__(self, weight: nn.Parameter, master: bool) -> None:
        if not weight.is_contiguous():
            weight.data = weight.data.contiguous()
        self.weight, self.count = weight, 0
        self.rest: Tensor | None = None
        self.sum: Tensor | None = None
        if master and weight.dtype == torch.bfloat16:
            self.rest = torch.zeros_like(weight, dtype=torch.int16)

    @property
    def grad(self) -> Tensor | None:
        return self.weight.grad if self.rest is None else self.sum

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if self.rest is None:
            self.weight.grad = value
        else:
            self.sum = value

    def take(self, weight: Tensor) -> None:
        """After each backward pass: the gradient moves over, so that passes are added up in float32."""
        assert weight.grad is not None
        self.sum = weight.grad.float() if self.sum is None else self.sum.add_(weight.grad)
        weight.grad = None

    def number(self) -> Tensor:
        """As float32."""
        flat = self.weight.detach()
        return flat.float() if self.rest is None else joined(flat, self.rest)


class LeanAdamW:
    """With the calls of a torch optimiser."""

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        betas: tuple[float, float],
        weight_decay: float,
        *,
        eight_bits: bool,
        on_host: bool,
        master: bool = True,
    ) -> None:
        self.held = [Held(weight, master) for weight in weights]
        self.betas, self.decay, self.eight_bits = betas, weight_decay, eight_bits
        self.param_groups = [{"lr": 0.0}]
        self.device = weights[0].device
        self.travels = on_host and self.device.type == "cuda"
        self.moments: dict[int, list[Kept]] = {}  # by the number of the weight, once it has learnt
        self.updates = 0
        self._road: _Road | None = None

    @torch.no_grad()
    def step(self) -> None:
        self.updates += 1
        learning = [(number, held) for number, held in enumerate(self.held) if held.grad is not None]
        for number, held in learning:
            held.count += 1
            if number not in self.moments:
                self.moments[number] = [self._new(size) for size in _sizes(held.weight.numel())]
        chunks = [(number, at) for number, _ in learning for at in range(len(self.moments[number]))]
        kept = self._visits([self.moments[number][at] for number, at in chunks])
        for (number, at), here in zip(chunks, kept, strict=True):
            self._update(number, at, here)

    def _visits(self, kept: Sequence[Kept]) -> Generator[Kept]:
        """Each chunk's moments on the device of the weights, to be changed there before the next is asked for."""
        if not self.travels:
            yield from kept
            return
        self._road = self._road or _Road(self._new(CHUNK, on_device=True), self.device)
        yield from self._road.visits(kept)

    def _update(self, number: int, at: int, kept: Kept) -> None:
        held, part = self.held[number], slice(at * CHUNK, (at + 1) * CHUNK)
        weight, grad = held.weight.detach().view(-1)[part], cast("Tensor", held.grad).view(-1)[part].float()
        rest = None if held.rest is None else held.rest.view(-1)[part]
        value = weight.float() if rest is None else joined(weight, rest)
        if self.eight_bits:
            m, v = decode(kept[0], kept[1], FIRST), decode(kept[2], kept[3], SECOND)
        else:
            m, v = kept
        step = Step(held.count, self.param_groups[0]["lr"], self.betas, self.decay)
        advance(value, grad, m, v, step, rounded=self.eight_bits)
        if self.eight_bits:
            dice = _dice(self.device, self.updates, number, at)
            new = (*encode(m, FIRST, dice(m)), *encode(v, SECOND, dice(v)))
            for old, fresh in zip(kept, new, strict=True):
                old.copy_(fresh)
        if rest is not None:
            rounded, low = split(value)
            weight.copy_(rounded)
            rest.copy_(low)
        elif weight.data_ptr() != value.data_ptr():  # float32 weights were changed in place
            weight.copy_(value)

    def _new(self, size: int, on_device: bool = False) -> Kept:
        """Moments that are zero."""
        place: dict[str, Any] = {"device": self.device}
        if self.travels and not on_device:
            place = {"pin_memory": True}
        if not self.eight_bits:
            return torch.zeros(size, **place), torch.zeros(size, **place)
        blocks = -(-size // BLOCK)
        made = [torch.zeros(size, dtype=kind, **place) for kind in (torch.int8, torch.uint8)]
        scales = [torch.zeros(blocks, **place) for _ in range(2)]
        return made[0], scales[0], made[1], scales[1]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for held in self.held:
            held.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "eight_bits": self.eight_bits,
            "updates": self.updates,
            "counts": [held.count for held in self.held],
            "rest": {number: held.rest for number, held in enumerate(self.held) if held.rest is not None},
            "moments": self.moments,
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The weights are those of the checkpoint already. Rests have no meaning for weights of another precision."""
        if state["eight_bits"] != self.eight_bits:
            was, now = (("float32", "8 bits")[flag] for flag in (state["eight_bits"], self.eight_bits))
            raise TrainError(
                f"the checkpoint has Adam's moments in {was}, and learn.optimiser asks for {now}; set "
                f"learn.optimiser={'adamw8' if state['eight_bits'] else 'adamw'} to go on with this run"
            )
        self.updates = int(state["updates"])
        for held, count in zip(self.held, state["counts"], strict=True):
            held.count = int(count)
        for number, rest in state["rest"].items():
            held = self.held[int(number)]
            if held.rest is not None:
                held.rest.copy_(rest)
            elif held.weight.dtype == torch.float32:
                held.weight.copy_(joined(held.weight.to(torch.bfloat16), rest.to(self.device)))
        self.moments = {}
        for number, chunks in state["moments"].items():
            sizes = _sizes(self.held[int(number)].weight.numel())
            fresh = [self._new(size) for size in sizes]
            for mine, theirs in zip(fresh, chunks, strict=True):
                for to, source in zip(mine, theirs, strict=True):
                    to.copy_(source)
            self.moments[int(number)] = fresh


def _sizes(count: int) -> list[int]:
    return [min(CHUNK, count - at) for at in range(0, count, CHUNK)]


def _dice(device: torch.device, update: int, number: int, at: int) -> Callable[[Tensor], Tensor]:
    """Uniform numbers that belong to this place of this update."""
    generator = torch.Generator(device)
    generator.manual_seed(stream_key(update, "lean_adamw", number, at) % 2**63)
    return lambda like: torch.rand(len(like), device=device, generator=generator)


class _Road:
    """Brings chunks from the host's memory to the card and back, while others are computed."""

    def __init__(self, like: Kept, device: torch.device) -> None:
        self.buffers = [like, *(tuple(torch.empty_like(part) for part in like) for _ in range(BUFFERS - 1))]
        self.there, self.back = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.left: list[Any] = [None] * BUFFERS  # events: what was in the buffer is back on the host

    def visits(self, kept: Sequence[Kept]) -> Generator[Kept]:
        main, coming = torch.cuda.current_stream(), list[tuple[Kept, Any]]()
        self.there.wait_stream(main)  # whatever was in the buffers' place is done
        for number, chunk in enumerate(kept):
            for ahead in range(number + len(coming), min(number + BUFFERS - 1, len(kept))):
                coming.append(self._bring(kept[ahead], ahead % BUFFERS))
            here, arrived = coming.pop(0)
            main.wait_event(arrived)
            yield here
            with torch.cuda.stream(self.back):
                self.back.wait_event(main.record_event())
                for host, part in zip(chunk, here, strict=True):
                    host.copy_(part, non_blocking=True)
                self.left[number % BUFFERS] = self.back.record_event()
        self.back.synchronize()

    def _bring(self, chunk: Kept, buffer: int) -> tuple[Kept, Any]:
        here = tuple(part[: len(host)] for part, host in zip(self.buffers[buffer], chunk, strict=True))
        with torch.cuda.stream(self.there):
            if self.left[buffer] is not None:
                self.there.wait_event(self.left[buffer])
            for part, host in zip(here, chunk, strict=True):
                part.copy_(host, non_blocking=True)
            return here, self.there.record_event()
