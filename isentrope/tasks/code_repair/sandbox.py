"""Where untrusted code runs, and how much it may take.

    sandbox = make_sandbox("bubblewrap", Limits())
    sandbox.start({"sums/add.py": Item(b"..."), ...})
    outcome = sandbox.exec(["python", "-c", "print(1)"])
    sandbox.write("sums/add.py", b"...")
    sandbox.diff()
    sandbox.close()

The work tree is held in this process's memory. Every `exec` starts a fresh box, gets a copy of the tree in it, runs one
command and throws the box away. So a command cannot change the tree, cannot leave a process behind, and nothing that it
makes (a link that points elsewhere, a file of a terabyte) is ever read on this side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from isentrope.errors import TaskError
from isentrope.tasks.code_repair.tree import Item

BACK_ENDS = ("bubblewrap", "docker")


@dataclass(frozen=True)
class Limits:
    """What one command may take."""

    seconds: float = 20.0  # by the clock
    memory: int = 1 << 30  # bytes, of all its processes together
    processes: int = 32  # and threads
    disk: int = 64 << 20  # bytes in the work folder
    file: int = 16 << 20  # bytes of one file
    files: int = 20_000  # in all folders that it can write to
    output: int = 1 << 20  # bytes of standard output and error


@dataclass(frozen=True)
class Outcome:
    """How a command ended. `ended` is exit, or the limit at which it was stopped: time, memory, files or output."""

    code: int
    output: bytes
    ended: str = "exit"


class Sandbox(Protocol):
    work: str  # the work folder, as commands see it

    def start(self, files: Mapping[str, Item]) -> None:
        """Begin with these files. Raises a TaskError if nothing can be confined here: code never runs unconfined."""
        ...

    def exec(self, command: Sequence[str], extra: Mapping[str, bytes] | None = None) -> Outcome:
        """Run one command in a fresh box with a copy of the tree; `extra` files lie in the folder /box there."""
        ...

    def write(self, path: str, data: bytes) -> None: ...

    def read(self, path: str) -> bytes: ...

    def restore(self, path: str) -> None:
        """Take back what was written there; a file that was added is gone."""
        ...

    def diff(self) -> dict[str, bytes]:
        """The files written since the start, with their contents."""
        ...

    def close(self) -> None: ...


def make_sandbox(back_end: str, limits: Limits, image: str = "", work: str = "/repo") -> Sandbox:
    """A sandbox of that kind, checked to work on this machine; a TaskError says how to get what is missing."""
    if back_end == "bubblewrap":
        from isentrope.tasks.code_repair.bubblewrap import Bubblewrap

        return Bubblewrap(limits)
    if back_end == "docker":
        from isentrope.tasks.code_repair.docker import Docker

        return Docker(limits, image, work)
    raise TaskError(f"sandbox = {back_end!r}: choose one of {', '.join(BACK_ENDS)}")
