"""What each alarm on the policy looks for; alarm_rules_update.py has those on its updates.

A rule is fed one step's metrics at a time and says whether there is trouble.
Metrics that a run does not have are passed over: a rule that is never told anything never speaks. Every limit stands
at the head of its rule; docs/doctor.md tells on which runs they were set.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from isentrope.instruments.alarm_base import Metrics, Remembers, Trouble, number
from isentrope.instruments.rises import RiseDetector
from isentrope.instruments.wording import percent

WEIGH = "learn.aggregation=token or episode if it is turn or sequence"  # a remedy; the doctor knows what it is


class Collapse(Remembers):
    """Entropy is nearly gone, and success has not come for it."""

    name = "collapse"
    SHARE = 0.2  # of the entropy at the start
    NONE = 1e-3  # nats a token: as good as nothing
    GAIN = 0.05  # success has risen if it is this much above its start
    SOLVED = 0.95  # a policy that solves everything may be sure of itself

    def __init__(self) -> None:
        super().__init__(("entropy/token", "success/all"))

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        entropy, success = self.courses["entropy/token"], self.courses["success/all"]
        if entropy.count < 10:
            return None
        start, now = median(entropy.first), median(entropy.last)
        before, after = (fmean(success.first), fmean(success.last)) if success.count else (0.0, 0.0)
        near_zero = now < self.NONE and start >= 2 * self.NONE and after < self.SOLVED
        lost = now < self.SHARE * start and after < before + self.GAIN
        if not (near_zero or lost) or (success.count == 0 and not near_zero):
            return None
        solved = f"; success went from {percent(before)} to {percent(after)}" if success.count else ""
        return Trouble(
            f"Entropy collapsed: {start:.3g} nats a token in the first steps, {now:.2g} now{solved}.",
            "an entropy_bonus, or the methods epo, aem or higher_temperature; a smaller learn.lr; more learn.kl",
            {"entropy_start": start, "entropy": now, "success_start": before, "success": after},
        )


class LikelihoodFall:
    """The policy's own valid responses become less likely to it."""

    name = "likelihood_fall"

    def __init__(self) -> None:
        self.rises = RiseDetector()  # of minus the log-probability a token

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        likelihood = number(metrics, "likelihood/valid")
        self.rises.look(step, None if likelihood is None else -likelihood)
        if not self.rises.rising:
            return None
        rise = self.rises.rises[-1]
        return Trouble(
            f"The likelihood of valid responses is falling since step {rise.onset}: "
            f"{-rise.before:.3g} nats a token before, {-rise.top:.3g} at its lowest.",
            "the method seal; a smaller learn.lr; more learn.kl",
            {"onset": rise.onset, "before": -rise.before, "lowest": -rise.top},
        )

    def state_dict(self) -> dict[str, Any]:
        return self.rises.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rises.load_state_dict(state)


class Duplication(Remembers):
    """Sentences repeat themselves, more than at the start."""

    name = "duplication"
    KEY = "degeneracy/duplication"
    SHARE = 0.05  # of the sentences
    ABOVE = 0.05  # more than at the start

    def __init__(self) -> None:
        super().__init__((self.KEY,), last=3)

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        course = self.courses[self.KEY]
        if course.count < 5:
            return None
        start, now = median(course.first), median(course.last)
        if now < max(self.SHARE, start + self.ABOVE):
            return None
        return Trouble(
            f"Sentences repeat themselves: {percent(now)} of them stand more than once in their response, "
            f"{percent(start)} in the first steps.",
            f"an earlier checkpoint, since what was learnt this way tends to stay; {WEIGH}; a smaller learn.lr; the "
            "method seal",
            {"start": start, "now": now},
        )
