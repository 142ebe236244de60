"""Where the time of a rollout goes.

engine   the engine works                    (tasks wait for it: `tasks_idle`, the part in which none is played)
tasks    the engine has nothing to do and waits for tasks
host     everything between: prompts, parsing, records
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager


class Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, *stages: str) -> Generator[None]:
        """The time within counts for these stages."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            for stage in stages:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def split(self, stage: str, parts: Mapping[str, float]) -> None:
        """Count parts of a stage as stages of their own."""
        for part, seconds in parts.items():
            self.seconds[stage] -= seconds
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Seconds by stage since this was called last."""
        taken, self.seconds = self.seconds, {}
        if "play" in taken:
            taken["host"] = max(0.0, taken["play"] - taken.get("engine", 0.0) - taken.get("tasks", 0.0))
        return taken
