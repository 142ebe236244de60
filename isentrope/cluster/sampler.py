"""What a sampler does: it has an engine of any kind, and answers what it is asked, in whatever process it is.

    sampler = Sampler(begin, fd)        # makes the engine; `sampler.replies` holds what is to be said
    sampler.take(order)                 # another order
    while sampler.busy: sampler.work()  # answers what was asked, a batch at a time

Orders come in any order and number; a transport hands on what `replies` holds after each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from isentrope.cluster.checks import checksums, probe_request
from isentrope.cluster.messages import Answer, Ask, Begin, Checked, Keep, Open, Renew, Reply, Tell, Told
from isentrope.cluster.weights import put_together, received, take_over
from isentrope.core.engine import Request, Sampled, Streaming
from isentrope.core.types import TokenTemperature
from isentrope.engines.registry import make_engine


class Recorded:
    """A rule for temperatures, and the entropies that it was told."""

    def __init__(self, rule: TokenTemperature) -> None:
        self.rule, self.needs_entropy, self.told = rule, rule.needs_entropy, list[float]()

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        self.told.append(entropy)
        return self.rule(response, entropy)


class Counted:
    """A stop rule that counts how often it was asked: an engine that still asks it does not hang."""

    def __init__(self, stop: Callable[[bytes], bool], sampler: Sampler) -> None:
        self.stop, self.sampler = stop, sampler

    def __call__(self, tail: bytes) -> bool:
        self.sampler.moved += 1
        return self.stop(tail)


class Sampler:
    def __init__(self, begin: Begin, fd: int | None) -> None:
        torch.set_num_threads(begin.threads)
        self._tensors = received(begin.handles, fd)
        self.policy = put_together(begin.skeleton, self._tensors)
        torch.use_deterministic_algorithms(self.policy.device.type == "cpu", warn_only=True)
        # an engine may give a parameter other memory: what was received stays where it is
        self._sources = [tensor.detach() for tensor in self._tensors]
        self.engine = make_engine(begin.config, self.policy)
        agent = begin.config.agent
        self._probe = probe_request(self.policy.tokenizer, agent.max_context, agent.max_response)
        self._slots: set[int] = set()  # that the engine was opened with
        self._waiting: dict[int, tuple[int, Request]] = {}  # slot -> what the engine has not been asked yet
        self._asked: dict[int, tuple[int, Request]] = {}  # slot -> what it has
        self._homed: tuple[int, ...] = ()  # all slots that are this sampler's
        self.replies: list[Reply] = []
        self.moved = 0  # grows while the engine draws tokens
        self._moving = begin.moving
        self._check(begin.version, whole=True)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._asked)

    def take(self, order: object) -> None:
        if isinstance(order, Ask):
            self._homed = order.slots
            for number, request in order.requests:
                rule = request.temperature_of
                rule = None if rule is None else Recorded(rule)
                request = replace(request, temperature_of=rule, stop=Counted(request.stop, self))
                self._waiting[request.slot] = (number, request)
        elif isinstance(order, Open):
            self._drop()
            self._homed = order.slots
            self._open(order.slots)
        elif isinstance(order, Keep):
            kept = set(order.slots)
            self._waiting = {slot: asked for slot, asked in self._waiting.items() if slot in kept}
            self._asked = {slot: asked for slot, asked in self._asked.items() if slot in kept}
            self.engine.keep(order.slots)
            self._slots, self._homed = self._slots & kept, order.slots
        elif isinstance(order, Renew):
            self._drop()
            take_over(self._tensors, self._sources)
            self.engine.refresh()
            self._check(order.version, order.whole)
        elif isinstance(order, Tell):
            self.replies.append(Told(order.number, {name: float(v) for name, v in self.engine.notes().items()}))
        else:
            raise TypeError(f"{type(order).__name__} is no order")

    def work(self) -> None:
        """Answer some of what was asked; more may be asked in between."""
        engine = self.engine
        if any(slot not in self._slots for slot in self._waiting):
            if self._asked:  # opening anew would forget them
                return self._collect()
            self._open(sorted({*self._homed, *self._waiting}))
        waiting, self._waiting = self._waiting, {}
        if isinstance(engine, Streaming):
            self._asked |= waiting
            if waiting:
                engine.submit([request for _, request in waiting.values()])
            return self._collect()
        requests = [request for _, request in waiting.values()]
        sampled = engine.sample(requests)
        if len(sampled) != len(requests):
            raise ValueError(f"gave {len(sampled)} responses to {len(requests)} requests")
        for (number, request), one in zip(waiting.values(), sampled, strict=True):
            self._answer(number, request, one)
        return None

    def close(self) -> None:
        self.engine.close()

    def _collect(self) -> None:
        assert isinstance(self.engine, Streaming)
        for slot, sampled in self.engine.collect().items():
            self._answer(*self._asked.pop(slot), sampled)

    def _answer(self, number: int, request: Request, sampled: Sampled) -> None:
        rule = request.temperature_of
        told = rule.told[: len(sampled.ids)] if isinstance(rule, Recorded) else []
        self.replies.append(Answer(number, sampled, np.array(told, dtype=np.float64)))

    def _open(self, slots: Sequence[int]) -> None:
        self.engine.open(slots)
        self._slots = set(slots)

    def _drop(self) -> None:
        """Nobody waits for what was asked before."""
        self._waiting.clear()
        self._asked.clear()

    def _check(self, version: int, whole: bool) -> None:
        """Say what weights there are now, and what the engine makes of the probe with them."""
        self._open([self._probe.slot])
        (probe,) = self.engine.sample([self._probe])
        self._open([])
        self.engine.notes()  # the probe is no part of its work
        sums = checksums(self._tensors if whole else [self._tensors[number] for number in self._moving])
        self.replies.append(Checked(version, whole, sums, probe))
