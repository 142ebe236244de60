"""Success over the checkpoints of a run: its best (Succ.*) and where it settled (Succ.).

    Succ.*   the largest success of the run's evaluations after step 0, then the mean over seeds
    Succ.    the mean success of the evaluations in the last part of the run, then the mean over seeds. The part is a
             share of the steps (0.2: from step 120 of 150, that step included) or begins at a step given for all runs.

EPO's paper, which defines both, takes step 125 of 150 on for its household runs, and for each of its science runs a
part of its own. Here the part is the same for all runs of a table, and fixed before one looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.results.measure import Evaluation
from isentrope.results.source import Source


@dataclass(frozen=True)
class Window:
    """The part of a run that counts as converged."""

    share: float = 0.2
    from_step: int | None = None  # instead of the share

    def start(self, source: Source) -> float:
        if self.from_step is not None:
            return self.from_step
        return (1 - self.share) * last_step(source) - 1e-9

    def words(self) -> str:
        if self.from_step is not None:
            return f"from step {self.from_step} on"
        return f"in the last {100 * self.share:g} % of the steps"


def last_step(source: Source) -> int:
    """The run's last step: as its recipe says, else that of its last evaluation."""
    return source.steps or max((one.step or 0 for one in source.evaluations), default=0)


def on_split(evaluations: Sequence[Evaluation], split: str) -> list[Evaluation]:
    return [one for one in evaluations if split in one.splits]


def best(source: Source, split: str) -> float | None:
    """Succ.* of one seed."""
    found = on_split(source.trained, split)
    return max((one.splits[split].success.value for one in found), default=None)


def converged(source: Source, split: str, window: Window) -> list[float]:
    """The successes whose mean is Succ. of one seed; empty if the run has not come so far."""
    start = window.start(source)
    return [one.splits[split].success.value for one in on_split(source.trained, split) if (one.step or 0) >= start]


def chosen(source: Source, split: str, at: str) -> Evaluation | None:
    """The evaluation that a row shows by type: the last one, or the one with the largest success (the later of two)."""
    found = on_split(source.trained or source.evaluations, split)
    if not found:
        return None
    if at == "best":
        return max(found, key=lambda one: (one.splits[split].success.value, one.step or 0))
    return found[-1]
