"""How a policy reaches the samplers: its structure once, as bytes, and its weights where all of them can read them.

On CPUs the weights are copied into memory that all processes share, which samplers map for reading only: however many
there are, there is one copy. It has no name in any folder, so it goes away with the last process that has it open. On a
card samplers open the learner's own tensors by CUDA IPC: nothing is copied, unless an engine keeps weights of its own.
"""

from __future__ import annotations

import functools
import importlib
import io
import mmap
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isentrope.core.errors import EngineError
from isentrope.models.policy import Policy

ALIGNED = 64  # bytes at which each tensor begins


@dataclass(frozen=True)
class Place:
    """Of a tensor in shared memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    is_parameter: bool

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def nothing(*_: Any, **__: Any) -> None:
    """A hook that gives None changes nothing."""


def _no_hook() -> Any:
    return nothing


def _cached(function: Callable[..., Any], size: int | None) -> Any:
    return functools.lru_cache(maxsize=size)(function)


class _Skeleton(pickle.Pickler):
    """Takes the tensors of a device out of what is pickled, each once, and numbers them."""

    def __init__(self, file: io.BytesIO, device: torch.device) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._device, self.tensors, self._numbers = device, list[Tensor](), dict[int, int]()

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor) or obj.device.type != self._device.type:
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self._numbers[id(obj)]

    def reducer_override(self, obj: Any) -> Any:
        """What a tokenizer remembers begins empty. Functions within functions, like hooks of training, stay behind."""
        if type(obj) is FunctionType and "<locals>" in obj.__qualname__:
            return _no_hook, ()
        kept: Any = obj
        if type(kept) is type(_cached(len, 1)) and not hasattr(sys.modules.get(kept.__module__), kept.__qualname__):
            return _cached, (kept.__wrapped__, kept.cache_parameters()["maxsize"])
        return NotImplemented


class _Rebuilt(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        return self._tensors[int(pid)]


def take_apart(policy: Policy, *others: Policy | None) -> tuple[bytes, list[Tensor]]:
    """The policy without its weights, and its weights; with others: all of these in one."""
    file = io.BytesIO()
    pickler = _Skeleton(file, policy.device)
    try:
        pickler.dump((policy, *others) if others else policy)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise EngineError(f"this model cannot be sent to other processes ({error}); use cluster.kind=local") from error
    return file.getvalue(), pickler.tensors


def put_together(skeleton: bytes, tensors: Sequence[Tensor]) -> Any:
    return _Rebuilt(io.BytesIO(skeleton), tensors).load()


def moving_tensors(policy: Policy, tensors: Sequence[Tensor]) -> list[int]:
    """Numbers of those that change when the policy learns: adapters alone, if it has any."""
    names = {id(parameter): name for name, parameter in policy.module.named_parameters()}
    adapters = [i for i, tensor in enumerate(tensors) if "lora_" in names.get(id(tensor), "")]
    return adapters or list(range(len(tensors)))


class SharedMemory:
    """The learner's side on CPUs."""

    def __init__(self, tensors: Sequence[Tensor], moving: Sequence[int]) -> None:
        self._tensors, self._moving = tensors, moving
        self.places, at = list[Place](), 0
        for tensor in tensors:
            place = Place(tensor.dtype, tuple(tensor.shape), at, isinstance(tensor, nn.Parameter))
            self.places.append(place)
            at += -(-place.size // ALIGNED) * ALIGNED
        self._fd = _without_name(max(at, ALIGNED))
        self._map = mmap.mmap(self._fd, max(at, ALIGNED))
        self._shared = _mapped(self._map, self.places)
        self._copy(range(len(tensors)))

    def fileno(self) -> int:
        return self._fd

    def handles(self) -> list[Place]:
        return self.places

    def publish(self) -> None:
        """What has changed, for all to see."""
        self._copy(self._moving)

    @torch.no_grad()
    def _copy(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._shared[number].copy_(self._tensors[number])

    def close(self) -> None:
        self._shared.clear()
        with suppress(BufferError):  # a tensor still looks at it: it goes with that
            self._map.close()
        os.close(self._fd)


class CardMemory:
    """The learner's side on a card: its own tensors, opened by others."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self._tensors, self._device = tensors, device

    def fileno(self) -> int | None:
        return None

    def handles(self) -> list[tuple[Any, bool]]:
        """New ones for each sampler: torch counts who has them open."""
        reduce_tensor: Any = importlib.import_module("torch.multiprocessing.reductions").reduce_tensor
        self.publish()
        return [(reduce_tensor(one.detach()), isinstance(one, nn.Parameter)) for one in self._tensors]

    def publish(self) -> None:
        """Others read from streams of their own, which do not wait for this one."""
        torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Nothing is held here."""


def share(policy: Policy, tensors: Sequence[Tensor], moving: Sequence[int]) -> SharedMemory | CardMemory:
    if policy.device.type == "cuda":
        return CardMemory(tensors, policy.device)
    if policy.device.type != "cpu":
        raise EngineError(
            f"the policy is on {policy.device}: weights reach sampler processes on CPUs and CUDA cards alone; set "
            "run.device=cpu or cluster.kind=local"
        )
    return SharedMemory(tensors, moving)


def received(handles: Sequence[Any], fd: int | None) -> list[Tensor]:
    """A sampler's side: tensors in which it sees the learner's weights."""
    if fd is None:
        tensors = [(rebuild(*arguments), parameter) for (rebuild, arguments), parameter in handles]
    else:
        size = os.fstat(fd).st_size
        memory = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        os.close(fd)
        tensors = list(zip(_mapped(memory, handles), (place.is_parameter for place in handles), strict=True))
    return [nn.Parameter(one, requires_grad=False) if parameter else one for one, parameter in tensors]


@torch.no_grad()
def take_over(tensors: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy what an engine does not read where it was received. `tensors` are the policy's own."""
    for mine, source in zip(tensors, sources, strict=True):
        if mine.data_ptr() != source.data_ptr():
            mine.copy_(source)
    for device in {source.device for source in sources if source.is_cuda}:
        torch.cuda.synchronize(device)  # before anybody hears that they are there


def _mapped(memory: mmap.mmap, places: Sequence[Place]) -> list[Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is for reading only: that is what it is for
        return [
            torch.frombuffer(
                memory, dtype=place.dtype, count=place.size // place.dtype.itemsize, offset=place.start
            ).view(place.shape)
            if place.size
            else torch.empty(place.shape, dtype=place.dtype)
            for place in places
        ]


def _without_name(size: int) -> int:
    """A file in memory that no folder shows; elsewhere than on Linux one in a folder that has lost its name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("isentrope-weights", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)  # now, with an error; later it would be a signal that ends the process
    except OSError as error:
        os.close(fd)
        raise EngineError(
            f"no {size / 2**30:.2f} GiB of memory for the weights that samplers share ({error.strerror}): free some, "
            "raise the limit of the container, or set cluster.kind=local"
        ) from error
    return fd
