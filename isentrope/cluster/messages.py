"""What an engine and its samplers say to each other.

Orders go to a sampler, through a pipe that it inherited or as an argument of its actor: they are pickled, since they
hold rules and functions of ours. Replies come back as data, a line of JSON and plain numbers behind it: reading them
runs no code, and `BadReply` says what is wrong with one.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isentrope.config.schema import RunConfig
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import EngineError

MAX_REPLY = 1 << 30  # bytes
MAX_HEAD = 64 << 20  # of the JSON in front of the numbers: the checksums of a hundred thousand tensors
MAX_WORDS = 2000  # characters of an error
STOPS = ("tag", "eos", "length", "error")
_HEAD = struct.Struct("<I")
_TYPES = {"i4": np.int32, "f4": np.float32, "f8": np.float64}

Sums = list[tuple[int, int]]


class BadReply(ValueError):
    """What came from a sampler is no reply."""


# Orders


@dataclass(frozen=True)
class Begin:
    """The first: make the engine."""

    config: RunConfig
    skeleton: bytes  # the policy without its weights
    handles: Any  # where the weights are (weights.py)
    moving: tuple[int, ...]  # numbers of the tensors that learn
    version: int  # of the weights
    threads: int
    beat: float  # seconds between two words of a sampler that is at work


@dataclass(frozen=True)
class Renew:
    """The policy's weights have changed. `whole`: check those too that do not learn."""

    version: int
    whole: bool


@dataclass(frozen=True)
class Open:
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Keep:
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Ask:
    """Answer these, each under its number. `slots` are all conversations that the sampler has from now on."""

    requests: tuple[tuple[int, Request], ...]
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Tell:
    """What the engine notes; the reply has this number."""

    number: int


class _Orders(pickle.Pickler):
    """Leaves the tokenizer out, which a sampler has: rules hold on to it."""

    def __init__(self, file: io.BytesIO, tokenizer: object) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._tokenizer = tokenizer

    def persistent_id(self, obj: Any) -> Any:
        return "tokenizer" if obj is not None and obj is self._tokenizer else None


class _OrdersRead(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tokenizer: object) -> None:
        super().__init__(file)
        self._tokenizer = tokenizer

    def persistent_load(self, pid: Any) -> Any:
        return self._tokenizer


def order_to_bytes(order: object, tokenizer: object) -> bytes:
    file = io.BytesIO()
    try:
        _Orders(file, tokenizer).dump(order)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise EngineError(
            f"cannot be sent to a sampler process: {error}. Functions and classes that a request holds (a rule for "
            "temperatures) must stand at the top of a module; or use cluster.kind=local"
        ) from error
    return file.getvalue()


def order_from_bytes(data: bytes, tokenizer: object) -> object:
    """Only for bytes of the process that started this one: reading them runs what they name."""
    return _OrdersRead(io.BytesIO(data), tokenizer).load()


# Replies


@dataclass(frozen=True)
class Answer:
    """To the request of this number. `told_N` are the entropies that its rule for temperatures was told."""

    number: int
    sampled: Sampled
    told_N: NDArray[np.float64]


@dataclass(frozen=True)
class Checked:
    """The sampler has weights of this version: the checksums of its tensors, all or those that learn, and its response
    to the probe. The first one says that it is ready."""

    version: int
    whole: bool
    sums: Sums
    probe: Sampled | None


@dataclass(frozen=True)
class Told:
    number: int
    notes: dict[str, float]


@dataclass(frozen=True)
class Failed:
    """The engine raised an error: it would elsewhere too."""

    words: str


@dataclass(frozen=True)
class Working:
    """The engine has drawn tokens since the last word, and is not done."""


Reply = Answer | Checked | Told | Failed | Working


def reply_to_bytes(reply: Reply) -> bytes:
    head: dict[str, Any] = {"is": type(reply).__name__}
    arrays = list[NDArray[Any]]()
    if isinstance(reply, Answer):
        head |= {"number": reply.number, "sampled": _sampled_head(reply.sampled)}
        arrays = [*_sampled_arrays(reply.sampled), reply.told_N]
    elif isinstance(reply, Checked):
        head |= {"version": reply.version, "whole": reply.whole, "sums": reply.sums}
        head["probe"] = None if reply.probe is None else _sampled_head(reply.probe)
        arrays = [] if reply.probe is None else _sampled_arrays(reply.probe)
    elif isinstance(reply, Told):
        head |= {"number": reply.number, "notes": reply.notes}
    elif isinstance(reply, Failed):
        head |= {"words": reply.words[:MAX_WORDS]}
    head["arrays"] = [[array.dtype.str[1:], len(array)] for array in arrays]
    line = json.dumps(head, separators=(",", ":")).encode()
    return b"".join([_HEAD.pack(len(line)), line, *(np.ascontiguousarray(array).tobytes() for array in arrays)])


def reply_from_bytes(data: bytes) -> Reply:
    """BadReply if it is none."""
    head, arrays = _parts(data)
    kind = head.get("is")
    try:
        if kind == "Answer":
            *of_sampled, told = arrays
            return Answer(_whole(head["number"]), _sampled(head["sampled"], of_sampled), _typed(told, np.float64))
        if kind == "Checked":
            probe = None if head["probe"] is None else _sampled(head["probe"], arrays)
            sums = [(_whole(a), _whole(b)) for a, b in head["sums"]]
            return Checked(_whole(head["version"]), head["whole"] is True, sums, probe)
        if kind == "Told":
            notes = {str(name)[:100]: float(value) for name, value in dict(head["notes"]).items()}
            return Told(_whole(head["number"]), notes)
        if kind == "Failed":
            return Failed(str(head["words"])[:MAX_WORDS])
        if kind == "Working":
            return Working()
    except (KeyError, TypeError, ValueError) as error:
        raise BadReply(
            f"a reply of the kind {kind!r:.40} is not whole: {type(error).__name__}: {error}"[:300]
        ) from None
    raise BadReply(f"a reply of the unknown kind {kind!r:.40}")


def _parts(data: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    if len(data) < _HEAD.size:
        raise BadReply(f"a reply of {len(data)} bytes")
    (length,) = _HEAD.unpack_from(data)
    if not 0 < length <= min(MAX_HEAD, len(data) - _HEAD.size):
        raise BadReply(f"a reply of {len(data)} bytes that begins with a line of {length}")
    at = _HEAD.size + length
    try:
        head = json.loads(data[_HEAD.size : at])
        described: Any = head["arrays"]
        arrays = list[NDArray[Any]]()
        for name, count in described:
            kind = np.dtype(_TYPES[name])
            if type(count) is not int or not 0 <= count * kind.itemsize <= len(data) - at:
                raise ValueError(f"{count!r:.20} numbers in {len(data) - at} bytes")
            arrays.append(np.frombuffer(data, kind, count, at))
            at += count * kind.itemsize
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadReply(f"a reply that cannot be read: {type(error).__name__}: {error}"[:300]) from None
    if at != len(data):
        raise BadReply(f"a reply with {len(data) - at} bytes too many")
    return head, arrays


def _sampled_head(sampled: Sampled) -> list[str]:
    return [sampled.stop, sampled.detail[:MAX_WORDS]]


def _sampled_arrays(sampled: Sampled) -> list[NDArray[Any]]:
    types = (np.int32, np.float32, np.float32, np.float32)
    values = (sampled.ids, sampled.logprobs, sampled.entropies, sampled.temperatures)
    return [np.asarray(value, dtype=kind) for value, kind in zip(values, types, strict=True)]


def _sampled(head: Any, arrays: Sequence[NDArray[Any]]) -> Sampled:
    stop, detail = head
    if stop not in STOPS or not isinstance(detail, str):
        raise ValueError(f"a response that ended as {stop!r:.40}")
    ids, *numbers = arrays
    ids = _typed(ids, np.int32)
    logprobs, entropies, temperatures = (_typed(array, np.float32) for array in numbers)
    if len({len(ids), len(logprobs), len(entropies), len(temperatures)}) > 1:
        raise ValueError("a response whose numbers are not as many as its tokens")
    return Sampled(ids, logprobs, entropies, temperatures, stop, detail)


def _typed(array: NDArray[Any], kind: type[Any]) -> NDArray[Any]:
    if array.dtype != kind:
        raise ValueError(f"numbers of the type {array.dtype}, expected {np.dtype(kind)}")
    return array


def _whole(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r:.40} is no whole number of 64 bits")
    return value
