"""Plays tasks in worker processes, which are replaced when they hang or die.

A worker answers one request after another and has a few waiting, so that it need not wait for a trainer that is busy
with something else. The first request without an answer is the one that hangs or has killed its worker: that slot has
failed. The other slots of the worker are replayed in the next one, up to where they were, when they are next asked for
something. What waits in the pipe is so little that it never fills: neither side can block the other.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from isentrope.core.children import another_main, begin_child, end_child
from isentrope.core.errors import TaskError
from isentrope.core.process import signal_name
from isentrope.worlds.contract import Instance, Step, View, World
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.codec import MAX_MESSAGE, pack, result_from_table, result_to_table, unpack
from isentrope.worlds.pool.guarded import Command, Failure, FailureKind, GuardedTasks, Result, close_world
from isentrope.worlds.pool.sanitize import MAX_DETAIL, Garbage, in_words
from isentrope.worlds.registry import make_world

# A request is ("start", slot, Instance), ("step", slot, action) or None for "close and go"; every request but the
# last has one answer, in JSON. The first message back is {"ready": true} or the Failure that kept the world from
# opening.
READY = {"ready": True}


def serve(pipe: Connection, world_name: str, options: Mapping[str, Any]) -> None:
    """The child process: plays the slots given to it until its pipe closes."""
    begin_child()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the cores belong to the trainer and to the other workers
    try:
        world = make_world(world_name, options)
    except (Exception, SystemExit) as error:
        pipe.send_bytes(pack(result_to_table(Failure("worker_died", in_words(error)))))
        return
    tasks = GuardedTasks(world)
    pipe.send_bytes(pack(READY))
    try:
        while (request := pipe.recv()) is not None:
            command, slot, argument = request
            pipe.send_bytes(pack(result_to_table(tasks.play(command, slot, argument))))
    except (EOFError, OSError):
        pass  # the trainer is gone
    tasks.close()
    close_world(world)


@dataclass(frozen=True)
class Request:
    """Something to ask of a worker. With `mark` it was asked before, and this was the answer."""

    command: Command
    slot: int
    argument: Instance | str
    mark: int | None = None


@dataclass
class Replay:
    """One episode: its requests so far, each with the mark of its answer.

    A task is deterministic given the instance and the actions. So an episode of another slot is not lost with its
    worker: a new one plays it again up to where it was. Where an answer differs from the first time, it is given up.
    """

    generation: int  # of the worker that holds its state
    requests: list[Request] = field(default_factory=list[Request])


def mark_of(result: View | Step) -> int:
    """A number that tells answers apart; `info` may hold the time or a process id, so it does not count."""
    if isinstance(result, View):
        return hash((result.text, result.goal, result.admissible))
    view = result.view
    flags = (result.terminated, result.truncated, result.success, result.valid)
    return hash((view.text, view.admissible, result.reward, flags))


START_SECONDS = 120.0  # for a new process to import and open its world
AHEAD_BYTES = 4096  # of requests behind the one that is being played: half of what the smallest pipes hold

_UNGUARDED = "before it was ready; a script of your own must start everything below `if __name__ == '__main__':`"


class WorkerProcess:
    """The trainer's side of one worker: hands it work, watches the clock, and replaces the process when it fails."""

    def __init__(self, world_name: str, options: dict[str, Any], step_seconds: float, replayable: bool = True) -> None:
        self._arguments, self._step_seconds, self._replayable = (world_name, options), step_seconds, replayable
        self.generation = 0
        self.epitaph = ""  # how the last generation ended
        self.replaced = self.replayed = 0
        self.results: dict[int, Result] = {}
        self._replays: dict[int, Replay] = {}
        self._waiting: deque[Request] = deque()
        self._script: deque[Request] = deque()  # what the next slot takes: one request, or its whole replay before it
        self._sent: deque[Request] = deque()  # and not answered, in order
        self._sent_bytes: deque[int] = deque()
        self._awaited = True  # the first generation has to come up before anything is asked of it
        self._spawn()

    def _spawn(self) -> None:
        # spawn, not fork: the trainer has threads, and a fork copies their locks in whatever state they are
        context = multiprocessing.get_context("spawn")
        self.pipe, child_end = context.Pipe()
        self._process: SpawnProcess = context.Process(target=serve, args=(child_end, *self._arguments), daemon=True)
        with nullcontext() if self._arguments[0].startswith("__main__:") else another_main():
            self._process.start()
        child_end.close()  # so that the child's death closes the pipe
        self.generation += 1
        self.ready = False
        self.deadline = time.monotonic() + START_SECONDS

    @property
    def busy(self) -> bool:
        return self._awaited or bool(self._sent or self._script or self._waiting)

    def begin(self, command: Command, batch: Mapping[int, Any]) -> None:
        """Take on a batch, slot -> argument; `listen` carries it on, `results` gets the answers."""
        if not self.busy and not self._process.is_alive():  # it died while it had nothing to do
            self._replace(self._last_words())
        self._waiting.extend(Request(command, slot, argument) for slot, argument in batch.items())
        if self.ready:
            self._send_more()

    def take_answer(self) -> None:
        """Read one message. `listen` calls it when the pipe has something, be it only its end."""
        self._awaited = False
        try:
            table = unpack(self.pipe.recv_bytes(MAX_MESSAGE))
            result = None if table == READY else result_from_table(table)
        except (EOFError, OSError) as error:  # its end, or a message that is too long
            endless = not isinstance(error, EOFError | ConnectionError) and self._process.is_alive()
            return self._fall("worker_died", "its worker sent an endless answer" if endless else self._last_words())
        except Garbage as error:
            return self._fall("garbage", str(error))
        if result is None:
            self.ready = True
        elif self._sent:
            self._sent_bytes.popleft()
            self._answered(self._sent.popleft(), result)
            self.deadline = time.monotonic() + self._step_seconds  # of the one behind it
        elif isinstance(result, Failure):
            return self._fall(result.kind, result.detail)
        self._send_more()

    def overdue(self) -> None:
        self._awaited = False
        late = f"no answer within {self._step_seconds:g} s; the worker was ended"
        self._fall("time_limit", late if self.ready else f"the worker was not ready within {START_SECONDS:g} s")

    def _send_more(self) -> None:
        while self._script or self._waiting:
            if not self._script:
                self._next_script()
                continue
            request = self._script[0]
            # what is played again goes step by step: each answer decides whether there is a next step
            if self._sent and (request.mark is not None or self._sent[-1].mark is not None):
                return
            message = pickle.dumps((request.command, request.slot, request.argument))
            if self._sent and sum(self._sent_bytes) + len(message) > AHEAD_BYTES:
                return
            self._script.popleft()
            if not self._sent:
                self.deadline = time.monotonic() + self._step_seconds
            self._sent.append(request)
            self._sent_bytes.append(len(message))
            try:
                self.pipe.send_bytes(message)
            except OSError:
                return  # it is gone: that is heard at the other end of what it has still answered

    def _next_script(self) -> None:
        """The next request; in front of it, if its state fell with an earlier worker, all that led there."""
        request = self._waiting.popleft()
        episode = self._replays.get(request.slot)
        if request.command == "start" or episode is None or episode.generation == self.generation:
            self._script.append(request)
        elif self._replayable:
            self.replayed += 1
            self._script.extend([*episode.requests, request])
        else:
            self._give_up(request.slot, "worker_died", f"lost with its worker: {self.epitaph}")

    def _answered(self, request: Request, result: Result) -> None:
        if request.mark is None:
            self._record(request, result)
        elif isinstance(result, Failure) or mark_of(result) != request.mark:
            self._script.clear()
            what = f"lost with its worker ({self.epitaph}), and playing it again went differently"
            self._give_up(request.slot, "worker_died", what)
        elif len(self._script) == 1:  # only the new request is left
            self._replays[request.slot].generation = self.generation

    def _record(self, request: Request, result: Result) -> None:
        self.results[request.slot] = result
        if isinstance(result, Failure):
            self._replays.pop(request.slot, None)
            return
        if request.command == "start":
            self._replays[request.slot] = Replay(self.generation)
        if request.slot in self._replays:
            self._replays[request.slot].requests.append(replace(request, mark=mark_of(result)))

    def _give_up(self, slot: int, kind: FailureKind, detail: str) -> None:
        self.results[slot] = Failure(kind, detail[:MAX_DETAIL])
        self._replays.pop(slot, None)

    def _fall(self, kind: FailureKind, detail: str) -> None:
        """The slot being played has failed. The others go to the next generation, unless this one never was ready."""
        if self._sent:
            at = self._sent.popleft()
            if at.mark is None:
                self._give_up(at.slot, kind, detail)
            else:
                self._give_up(at.slot, "worker_died", f"lost with its worker, and playing it again failed: {detail}")
                self._script.clear()
        self._waiting.extendleft(reversed([*self._sent, *(r for r in self._script if r.mark is None)]))
        for pending in (self._sent, self._sent_bytes, self._script):
            pending.clear()
        if not self.ready:
            for request in self._waiting:
                self._give_up(request.slot, "worker_died", detail)
            self._waiting.clear()
        self._replace(detail)

    def _replace(self, epitaph: str) -> None:
        self.epitaph = epitaph[:MAX_DETAIL]
        self.replaced += 1
        self.end()
        self._spawn()

    def _last_words(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if not self.ready:
            return f"the worker ended with exit code {code} {_UNGUARDED}"
        if code is not None and code < 0:
            name = signal_name(-code)
            advice = "; perhaps the machine ran out of memory" if name == "SIGKILL" else ""
            return f"the worker was ended by {name}{advice}"
        return f"the worker ended with exit code {code}"

    def end(self, patience: float = 0.0) -> None:
        """Wait so many seconds for it to leave by itself, then kill it and whatever it has started."""
        end_child(self._process, patience)
        self.pipe.close()


def listen(workers: Sequence[WorkerProcess], wait: bool) -> bool:
    """Read one message of each worker that has one, and end those whose time is up; whether there was any such. With
    `wait` there is: all these workers are busy."""
    poll, by_number = select.poll(), {worker.pipe.fileno(): worker for worker in workers}
    for number in by_number:
        poll.register(number, select.POLLIN)
    patience = min(worker.deadline for worker in workers) - time.monotonic() if wait else 0.0
    heard = {number for number, _ in poll.poll(1000 * max(0.0, patience))}
    now, moved = time.monotonic(), bool(heard)
    for number, worker in by_number.items():
        if number in heard:
            worker.take_answer()
        elif now >= worker.deadline:
            worker.overdue()
            moved = True
    return moved


class WorkerTasks(TaskPool):
    """The pool: slot s is played by worker s modulo the number of workers. All workers come up at the same time."""

    def __init__(
        self, world_name: str, options: Mapping[str, Any], count: int, workers: int, step_seconds: float,
        world: World | None = None,
    ) -> None:  # fmt: skip
        # wrong options are the user's to hear of now, not a worker's to die of
        super().__init__(world or make_world(world_name, options), count)
        number = max(1, min(workers, count))
        replayable = bool(getattr(self._world, "replayable", True))
        self._workers = [WorkerProcess(world_name, dict(options), step_seconds, replayable) for _ in range(number)]
        while coming := [worker for worker in self._workers if worker.busy]:
            listen(coming, wait=True)  # until all are ready
        broken = [worker.epitaph for worker in self._workers if worker.epitaph]
        if broken:
            self.close()
            raise TaskError(f"the worker processes for {world_name} did not start: {broken[0]}")

    def _happened(self) -> Counter[str]:
        replaced, replayed = zip(*((worker.replaced, worker.replayed) for worker in self._workers), strict=True)
        return Counter(workers_replaced=sum(replaced), replayed=sum(replayed))

    def close(self) -> None:
        if not self._open:
            return
        super().close()
        for worker in self._workers:
            with suppress(OSError):  # it is gone already
                worker.pipe.send(None)
        for worker in self._workers:
            worker.end(patience=2.0)
        close_world(self._world)

    def _begin(self, command: Command, arguments: Mapping[int, Any]) -> None:
        batches: dict[WorkerProcess, dict[int, Any]] = {}
        for slot, argument in arguments.items():
            batches.setdefault(self._workers[slot % len(self._workers)], {})[slot] = argument
        for worker, batch in batches.items():
            worker.begin(command, batch)

    def _gather(self, wait: bool) -> dict[int, Result]:
        results = self._results()  # a worker may have something to tell before it was asked anything: a state is lost
        while busy := [worker for worker in self._workers if worker.busy]:
            waits = wait and not results
            heard = listen(busy, waits)
            results |= self._results()
            if not heard and not waits:
                break
        return results

    def _results(self) -> dict[int, Result]:
        results: dict[int, Result] = {}
        for worker in self._workers:
            results |= worker.results
            worker.results.clear()
        return results
