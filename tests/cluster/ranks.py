"""Ranks of a learner for tests: processes that were forked once, for many learners one after the other."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch

from isentrope.cluster.group import RankGroup
from isentrope.cluster.messages import Failed, Reply, reply_to_bytes
from isentrope.cluster.transport import Heard
from isentrope.config.schema import RunConfig
from isentrope.core.errors import IsentropeError
from isentrope.loop import ranks
from isentrope.loop.ranks import Leading, follow
from isentrope.models.policy import Policy

CONTEXT = multiprocessing.get_context("fork")
REPLIES = CONTEXT.Queue()
"""Of all of them: (number, bytes)."""


class KeptGroup(RankGroup):
    """One that all learners of as many ranks use, one after the other: it takes a while to begin."""

    def close(self) -> None:
        """Until there is one of another size."""


_kept: list[KeptGroup] = []


def group_of(rank: int, size: int, file: str, device: torch.device, seconds: float) -> RankGroup:
    if not _kept or _kept[0].size != size:
        for group in _kept:
            RankGroup.close(group)
        _kept[:] = [KeptGroup(rank, size, file, device, seconds)]
    return _kept[0]


def end_groups() -> None:
    for group in _kept:
        RankGroup.close(group)
    _kept.clear()


class Follower:
    """A process that is one rank after the other."""

    def __init__(self, number: int) -> None:
        self.number, self.name, self.orders = number, f"rank {number}", CONTEXT.SimpleQueue()
        self.process: ForkProcess = CONTEXT.Process(target=self._work, daemon=True)
        self.process.start()

    def _work(self) -> None:
        torch.set_num_threads(1)
        with suppress(KeyboardInterrupt):
            while True:
                try:
                    follow(self, self.orders, None)  # type: ignore[arg-type]
                except IsentropeError as error:
                    self.say(Failed(str(error)))
                    REPLIES.close()
                    REPLIES.join_thread()
                    os._exit(1)

    def say(self, reply: Reply) -> None:
        REPLIES.put((self.number, reply_to_bytes(reply)))

    def send(self, order: bytes) -> None:
        self.orders.put(order)

    def end(self, patience: float = 0.0) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, signal.SIGKILL)
        self.process.join()


class Forked:
    """The transport."""

    def __init__(self, followers: Sequence[Follower]) -> None:
        self.followers, self.begun = followers, list[Follower]()

    def start(self) -> Follower:
        self.begun.append(self.followers[len(self.begun)])
        return self.begun[-1]

    def hear(self, seconds: float) -> Heard | None:
        try:
            number, reply = REPLIES.get(timeout=seconds)
        except queue.Empty:
            return None
        return Heard(self.followers[int(number) - 1], bytes(reply))

    def close(self) -> None:
        """They are asked again."""


@contextmanager
def leading(
    followers: Sequence[Follower], policy: Policy, reference: Policy | None, config: RunConfig, folder: Path
) -> Generator[Leading]:
    assert ranks.RankGroup is group_of  # here, and in the processes that were forked
    with Leading(policy, reference, config, Forked(followers), folder / "meet") as first:
        yield first
