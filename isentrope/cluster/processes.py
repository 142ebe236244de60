"""Samplers, or other ranks of the learner, as child processes of this one, and the pipes to them.

Each link has two threads here, one that sends and one that listens: neither a child that is busy nor one that hangs
holds up the learner, and no two that both want to send wait for each other. A child ends when its pipe does, so it ends
with the learner, however that one ends.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from isentrope.cluster.messages import MAX_REPLY, Begin, Failed, Reply, Working, order_from_bytes, reply_to_bytes
from isentrope.cluster.transport import Heard
from isentrope.core.children import another_main, begin_child, end_child, end_own_group
from isentrope.core.errors import IsentropeError
from isentrope.core.process import signal_name

if TYPE_CHECKING:
    from isentrope.cluster.sampler import Sampler

LEAVE = b""  # the last thing that is sent
UNGUARDED = "; a script of your own must start everything below `if __name__ == '__main__':`"


class Handed:
    """An open file on its way into a child process."""

    def __init__(self, fd: int | None) -> None:
        self._fd: Any = fd

    def __getstate__(self) -> dict[str, Any]:  # while the child is being started
        return {"_fd": None if self._fd is None else reduction.DupFd(self._fd)}

    def take(self) -> int | None:
        return None if self._fd is None else self._fd.detach()


# The child


def serve(pipe: Connection, handed: Handed, work: Work) -> None:
    """Does what it is told until its pipe ends."""
    begin_child()
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, orders), daemon=True).start()
    try:
        work(Speaker(pipe), orders, handed)
    except OSError:
        pass  # the learner is gone
    except (Exception, SystemExit) as error:
        words = str(error) if isinstance(error, IsentropeError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            pipe.send_bytes(reply_to_bytes(Failed(words)))


def _listen(pipe: Connection, orders: queue.SimpleQueue[bytes]) -> None:
    """All the time: the learner must be able to send however long the engine works on something."""
    try:
        while True:
            orders.put(pipe.recv_bytes())
    except (EOFError, OSError):
        end_own_group()


class Speaker:
    """The pipe to the learner, for two threads: while an engine works for long, another says that it does."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._one = pipe, threading.Lock()

    def say(self, reply: Reply) -> None:
        with self._one:
            self._pipe.send_bytes(reply_to_bytes(reply))

    def beat(self, sampler: Sampler, seconds: float) -> None:
        """Say that the engine works, as long as it draws tokens: not if it hangs."""
        before = sampler.moved
        with suppress(OSError):  # the learner is gone, which others hear too
            while True:
                time.sleep(seconds)
                if sampler.moved != before:
                    before = sampler.moved
                    self.say(Working())


Work = Callable[[Speaker, "queue.SimpleQueue[bytes]", Handed], None]
"""What a child does with its orders; a function at the top of a module."""


def sample(speaker: Speaker, orders: queue.SimpleQueue[bytes], handed: Handed) -> None:
    """What a sampler does."""
    from isentrope.cluster.sampler import Sampler  # torch, which takes seconds: the pipe is read meanwhile

    begin: Begin = pickle.loads(orders.get())
    sampler = Sampler(begin, handed.take())
    threading.Thread(target=speaker.beat, args=(sampler, begin.beat), daemon=True).start()
    while True:
        for reply in sampler.replies:
            speaker.say(reply)
        sampler.replies.clear()
        if sampler.busy and orders.empty():
            sampler.work()
            continue
        order = orders.get()
        if order == LEAVE:
            return sampler.close()
        sampler.take(order_from_bytes(order, sampler.policy.tokenizer))


# The learner's side


class ProcessLink:
    """To one process, which `begin` starts: whoever is interrupted meanwhile has a link that can be ended."""

    def __init__(
        self, name: str, handed: Handed, heard: queue.SimpleQueue[Heard], own_main: bool, work: Work = sample
    ) -> None:
        # spawn, not fork: the trainer has threads, and a fork copies their locks in whatever state they are
        context = multiprocessing.get_context("spawn")
        self._pipe, self._child_end = context.Pipe()
        self.process: SpawnProcess = context.Process(target=serve, args=(self._child_end, handed, work), daemon=True)
        self._name, self._own_main, self._ended = name, own_main, False
        self._heard, self._orders = heard, queue.SimpleQueue[bytes | None]()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._listen)]

    def begin(self) -> None:
        with nullcontext() if self._own_main else another_main():
            self.process.start()
        self._child_end.close()  # so that the child's death closes the pipe
        for thread in self._threads:
            thread.start()

    @property
    def name(self) -> str:
        return f"{self._name}, process {self.process.pid}"

    @property
    def alive(self) -> bool:
        return self.process.pid is not None and self.process.is_alive()

    def send(self, order: bytes) -> None:
        self._orders.put(order)

    def _send(self) -> None:
        with suppress(OSError):  # it is gone: that is heard at the other end
            while (order := self._orders.get()) is not None:
                self._pipe.send_bytes(order)

    def _listen(self) -> None:
        while True:
            try:
                data = self._pipe.recv_bytes(MAX_REPLY)
            except (EOFError, OSError) as error:
                if not self._ended:
                    endless = not isinstance(error, EOFError | ConnectionError) and self.process.is_alive()
                    words = "sent a message without an end" if endless else self._last_words()
                    self._heard.put(Heard(self, None, words))
                return
            self._heard.put(Heard(self, data))

    def _last_words(self) -> str:
        self.process.join(5)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        if code < 0:
            name = signal_name(-code)
            return f"was ended by {name}" + ("; perhaps memory ran out" if name == "SIGKILL" else "")
        return f"ended with exit code {code}{UNGUARDED}"

    def end(self, patience: float = 0.0) -> None:
        self._ended = True
        self._orders.put(LEAVE)
        self._orders.put(None)
        if self.process.pid is not None:
            end_child(self.process, patience)
        for thread in self._threads:  # both have seen the end of the pipe
            if thread.is_alive():
                thread.join(5)
        self._child_end.close()
        self._pipe.close()


class Processes:
    """The transport. `fd`: the shared memory that each process is given; `own_main`: each of them imports the script
    that was started, where a class is that it needs; `kind`: what they are called; `work`: what they do."""

    def __init__(self, fd: int | None, own_main: bool, kind: str = "sampler", work: Work = sample) -> None:
        self._handed, self._own_main, self._number = Handed(fd), own_main, 0
        self._kind, self._work = kind, work
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self.links: list[ProcessLink] = []
        self._process = os.getpid()
        # before multiprocessing's own, which would wait for children that leave signals to their parent
        atexit.register(self.close)

    def start(self) -> ProcessLink:
        self._number += 1
        name = f"{self._kind} {self._number}"
        link = ProcessLink(name, self._handed, self._heard, self._own_main, self._work)
        self.links = [*(old for old in self.links if old.alive), link]
        link.begin()
        return link

    def hear(self, seconds: float) -> Heard | None:
        try:
            return self._heard.get(timeout=seconds) if seconds > 0 else self._heard.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        atexit.unregister(self.close)
        links, self.links = self.links, []
        if os.getpid() == self._process:  # not in a process that was forked
            for link in links:
                link.send(LEAVE)
            for link in links:
                link.end(patience=2.0)
