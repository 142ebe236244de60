"""The trainer's side of one worker process: hand it work, watch the clock, replace it when it falls.

Requests go one at a time, so the slot that hangs or kills its worker is known, and a reply never waits behind
a request in a full pipe.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Literal

from isentrope.tasks.slots import MAX_DETAIL, Failure
from isentrope.tasks.worker import serve

Command = Literal["start", "step"]
START_SECONDS = 120.0  # for a new process to import and open its world

_UNGUARDED = "before it was ready; a script of your own must start everything below `if __name__ == '__main__':`"


class WorkerProcess:
    """One child process, or rather the place of one: after a fall the next generation takes it."""

    def __init__(self, world_name: str, options: dict[str, Any], step_seconds: float) -> None:
        self._arguments = (world_name, options)
        self._step_seconds = step_seconds
        self.generation = 0
        self.epitaph = ""  # how the last generation ended
        self.results: dict[int, Any] = {}
        self._started_in: dict[int, int] = {}  # slot -> generation that was asked to start it
        self._command: Command = "step"
        self._waiting: list[tuple[int, Any]] = []
        self._current: int | None = None
        self._awaited = True  # the first generation has to come up before anything is asked of it
        self._spawn()

    def _spawn(self) -> None:
        # spawn, not fork: the trainer has threads, and a fork copies their locks in whatever state they are
        context = multiprocessing.get_context("spawn")
        self.pipe, child_end = context.Pipe()
        self._process: SpawnProcess = context.Process(target=serve, args=(child_end, *self._arguments), daemon=True)
        self._process.start()
        child_end.close()  # so that the child's death closes the pipe
        self.generation += 1
        self.ready = False
        self.deadline = time.monotonic() + START_SECONDS

    @property
    def busy(self) -> bool:
        return self._awaited or self._current is not None or bool(self._waiting)

    def lost(self, slot: int) -> bool:
        """Whether the slot was being played by a generation that has fallen."""
        return self._started_in.get(slot, self.generation) != self.generation

    def begin(self, command: Command, batch: Mapping[int, Any]) -> None:
        """Start on a batch, slot -> argument; `play_all` carries it to its end, `results` holds the answers."""
        self.revive()
        self.results = {}
        self._command = command
        self._waiting = list(batch.items())
        if self.ready:
            self._send_next()

    def revive(self) -> None:
        """Replace a process that died while it had nothing to do."""
        if not self._process.is_alive():
            self._replace(self._last_words())

    def take_answer(self) -> None:
        """Read one message. `play_all` calls it when the pipe has something, be it only its end."""
        self._awaited = False
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self._fall("worker_died", self._last_words())
            return
        if self.ready and self._current is not None:
            self._answer(self._current, answer)
            self._current = None
        elif isinstance(answer, Failure):
            self._fall(answer.kind, answer.detail)
            return
        self.ready = True
        self._send_next()

    def overdue(self) -> None:
        self._awaited = False
        if self.ready:
            self._fall("time_limit", f"no answer within {self._step_seconds:g} s; the worker was ended")
        else:
            self._fall("time_limit", f"the worker was not ready within {START_SECONDS:g} s")

    def _send_next(self) -> None:
        if not self._waiting:
            return
        self._current, argument = self._waiting.pop(0)
        self.deadline = time.monotonic() + self._step_seconds
        try:
            self.pipe.send((self._command, self._current, argument))
        except OSError:
            self._fall("worker_died", self._last_words())

    def _fall(self, kind: Literal["task_error", "time_limit", "worker_died"], detail: str) -> None:
        """The slot being played failed. Starts not yet begun go to the next generation; other states are lost."""
        if self._current is not None:
            self._answer(self._current, Failure(kind, detail[:MAX_DETAIL]))
        if self._command == "step" or not self.ready:
            for slot, _ in self._waiting:
                self._answer(slot, Failure("worker_died", detail[:MAX_DETAIL]))
            self._waiting = []
        self._current = None
        self._replace(detail)

    def _answer(self, slot: int, answer: Any) -> None:
        self.results[slot] = answer
        if self._command == "start":
            self._started_in[slot] = self.generation

    def _replace(self, epitaph: str) -> None:
        self.epitaph = epitaph[:MAX_DETAIL]
        self.end()
        self._spawn()

    def _last_words(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if not self.ready:
            return f"the worker ended with exit code {code} {_UNGUARDED}"
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            advice = "; perhaps the machine ran out of memory" if name == "SIGKILL" else ""
            return f"the worker was ended by {name}{advice}"
        return f"the worker ended with exit code {code}"

    def ask_to_leave(self) -> None:
        try:
            self.pipe.send(None)
        except OSError:
            pass  # it is gone already

    def end(self, patience: float = 0.0) -> None:
        """Wait so many seconds for it to leave by itself, then kill it."""
        self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def play_all(workers: Sequence[WorkerProcess]) -> None:
    """Until every worker has answered, failed or run out of time."""
    while busy := [worker for worker in workers if worker.busy]:
        pipes: list[Connection] = [worker.pipe for worker in busy]
        patience = min(worker.deadline for worker in busy) - time.monotonic()
        heard = connection.wait(pipes, max(0.0, patience))
        now = time.monotonic()
        for worker, pipe in zip(busy, pipes, strict=True):
            if pipe in heard:
                worker.take_answer()
            elif now >= worker.deadline:
                worker.overdue()
