"""Whether success rose or fell: only what a comparison of two shares bears.

A step's episodes are not independent: those of a group play the same task. So a step counts for fewer episodes than it
has, by the design effect that its step-to-step differences show (`core/stats.py`), and never for fewer than its groups.
A rise or a fall is told where the 99 % interval of the difference is clear of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from isentrope.core.stats import Share, difference_of, effective_of_steps, least_difference, share_from
from isentrope.runs.curves import ENOUGH, Curve
from isentrope.runs.folder import Run

LEVEL = 0.99  # of the interval that has to be clear of zero
LEAST = 0.05  # a change of success that is worth a word
SOLVED = 0.9
BLIND = 0.3  # where only larger differences would show, nobody can say that success stayed the same


@dataclass(frozen=True)
class Outcome:
    """What became of success: rose, fell, lost (it rose, then fell), solved (from the start), flat, unsure (too few
    episodes to tell), or short (too few steps)."""

    kind: str
    start: Share
    end: Share
    best: Share
    best_step: int
    steps: int  # that start and end are averaged over
    least: float  # the smallest difference between start and end that would show

    @property
    def fine(self) -> bool:
        return self.kind in ("rose", "solved")

    @property
    def told(self) -> bool:
        """Whether there are episodes enough to say that something is wrong with it."""
        return self.kind in ("fell", "lost", "flat")


def episodes_a_step(course: Run) -> tuple[int, int] | None:
    """Groups and the size of a group, as the settings have them."""
    groups, size = course.amount("rollout.groups"), course.amount("rollout.group_size")
    return (round(groups), round(size)) if groups and size and groups >= 1 and size >= 1 else None


def outcome_of(course: Run, curve: Curve) -> Outcome | None:
    """None where nothing is known of success, or not how many episodes it is a share of."""
    played = episodes_a_step(course)
    if not len(curve) or played is None:
        return None
    groups, size = played
    worth = effective_of_steps(curve.values, groups, size)

    def share(values: tuple[float, ...], level: float = LEVEL) -> Share:
        steps = len(values)
        return share_from(fmean(values), groups * steps, groups * size * steps, worth * steps, level)

    def ends(width: int) -> tuple[Share, Share, int]:
        return share(curve.values[:width]), share(curve.values[-width:]), width

    if len(curve) < ENOUGH:
        start, end, width = ends(1)
        return Outcome("short", start, end, end, curve.steps[-1], width, 1.0)
    start, end, width = ends(curve.width)
    if not differs(start, end) and len(curve) >= 9:  # more episodes at either end may tell more
        wide = ends(len(curve) // 3)
        start, end, width = wide if differs(wide[0], wide[1]) or len(curve) < 25 else (start, end, width)
    looks = max(1, len(curve) // width)  # the best of so many windows is high by chance alone
    level = 1 - (1 - LEVEL) / looks
    best_at = max(range(len(curve) - width + 1), key=lambda i: (fmean(curve.values[i : i + width]), -i))
    best, best_step = share(curve.values[best_at : best_at + width], level), curve.steps[best_at + width // 2]
    last = share(curve.values[-width:], level)
    least = least_difference(start.value, start.effective, end.effective, LEVEL)
    return Outcome(_kind(start, end, best, last, least), start, end, best, best_step, width, least)


def differs(start: Share, end: Share) -> int:
    """1 if `end` is higher than `start` by more than chance and enough to be worth a word, -1 if lower, else 0."""
    change = difference_of(end, start)
    return change.interval.sign if abs(change.value) >= LEAST else 0


def _kind(start: Share, end: Share, best: Share, last: Share, least: float) -> str:
    sunk = differs(best, last) < 0 and best.value - end.value > 0.5 * (best.value - start.value)
    if differs(start, end) < 0:
        return "fell"
    if sunk and differs(start, best) > 0:
        return "lost"
    if differs(start, end) > 0:
        return "rose"
    if start.value >= SOLVED and end.value >= SOLVED:
        return "solved"
    return "unsure" if least > BLIND or end.value - start.value >= LEAST else "flat"
