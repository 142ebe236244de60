"""Run a program that may do anything, and stop it in time: at a limit of seconds or output, or when a watch says so."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence

from isentrope.tasks.code_repair.leader import Leader
from isentrope.tasks.code_repair.sandbox import Limits, Outcome

TICK = 0.05  # seconds between two looks at the program
GRACE = 2.0  # seconds for what it wrote to arrive after its end

Watch = Callable[[int], str]  # given the process id: the limit that is passed, or ""


def run_bounded(
    argv: Sequence[str],
    stdin: bytes,
    limits: Limits,
    watch: Watch,
    pass_fds: Sequence[int] = (),
    leader: Leader | None = None,
) -> Outcome:
    """Standard output and error together, at most `limits.output` bytes of them.

    At the end the program is killed, and the leader of its box if there is one.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
        env={},
        cwd="/",
    )
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
            try:
                pipe.close()
            except OSError:
                pass  # what was left to write has no reader any more

    def _readable(self) -> list[object]:
        return [key.fileobj for key in self._selector.get_map().values()]

    def _exchange(self, seconds: float) -> None:
        events = self._selector.select(seconds)
        if not self._readable():
            time.sleep(min(seconds, 0.002))
        for key, _ in events:
            if key.fileobj is self._out:
                self._read()
            elif self._leader is not None and key.fileobj == self._leader.news:
                if self._leader.read():
                    self._selector.unregister(key.fileobj)
            else:
                self._write()

    def _read(self) -> None:
        try:
            chunk = os.read(self._out.fileno(), 1 << 16)
        except BlockingIOError:
            return
        self.output += chunk
        if not chunk:
            self._selector.unregister(self._out)

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
