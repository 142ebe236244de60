"""Steps a second of household games by where they are played; the peer of each is this process itself.

    python bench/workers.py [--slots 64] [--turns 40] [--rounds 3]

The places take turns, round after round, so that a machine that is busy with something else slows all of them down.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from isentrope.config.schema import TaskSettings
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.open import open_tasks, open_world
from isentrope.worlds.registry import make_world

WORLD = "household"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    told = parser.parse_args()
    servers = [Server(), Server("--set", "task.workers=2")]
    places = {
        "this process": pool("local", 0, told.slots),
        "1 worker process": pool("processes", 1, told.slots),
        "2 worker processes": pool("processes", 2, told.slots),
        "1 HTTP server": pool(servers[0].address, 0, told.slots),
        "1 HTTP server, 2 workers": pool(servers[1].address, 0, told.slots),
    }
    rates: dict[str, list[float]] = {name: [] for name in places}
    for _ in range(told.rounds):
        for name, tasks in places.items():
            rates[name].append(steps_per_second(tasks, told.slots, told.turns))
    peer = statistics.median(rates["this process"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"{name:<26} {rate:>9,.0f} steps/s   {rate / peer:5.2f} of this process   {1e3 / rate:6.3f} ms a step")
        places[name].close()
    for server in servers:
        server.process.terminate()


class Server:
    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "isentrope", "serve-task", WORLD, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split(" at ")[1].split(",")[0]


def pool(where: str, workers: int, slots: int) -> TaskPool:
    task = TaskSettings(world=WORLD, where=where)
    return open_tasks(WORLD, {}, slots, workers, task.step_seconds, where, open_world(task))


def steps_per_second(tasks: TaskPool, slots: int, turns: int) -> float:
    world = make_world(WORLD)
    tasks.start({slot: world.instance("train", slot) for slot in range(slots)})
    began = time.monotonic()
    for _ in range(turns):
        steps = tasks.step(dict.fromkeys(range(slots), "look"))
        assert not any(isinstance(step, Failure) for step in steps.values())
    return slots * turns / (time.monotonic() - began)


if __name__ == "__main__":
    main()
