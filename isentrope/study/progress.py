"""How far a run has come, from the end of its log: cheap enough to ask every second."""

from __future__ import annotations

import time
from typing import Any

from isentrope.core.errors import RunError
from isentrope.runs.folder import Run
from isentrope.runs.layout import METRICS
from isentrope.runs.log import last_records
from isentrope.study.jobs import Job
from isentrope.study.read import is_done


class Progress:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.step, self.begun_at = 0, 0  # the last step; the one from which this process went on
        self.success: float | None = None  # at the last evaluation
        self.entropy: float | None = None
        self.began = self.looked = 0.0
        self.look()

    def begin(self) -> None:
        self.look()
        self.began, self.begun_at = time.monotonic(), self.step

    def look(self) -> None:
        self.looked = time.monotonic()
        for record in last_records(self.job.folder / METRICS):
            self.step = int(record["step"])
            self.entropy = _number(record.get("entropy/token"), self.entropy)
            told = [value for key, value in record.items() if key.startswith("eval/") and key.endswith("/success")]
            self.success = _number(told[-1], self.success) if told else self.success
        self.begun_at = min(self.begun_at, self.step)  # its checkpoint may be older than the end of the log was

    def is_done(self) -> bool:
        """Reads the whole folder: for a run that has ended."""
        if not self.job.folder.is_dir():
            return False
        try:
            return is_done(Run.open(self.job.folder))
        except RunError:
            return False

    @property
    def has_learnt(self) -> bool:
        """Whether this process has done a step: then it has all the memory that it needs."""
        return self.step > self.begun_at

    @property
    def steps_here(self) -> int:
        """That this process has done."""
        return self.step - self.begun_at if self.began else 0

    @property
    def seconds_per_step(self) -> float | None:
        """Evaluations and the start included; of a run that has ended, what it took."""
        return (self.looked - self.began) / self.steps_here if self.steps_here > 0 else None


def _number(value: Any, before: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else before
