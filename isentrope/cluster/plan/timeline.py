"""What a simulation comes to: seconds of a step, its parts, and who waited for what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isentrope.cluster.plan.lengths import Lengths
from isentrope.cluster.plan.simulate import (
    DRAW,
    EPISODES,
    LEARNER,
    OTHERS,
    READ,
    SCORE,
    TASKS,
    UPDATE,
    WEIGHTS,
    Happened,
    Span,
)

SAMPLING = (READ, DRAW, TASKS, OTHERS, LEARNER, WEIGHTS)
LEARNING = (SCORE, UPDATE, EPISODES)


@dataclass(frozen=True)
class Steady:
    """A step as they follow each other, once the first is done."""

    step: float  # seconds
    rollout: float  # from its gate to the end of its last episode
    score: float
    update: float
    sampling: dict[str, float]  # shares of the step of a sampler, by what it does or waits for
    learning: dict[str, float]  # the same of the cards that learn
    written: float  # tokens of a step
    whole: float


def steady(happened: Happened, steps: Sequence[Lengths], ahead: int = 0) -> Steady:
    """Over all steps but the first ones, which wait for no weights, and the last ones, which nobody plays ahead of; or
    over the only one."""
    begin, end, count = _window(happened, ahead, ahead)
    first = 0 if len(steps) == 1 else ahead + 1
    each = (happened.learnt[first + count - 1] - (happened.learnt[first - 1] if first else 0.0)) / count
    spans = [span for sampler in happened.samplers for span in sampler]
    sampling = _shares(spans, begin, end, SAMPLING, len(happened.samplers))
    learning = _shares(happened.learner, begin, end, LEARNING, 1)
    sampling[LEARNER] += max(0.0, 1 - sum(sampling.values()))  # until the next step's gate
    some = range(first, first + count)
    rollouts = [happened.played[step] - happened.begun[step] for step in some]
    return Steady(
        each,
        sum(rollouts) / count,
        _mean(happened.learner, SCORE, some),
        _mean(happened.learner, UPDATE, some),
        sampling,
        learning,
        sum(steps[step].written for step in some) / count,
        sum(steps[step].whole for step in some) / count,
    )


def _mean(learner: Sequence[Span], kind: str, steps: range) -> float:
    """Seconds of a part of learning, which each step has once."""
    spent = [stop - start for start, stop, what in learner if what == kind]
    return sum(spent[step] for step in steps) / len(steps)


def _window(happened: Happened, ahead: int, first: int) -> tuple[float, float, int]:
    """From the end of a step to that of a later one, and how many steps are between them: of its rollout where others
    are played ahead, else of its update. A negative `first` counts from the last one."""
    ends = happened.played if ahead else happened.learnt
    last = len(ends) - 1 - ahead
    if last < 1:
        return 0.0, happened.learnt[-1], 1
    start = first if first >= 0 else last + first
    return ends[start], ends[last], last - start


def _shares(spans: Iterable[Span], begin: float, end: float, kinds: Sequence[str], lanes: int) -> dict[str, float]:
    found = dict.fromkeys(kinds, 0.0)
    for start, stop, kind in spans:
        found[kind] += max(0.0, min(stop, end) - max(start, begin))
    room = max(1e-12, (end - begin) * lanes)
    return {kind: seconds / room for kind, seconds in found.items()}


def over_time(
    happened: Happened, columns: int, ahead: int = 0
) -> tuple[list[float], dict[str, list[float]], dict[str, list[float]]]:
    """Of a late step: the middles of so many equal parts of its time, and in each the share of the samplers, and of
    the cards that learn, by what they do."""
    begin, end, _ = _window(happened, ahead, -1)
    width = (end - begin) / columns
    middles = [(column + 0.5) * width for column in range(columns)]
    spans = [span for sampler in happened.samplers for span in sampler]
    sampling = _columns(spans, begin, width, columns, SAMPLING, len(happened.samplers))
    for column in range(columns):
        sampling[LEARNER][column] += max(0.0, 1 - sum(values[column] for values in sampling.values()))
    return middles, sampling, _columns(happened.learner, begin, width, columns, LEARNING, 1)


def _columns(
    spans: Iterable[Span], begin: float, width: float, columns: int, kinds: Sequence[str], lanes: int
) -> dict[str, list[float]]:
    found = {kind: [0.0] * columns for kind in kinds}
    for start, stop, kind in spans:
        first, last = (start - begin) / width, (stop - begin) / width
        for column in range(max(0, int(first)), min(columns - 1, int(last)) + 1) if last > 0 else ():
            found[kind][column] += max(0.0, min(last, column + 1) - max(first, column)) / lanes
    return found
