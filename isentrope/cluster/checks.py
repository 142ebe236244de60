"""Whether weights have arrived: a checksum of each tensor, and a probe that both sides score.

The checksum is exact: two sums over a tensor's bits as whole numbers, one of them weighed by place, modulo 2^64. No
single changed number leaves it as it was, nor do two that have changed places; the order of summation does not matter,
so all devices agree. The probe sees what no checksum does: weights that an engine keeps in another form of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from isentrope.cluster.messages import Checked, Sums
from isentrope.core.engine import Request, Sampled
from isentrope.core.seeding import stream
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.engines.agreement import own_numbers
from isentrope.models.policy import Policy

CHUNK = 1 << 22  # numbers at a time, each as one of 64 bits
WORDS = {4: torch.int32, 2: torch.int16, 1: torch.uint8}  # by bytes: the largest that fit into a tensor
SLOT = 0  # of the probe
PROMPT, BYTES = 8, 8  # tokens that are read, and bytes after which the response has said enough
FLOAT32, BFLOAT16, INEXACT = 1e-3, 0.1, 0.5  # nats that a token's log-prob and entropy may differ by


@torch.no_grad()
def checksums(tensors: Sequence[Tensor]) -> Sums:
    sums = [_checksum(tensor) for tensor in tensors]
    if not sums:
        return []
    values = cast("list[list[int]]", torch.stack(sums).tolist())  # one wait for the device
    return [(plain, placed) for plain, placed in values]


def _checksum(tensor: Tensor) -> Tensor:
    flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
    bits = flat.view(next(kind for size, kind in WORDS.items() if len(flat) % size == 0))
    total = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for start in range(0, len(bits), CHUNK):
        part = bits[start : start + CHUNK].to(torch.int64)
        places = torch.arange(start + 1, start + 1 + len(part), device=tensor.device)
        total += torch.stack([part.sum(), (part * places).sum()])
    return total


def probe_request(tokenizer: ChatTokenizer, max_context: int, max_response: int) -> Request:
    """The same on both sides. As long as those of the run may be, or engines would make room anew for those."""
    prompt = tokenizer.opening("", "look")[: max(1, min(PROMPT, max_context - max_response))]
    uniforms = stream(0, "cluster", "probe").random(max_response, dtype=np.float32)
    return Request(SLOT, prompt, uniforms, 1.0, long_enough)


def long_enough(tail: bytes) -> bool:
    return len(tail) >= BYTES


class Checks:
    """The learner's side: what its weights are, and what it makes of a probe."""

    def __init__(
        self, policy: Policy, tensors: Sequence[Tensor], moving: Sequence[int], probe: Request, exact: bool
    ) -> None:
        self._policy, self._tensors, self._moving, self._probe = policy, tensors, moving, probe
        exactly = FLOAT32 if torch.float32 == policy.dtype == policy.weights else BFLOAT16
        self._allowed = exactly if exact else INEXACT
        self.renew()

    def renew(self) -> None:
        """The weights have changed."""
        self._sums: dict[bool, Sums] = {}
        self._scored: dict[bytes, np.ndarray] = {}

    def problem(self, checked: Checked) -> str:
        """What is wrong with the weights of a sampler; empty if nothing is."""
        numbers = range(len(self._tensors)) if checked.whole else self._moving
        if checked.whole not in self._sums:
            self._sums[checked.whole] = checksums([self._tensors[number] for number in numbers])
        sums = self._sums[checked.whole]
        if len(checked.sums) != len(sums):
            return f"{len(checked.sums)} tensors arrived of {len(sums)}"
        wrong = [n for n, mine, theirs in zip(numbers, sums, checked.sums, strict=True) if mine != theirs]
        if wrong:
            return f"{len(wrong)} of {len(sums)} tensors differ, the first is {self._name(wrong[0])}"
        return "" if checked.probe is None else self._difference(checked.probe)

    def _name(self, number: int) -> str:
        named = self._policy.module.named_parameters()
        return next((name for name, one in named if one is self._tensors[number]), f"number {number}")

    def _difference(self, probe: Sampled) -> str:
        ids = probe.ids
        if not len(ids) or ids.min() < 0 or ids.max() >= self._policy.model.head_weight().shape[0]:
            return "its response to the probe has no tokens of this model"
        key = ids.tobytes()
        if key not in self._scored:
            self._scored[key] = own_numbers(self._policy, self._probe, probe)
        theirs = np.stack([probe.logprobs, probe.entropies])
        apart = float(np.abs(self._scored[key] - theirs).max())
        if apart <= self._allowed or np.isnan(theirs).all():
            return ""
        return f"the probe's numbers are {apart:.2g} nats from the learner's, more than {self._allowed:g}"
