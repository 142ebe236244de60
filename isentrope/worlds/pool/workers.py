"""Tasks in worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import World
from isentrope.worlds.pool.base import Command, Pool, Result
from isentrope.worlds.pool.guarded import close_world
from isentrope.worlds.pool.processes import WorkerProcess, listen
from isentrope.worlds.registry import make_world


class WorkerTasks(Pool):
    """Slot s lives in worker s modulo the number of workers. All workers come up at the same time."""

    def __init__(
        self,
        world_name: str,
        options: Mapping[str, Any],
        count: int,
        workers: int,
        step_seconds: float,
        world: World | None = None,
    ) -> None:
        # wrong options are the user's to hear of now, not a worker's to die of
        super().__init__(world or make_world(world_name, options), count)
        number = max(1, min(workers, count))
        replay = bool(getattr(self._world, "replayable", True))
        self._workers = [WorkerProcess(world_name, dict(options), step_seconds, replay) for _ in range(number)]
        self._told = (0, 0)
        while coming := [worker for worker in self._workers if worker.busy]:
            listen(coming, wait=True)  # until all are ready
        broken = [worker.epitaph for worker in self._workers if worker.epitaph]
        if broken:
            self.close()
            raise TaskError(f"the worker processes for {world_name} did not start: {broken[0]}")

    def notes(self) -> dict[str, float]:
        now = tuple(sum(getattr(w, name) for w in self._workers) for name in ("replaced", "replayed"))
        since = {"workers_replaced": now[0] - self._told[0], "replayed": now[1] - self._told[1]}
        self._told = (now[0], now[1])
        return {name: float(value) for name, value in since.items() if value}

    def close(self) -> None:
        if not self._open:
            return
        super().close()
        for worker in self._workers:
            worker.ask_to_leave()
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
        found = self._results()  # a worker may have something to tell before it was asked anything: a state is lost
        while busy := [worker for worker in self._workers if worker.busy]:
            waits = wait and not found
            heard = listen(busy, waits)
            found |= self._results()
            if not heard and not waits:
                break
        return found

    def _results(self) -> dict[int, Result]:
        found: dict[int, Result] = {}
        for worker in self._workers:
            found |= worker.results
            worker.results.clear()
        return found
