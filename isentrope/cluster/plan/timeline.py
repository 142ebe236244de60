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


def steady(happened: Happened, steps: Sequence[Lengths]) -> Steady:
    """Over all steps but the first, or over the only one."""
    count = len(steps)
    first = 0 if count == 1 else 1
    begin = 0.0 if count == 1 else happened.learnt[0]
    end, steps_of = happened.learnt[-1], max(1, count - first)
    each = (end - begin) / steps_of
    spans = [span for sampler in happened.samplers for span in sampler]
    sampling = _shares(spans, begin, end, SAMPLING, len(happened.samplers))
    learning = _shares(happened.learner, begin, end, LEARNING, 1)
    sampling[LEARNER] += max(0.0, 1 - sum(sampling.values()))  # until the next step's gate
    rollouts = [happened.played[step] - happened.begun[step] for step in range(first, count)]
    return Steady(
        each,
        sum(rollouts) / len(rollouts),
        learning[SCORE] * each,
        learning[UPDATE] * each,
        sampling,
        learning,
        sum(lengths.written for lengths in steps[first:]) / steps_of,
        sum(lengths.whole for lengths in steps[first:]) / steps_of,
    )


def _shares(spans: Iterable[Span], begin: float, end: float, kinds: Sequence[str], lanes: int) -> dict[str, float]:
    found = dict.fromkeys(kinds, 0.0)
    for start, stop, kind in spans:
        found[kind] += max(0.0, min(stop, end) - max(start, begin))
    room = max(1e-12, (end - begin) * lanes)
    return {kind: seconds / room for kind, seconds in found.items()}


def over_time(happened: Happened, columns: int) -> tuple[list[float], dict[str, list[float]], dict[str, list[float]]]:
    """Of the last step: the middles of so many equal parts of its time, and in each the share of the samplers, and of
    the cards that learn, by what they do."""
    begin = happened.learnt[-2] if len(happened.learnt) > 1 else 0.0
    end = happened.learnt[-1]
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
