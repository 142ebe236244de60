"""Where a task server plays: in worker processes or in threads, each with a queue in front of it.

Tasks stay where they were started, so requests may have to wait for their turn though somebody else is free. What has
to wait is known: a client is told so, and does not take the server for lost.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from isentrope.config.schema import TaskSettings
from isentrope.worlds.pool.codec import Table, result_to_table
from isentrope.worlds.pool.guarded import close_world
from isentrope.worlds.pool.placement import place_of
from isentrope.worlds.pool.threads import ThreadTasks
from isentrope.worlds.pool.workers import WorkerTasks
from isentrope.worlds.registry import make_world


class Turn:
    """Something to be played, from when it joins the queue."""

    def __init__(self, command: str, slot: int, argument: Any) -> None:
        self.command, self.slot, self.argument = command, slot, argument
        self.begun = threading.Event()
        self.answer: Future[Table] = Future()


class Lane:
    """So many threads that play one turn after another, in the order in which they came, with one pool of tasks."""

    def __init__(self, pool: ThreadTasks | WorkerTasks, threads: int) -> None:
        self._pool, self._threads = pool, threads
        self._queue: SimpleQueue[Turn | None] = SimpleQueue()
        for _ in range(threads):
            threading.Thread(target=self._work, daemon=True, name="isentrope-lane").start()

    def join(self, turn: Turn) -> None:
        self._queue.put(turn)

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)
        self._pool.close()

    def _work(self) -> None:
        while (turn := self._queue.get()) is not None:
            if not turn.answer.set_running_or_notify_cancel():
                continue
            turn.begun.set()
            try:
                play: Any = self._pool.start if turn.command == "start" else self._pool.step
                turn.answer.set_result(result_to_table(play({turn.slot: turn.argument})[turn.slot]))
            except BaseException as error:
                turn.answer.set_exception(error)


class Desk:
    """Plays slots for many clients at once. A slot belongs to one lane, where its task is."""

    def __init__(self, task: TaskSettings, count: int) -> None:
        self.world = make_world(task.world, task.options)
        place = place_of(task.where, task.workers, self.world)
        if place.workers:
            with ThreadPoolExecutor(place.workers) as threads:  # all come up at the same time
                begun = [threads.submit(self._worker, task, count) for _ in range(place.workers)]
            self._lanes = [Lane(worker.result(), 1) for worker in begun]  # a worker does one thing after another
        else:
            at_once = max(1, place.threads)
            self._lanes = [Lane(ThreadTasks(self.world, count, at_once, task.step_seconds), min(at_once, count))]

    def _worker(self, task: TaskSettings, count: int) -> WorkerTasks:
        return WorkerTasks(task.world, task.options, count, 1, task.step_seconds, self.world)

    def play(self, command: str, slot: int, argument: Any) -> Turn:
        turn = Turn(command, slot, argument)
        self._lanes[slot % len(self._lanes)].join(turn)
        return turn

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        close_world(self.world)
