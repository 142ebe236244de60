"""A transport without processes: samplers work in this one when they are listened to, and fail as they are told."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from isentrope.cluster.engine import ClusterEngine
from isentrope.cluster.messages import Failed, order_from_bytes, reply_to_bytes
from isentrope.cluster.sampler import Sampler
from isentrope.cluster.transport import Heard
from isentrope.core.errors import IsentropeError
from isentrope.models.policy import Policy
from tests.builders.toy_runs import WARM_MODEL, toy_config

Fault = Callable[["InlineLink", object], str]
"""Told of each order before a sampler is: "dies", "hangs", what it says instead of an answer, or nothing."""


@dataclass(eq=False)
class InlineLink:
    number: int
    transport: Inline
    name: str
    orders: deque[bytes] = field(default_factory=deque)
    sampler: Sampler | None = None
    ended: bool = False
    hangs: bool = False

    def send(self, order: bytes) -> None:
        self.orders.append(order)

    def end(self, patience: float = 0.0) -> None:
        self.ended = True

    def work(self) -> list[Heard]:
        """Obey everything that was sent, and say what there is to say."""
        try:
            return self._work()
        except IsentropeError as error:
            self.hangs = True
            return [Heard(self, reply_to_bytes(Failed(str(error))))]

    def _work(self) -> list[Heard]:
        while self.orders and not self.hangs:
            data = self.orders.popleft()
            if self.sampler is None:
                fd = self.transport.fd
                self.sampler = Sampler(pickle.loads(data), None if fd is None else os.dup(fd))
                continue
            order = order_from_bytes(data, self.sampler.policy.tokenizer)
            fault = self.transport.fault(self, order)
            if fault == "dies":
                self.ended = True
                return [Heard(self, None, "was ended by a test")]
            if fault == "hangs":
                self.hangs = True
            elif fault:
                return [Heard(self, fault.encode())]
            else:
                self.sampler.take(order)
        if self.sampler is None or self.hangs:
            return []
        while self.sampler.busy:
            self.sampler.work()
        replies, self.sampler.replies[:] = list(self.sampler.replies), []
        return [Heard(self, reply_to_bytes(reply)) for reply in replies]


class Inline:
    """`fault` decides on each order; nothing is wrong unless it says so."""

    def __init__(self, fault: Fault = lambda link, order: "") -> None:
        self.fault = fault
        self.fd: int | None = None
        self.links: list[InlineLink] = []
        self.heard: deque[Heard] = deque()
        self.closed = False

    def __call__(self, fd: int | None, own_main: bool) -> Inline:
        self.fd = fd
        return self

    def start(self) -> InlineLink:
        number = len(self.links)
        self.links.append(InlineLink(number, self, f"sampler {number}"))
        return self.links[-1]

    def hear(self, seconds: float) -> Heard | None:
        for link in [link for link in self.links if not link.ended]:
            self.heard.extend(link.work())
        if self.heard:
            return self.heard.popleft()
        assert seconds <= 0 or any(link.hangs for link in self.links), "everybody waits"
        return None

    def close(self) -> None:
        self.closed = True


def inline_cluster(policy: Policy, engines: int, transport: Inline | None = None, *changes: str) -> ClusterEngine:
    config = toy_config(WARM_MODEL, "cluster.kind=processes", f"cluster.engines={engines}", *changes)
    return ClusterEngine(policy, config, transport or Inline())
