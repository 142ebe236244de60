"""Success of a run and the time that its training took: one definition for tables, studies and claims.

    Succ.*   the largest success of the run's evaluations after step 0, then the mean over seeds
    Succ.    the mean success of the evaluations in the last part of the run, then the mean over seeds. The part is a
             share of the steps (0.2: from step 120 of 150, that step included) or begins at a step given for all runs.

EPO's paper, which defines both, takes step 125 of 150 on for its household runs, and for each of its science runs a
part of its own. Here the part is the same for all runs of a table, and fixed before one looks.

Both are of one split. The claims' rules were fixed with Succ. as the mean over all splits (`converged_over_splits`) and
with a training time that leaves out two stages more (`NOT_TRAINING_BY_CLAIMS`): these keep their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

Points = tuple[Sequence[int], Sequence[float]]  # steps, and the value at each

# Stages that follow a training step and that a method does not change.
NOT_TRAINING = ("seconds/evaluate", "seconds/checkpoint", "seconds/store")
NOT_TRAINING_BY_CLAIMS = (*NOT_TRAINING, "seconds/observe", "seconds/probe")


@dataclass(frozen=True)
class Window:
    """The part of a run that counts as converged."""

    share: float = 0.2
    from_step: int | None = None  # instead of the share

    def start(self, last: int) -> float:
        """The first step of the part, of a run whose last step is `last`."""
        return (1 - self.share) * last - 1e-9 if self.from_step is None else self.from_step

    def words(self) -> str:
        if self.from_step is not None:
            return f"from step {self.from_step} on"
        return f"in the last {100 * self.share:g} % of the steps"


def best(steps: Sequence[int], values: Sequence[float]) -> float | None:
    """Succ.* of a run: the largest of its evaluations after step 0."""
    return max((value for step, value in zip(steps, values, strict=True) if step > 0), default=None)


def converged_values(steps: Sequence[int], values: Sequence[float], last: int, window: Window) -> list[float]:
    """The values whose mean is Succ. of a run; none if it has not come so far."""
    start = window.start(last)
    return [value for step, value in zip(steps, values, strict=True) if step > 0 and step >= start]


def converged(steps: Sequence[int], values: Sequence[float], last: int, window: Window) -> float | None:
    """Succ. of a run: the mean of its evaluations in the last part of its `last` steps; None if there are none."""
    late = converged_values(steps, values, last, window)
    return fmean(late) if late else None


def converged_over_splits(splits: Iterable[Points], last: int, window: Window) -> float | None:
    """Succ. as the claims' rules have it: its mean over the splits; None if it is not known of each of them."""
    means = [converged(steps, values, last, window) for steps, values in splits]
    known = [value for value in means if value is not None]
    return fmean(known) if known and len(known) == len(means) else None


def steps_to(steps: Sequence[int], values: Sequence[float], threshold: float) -> int | None:
    """The first step at which the value was at the threshold or above; None: never."""
    return next((step for step, value in zip(steps, values, strict=True) if value >= threshold), None)


def tokens_by(steps: Sequence[int], tokens: Sequence[float], step: int) -> float:
    """Tokens up to a step, that step included, from the tokens of each step."""
    return math.fsum(count for at, count in zip(steps, tokens, strict=True) if at <= step)


def seconds_of(row: Mapping[str, object], without: Sequence[str] = ()) -> float:
    """Of all stages of a step but those `without`; stages follow each other. Training time: without NOT_TRAINING."""
    stages = [value for key, value in row.items() if key.startswith("seconds/") and key not in without]
    return sum(float(value) for value in stages if isinstance(value, int | float))
