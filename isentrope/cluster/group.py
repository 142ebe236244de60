"""The ranks of a learner as a process group of torch.distributed: gloo between CPUs, NCCL between cards.

What they do together is learning/group.py's `Group`. They find each other by a file that only this user can read, and
gloo's connections are those of this machine with itself: no port of ours is opened, and none can be taken.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import Tensor

from isentrope.core.errors import TrainError

T = TypeVar("T")
dist: Any = torch.distributed
MEET = 120.0  # seconds within which the ranks that are there find each other


class Disconnected(TrainError):
    """Another rank is gone, or silent for too long."""


class RankGroup:
    """`device` is the card of this rank, or the CPU; `seconds` is how long one waits for the others."""

    def __init__(self, rank: int, size: int, file: str, device: torch.device, seconds: float) -> None:
        self.rank, self.size, self.device = rank, size, device
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        if dist.is_initialized():
            raise TrainError(
                "torch.distributed has begun in this process already, so the ranks of the learner cannot: start "
                "isentrope by itself, not with torchrun, or set cluster.trainers=1"
            )
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        store = dist.FileStore(file, size)
        store.set_timeout(timedelta(seconds=MEET))
        hook = sys.excepthook  # torch puts its own in its place, which is not for a rank that is a user's process
        self._done(
            dist.init_process_group, backend, store=store, rank=rank, world_size=size,
            timeout=timedelta(seconds=seconds),
        )  # fmt: skip
        sys.excepthook = hook

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def all_of(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        self._done(dist.all_gather_object, values, value)
        return values

    def add(self, tensor: Tensor) -> None:
        self._done(dist.all_reduce, tensor)

    def spread(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            whole = tensor.detach().contiguous()
            self._done(dist.broadcast, whole, 0)
            if whole.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(whole)

    def part_of_sum(self, whole: Tensor) -> Tensor:
        part = whole.new_empty(len(whole) // self.size)
        self._done(_named("reduce_scatter_single", "reduce_scatter_tensor"), part, whole)
        return part

    def joined(self, part: Tensor) -> Tensor:
        whole = part.new_empty(len(part) * self.size)
        self._done(_named("all_gather_single", "all_gather_into_tensor"), whole, part.detach())
        return whole

    def joined_at_first(self, part: Tensor) -> Tensor | None:
        whole = part.new_empty(len(part) * self.size) if self.rank == 0 else None
        self._done(dist.gather, part, None if whole is None else list(whole.chunk(self.size)))
        return whole

    def part_from_first(self, whole: Tensor | None, part: Tensor) -> None:
        self._done(dist.scatter, part, None if whole is None else [one.contiguous() for one in whole.chunk(self.size)])

    def _done(self, what: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                what(*arguments, **options)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, OSError) as error:  # gloo's errors are plain ones
            told = str(error).strip().splitlines() or [type(error).__name__]
            raise Disconnected(f"rank {self.rank} has lost the others: {told[0]:.200}") from error


def _named(new: str, old: str) -> Callable[..., Any]:
    """Older versions of torch have the old name."""
    return getattr(dist, new, None) or getattr(dist, old)
