"""Runs an untrusted program and stops it at a limit: of seconds, of output, or when a watch says so."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from isentrope.sandbox.base import Limits, Outcome

_CHILD = re.compile(rb'"child-pid": *([0-9]+)[^0-9]')


class Leader:
    """The first process of a box. If it dies, the kernel ends all others in the box.

    Bubblewrap asks the kernel to kill it when bubblewrap itself ends. Where the box's code runs under the same user id
    as that first process, it might find a way to take that request back; so we kill the process ourselves as well. Its
    number comes from bubblewrap; a pidfd makes sure that no other process is taken for it.
    """

    def __init__(self) -> None:
        self.news, self.told = os.pipe()  # bubblewrap writes to `told`
        self._heard = b""
        self._process = -1

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for number in (self.news, self.told, self._process):
            if number >= 0:
                os.close(number)

    def read(self) -> bool:
        """There is news, perhaps not all of it yet; says whether the process is known now."""
        self._heard += os.read(self.news, 4096)
        found = _CHILD.search(self._heard)
        if found is None:
            return len(self._heard) > 4096  # that is no answer of bubblewrap's
        try:
            process = os.pidfd_open(int(found[1]))
        except OSError:
            return True  # it has ended already
        if _leads(int(found[1])):
            self._process = process
        else:
            os.close(process)
        return True

    def kill(self) -> None:
        if self._process >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)


def _leads(pid: int) -> bool:
    """Whether it is process 1 of a namespace inside ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    numbers = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    return any(len(one) > 1 and one[-1] == "1" for one in numbers)


TICK = 0.05  # seconds between two looks at the program
GRACE = 2.0  # seconds for what it wrote to arrive after its end

Watch = Callable[[int], str]  # given the process id: the limit that is passed, or ""


def run_bounded(
    argv: Sequence[str], stdin: bytes, limits: Limits, watch: Watch, pass_fds: Sequence[int] = (),
    leader: Leader | None = None,
) -> Outcome:  # fmt: skip
    """Standard output and error together, at most `limits.output` bytes of them.

    At the end the program is killed, and the leader of its box if there is one.
    """
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=pass_fds,
        start_new_session=True, env={}, cwd="/",
    )  # fmt: skip
    talk = _Talk(process, stdin, limits.output, leader)
    try:
        ended = talk.until_end(limits.seconds, watch)
    finally:
        process.kill()
        process.wait()
        if leader is not None:
            leader.kill()
    talk.drain(GRACE)
    talk.close()
    return Outcome(process.returncode, bytes(talk.output[: limits.output]), ended)


class _Talk:
    """Both pipes of a process, neither of which may block."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, most: int, leader: Leader | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._left, self._most = memoryview(stdin), most
        self.output = bytearray()
        self._selector = selectors.DefaultSelector()
        for pipe, event in ((self._in, selectors.EVENT_WRITE), (self._out, selectors.EVENT_READ)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, event)
        self._leader = leader
        if leader is not None:
            self._selector.register(leader.news, selectors.EVENT_READ)

    def until_end(self, seconds: float, watch: Watch) -> str:
        end, next_look = time.monotonic() + seconds, time.monotonic() + TICK
        while self._process.poll() is None:
            self._exchange(TICK)
            if len(self.output) > self._most:
                return "output"
            now = time.monotonic()
            if now > end:
                return "time"
            if now > next_look:
                next_look = now + TICK
                if passed := watch(self._process.pid):
                    return passed
        return "exit"

    def drain(self, seconds: float) -> None:
        """Read what is still in the pipe. A box that is gone holds no end of it open."""
        end = time.monotonic() + seconds
        while self._out in self._readable() and len(self.output) <= self._most and time.monotonic() < end:
            self._exchange(TICK)

    def close(self) -> None:
        self._selector.close()
        for pipe in (self._in, self._out):
            with suppress(OSError):  # what was left to write has no reader any more
                pipe.close()

    def _readable(self) -> list[object]:
        return [key.fileobj for key in self._selector.get_map().values()]

    def _exchange(self, seconds: float) -> None:
        events = self._selector.select(seconds)
        if not self._readable():
            time.sleep(min(seconds, 0.002))
        for key, _ in events:
            if key.fileobj is self._out:
                with suppress(BlockingIOError):
                    chunk = os.read(self._out.fileno(), 1 << 16)
                    self.output += chunk
                    if not chunk:
                        self._selector.unregister(self._out)
            elif self._leader is not None and key.fileobj == self._leader.news:
                if self._leader.read():
                    self._selector.unregister(key.fileobj)
            else:
                self._write()

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._in.fileno(), self._left[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not want to hear the rest
            self._left = self._left[:0]
        if not self._left:
            self._selector.unregister(self._in)
            self._in.close()
