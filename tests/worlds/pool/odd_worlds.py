"""Variants of the toy world that need something of the pool, or do something to it."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isentrope.config.schema import setting
from isentrope.worlds.contract import Instance, Step, View
from tests.toys import ToyOptions, ToyTask, ToyWorld

HERE = "tests.worlds.pool.odd_worlds"


@dataclass(frozen=True)
class OddOptions:
    notes: str = setting("", "file to which lines are written")
    seconds: float = setting(0.0, "that it takes to be made", low=0)


class OddWorld(ToyWorld):
    def __init__(self, options: OddOptions | None = None) -> None:
        super().__init__(ToyOptions(goal=9, naughty=True))
        self.odd = options or OddOptions()

    def note(self, line: str) -> None:
        with Path(self.odd.notes).open("a") as file:
            file.write(line + "\n")


class SlowToMake(OddWorld):
    """Writes down, in the worker processes, from when to when it was being made."""

    def __init__(self, options: OddOptions) -> None:
        began = time.monotonic()
        super().__init__(options)
        if os.getppid() == int(os.environ.get("TEST_TRAINER", "0")):
            time.sleep(options.seconds)
            self.note(f"{began} {time.monotonic()}")


class SaysWhoItIs(OddWorld):
    """Another process answers differently, so a replay never goes as the first time."""

    def open(self) -> ToyTask:
        class Task(ToyTask):
            def step(self, action: str) -> Step:
                step = super().step(action)
                return replace(step, view=replace(step.view, text=f"{os.getpid()}"))

        return Task(self._options)


class NotReplayable(OddWorld):
    replayable = False


class Grandchildren(OddWorld):
    """Each task starts a program, as a world with a JVM or a shell does."""

    def open(self) -> ToyTask:
        class Task(ToyTask):
            def start(self, instance: Instance) -> View:
                self.child = subprocess.Popen(["sleep", "1000"])
                return super().start(instance)

            def step(self, action: str) -> Step:
                step = super().step(action)
                return replace(step, info={**step.info, "child": self.child.pid})

        return Task(self._options)


class Threaded(OddWorld):
    """Four tasks may be played side by side. `wait` waits until four do; `hang` until the world is released."""

    threads = 4

    def __init__(self, options: OddOptions | None = None) -> None:
        super().__init__(options)
        self.barrier = threading.Barrier(4)
        self.release, self.hangs = threading.Event(), threading.Event()
        self.closed: list[str] = []
        self.closed_tasks = 0

    def open(self) -> ToyTask:
        world = self

        class Task(ToyTask):
            def step(self, action: str) -> Step:
                if action == "wait":
                    world.barrier.wait(20)
                if action == "hang":
                    world.hangs.set()
                    world.release.wait(60)
                    action = "look"
                return super().step(action)

            def close(self) -> None:
                super().close()
                world.closed_tasks += 1

        return Task(self._options)

    def close(self) -> None:
        self.closed.append("world")


class ClosesInWorker(OddWorld):
    def close(self) -> None:
        self.note(f"closed {os.getpid()}")


class PrefersProcesses(OddWorld):
    prefers = "processes"


class PrefersNonsense(OddWorld):
    prefers: Any = "the moon"


class Abrupt(OddWorld):
    """`interrupt` raises what Ctrl-C raises; `signal 40` sends that to its own process."""

    threads = 2

    def open(self) -> ToyTask:
        class Task(ToyTask):
            def step(self, action: str) -> Step:
                if action == "interrupt":
                    raise KeyboardInterrupt
                if action.startswith("signal "):
                    os.kill(os.getpid(), int(action.split()[1]))
                return super().step(action)

        return Task(self._options)


class OneAtATime(OddWorld):
    """For servers in this process: `hang` hangs until it is released. Counts the worlds of its kind."""

    release, hangs = threading.Event(), threading.Event()
    made = closed = 0

    def __init__(self, options: OddOptions | None = None) -> None:
        super().__init__(options)
        OneAtATime.made += 1

    def open(self) -> ToyTask:
        class Task(ToyTask):
            def step(self, action: str) -> Step:
                if action == "hang":
                    OneAtATime.hangs.set()
                    OneAtATime.release.wait(60)
                    action = "look"
                return super().step(action)

        return Task(self._options)

    def close(self) -> None:
        OneAtATime.closed += 1
