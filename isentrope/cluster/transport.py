"""The interface between an engine and its samplers: start one, send it bytes, hear what all of them have to say.

What is sent are orders, what is heard are replies (messages.py). Another way than child processes, such as actors of a
cluster, implements these two classes and gives `sampler.Sampler` the orders on the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Link(Protocol):
    """To one sampler."""

    @property
    def name(self) -> str:
        """For messages: which process it is."""
        ...

    def send(self, order: bytes) -> None:
        """Does not wait. What is sent to a sampler that is gone is lost: its end is heard."""
        ...

    def end(self, patience: float = 0.0) -> None:
        """Give it so many seconds to leave by itself, then end it. Nothing of it is heard afterwards."""
        ...


@dataclass(frozen=True)
class Heard:
    link: Link
    reply: bytes | None  # None: the sampler is gone
    words: str = ""  # why


class Transport(Protocol):
    def start(self) -> Link:
        """A new sampler. Does not wait until it is there: what is sent meanwhile reaches it later."""
        ...

    def hear(self, seconds: float) -> Heard | None:
        """The next thing that any sampler has to say; None if that takes longer. 0 does not wait."""
        ...

    def close(self) -> None:
        """End all samplers that are left."""
        ...
