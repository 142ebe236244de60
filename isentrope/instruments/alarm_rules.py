"""What each alarm looks for. A rule is fed one step's metrics at a time and says whether there is trouble.

Metrics that a run does not have are passed over: a rule that is never told anything never speaks. Every limit stands
at the head of its rule; docs/doctor.md tells on which runs they were set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from isentrope.instruments.alarm_base import Metrics, Remembers, Trouble, number
from isentrope.instruments.rises import RiseDetector
from isentrope.instruments.wording import percent


class Collapse(Remembers):
    """Entropy is nearly gone, and success has not come for it."""

    name = "collapse"
    SHARE = 0.1  # of the entropy at the start
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
            "an earlier checkpoint with seal or a smaller learn.lr: what was learnt this way tends to stay",
            {"start": start, "now": now},
        )


class Mismatch(Remembers):
    """Sampler and trainer do not agree on how likely a token was."""

    name = "mismatch"
    KL = 0.01  # nats a token
    TRUNCATED = 0.02  # share of the tokens

    def __init__(self) -> None:
        super().__init__(("mismatch/kl", "mismatch/truncated"), last=3)

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        parts: list[str] = []
        kl, truncated = (
            median(course.last) if course.count >= 3 else 0.0
            for course in (self.courses["mismatch/kl"], self.courses["mismatch/truncated"])
        )
        if kl > self.KL:
            parts.append(f"the KL between them is {kl:.2g} nats a token (limit {self.KL:g})")
        if truncated > self.TRUNCATED:
            parts.append(
                f"{percent(truncated)} of the tokens are beyond learn.mismatch_cap (limit {percent(self.TRUNCATED)})"
            )
        if not parts:
            return None
        return Trouble(
            f"Sampler and trainer disagree: {' and '.join(parts)}.",
            "learn.old_logprobs=recompute with learn.mismatch=truncate; run.dtype=float32; engine.kind=torch",
            {"kl": kl, "truncated": truncated},
        )


class GradientSpike(Remembers):
    """The gradient is many times what it usually is."""

    name = "gradient_spike"
    TIMES = 8.0
    LEAST = 5  # steps before there is a usual

    def __init__(self) -> None:
        super().__init__(("grad_norm",), last=20)

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        now, course = number(metrics, "grad_norm"), self.courses["grad_norm"]
        usual = median(course.last) if course.count >= self.LEAST else math.inf
        self.add(metrics)
        if now is None or now <= self.TIMES * usual or usual <= 0:
            return None
        return Trouble(
            f"The gradient's norm jumped to {now:.3g}, {now / usual:.0f} times its median of {usual:.2g}.",
            "a smaller learn.lr or learn.grad_clip; a longer learn.warmup",
            {"norm": now, "usual": usual},
        )


class NoSignal(Remembers):
    """Most groups have episodes that did equally well: there is nothing to learn from."""

    name = "no_signal"
    KEY = "advantage/zero_groups"
    SHARE = 0.8
    STEPS = 5
    SOLVED, UNSOLVED = 0.9, 0.1

    def __init__(self) -> None:
        super().__init__((self.KEY, "success/all"), last=self.STEPS)

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        groups, success = self.courses[self.KEY], self.courses["success/all"]
        if groups.count < self.STEPS or min(groups.last) < self.SHARE:
            return None
        share, solved = fmean(groups.last), fmean(success.last) if success.count else math.nan
        text = f"In {percent(share)} of the groups of the last {self.STEPS} steps all episodes did equally well"
        remedy = "larger groups (rollout.group_size); dynamic sampling (learn.resample=3, or algorithm dapo)"
        if solved >= self.SOLVED:
            text, remedy = f"{text}: {percent(solved)} are solved", "stop here, or take harder tasks"
        elif solved <= self.UNSOLVED:
            text, remedy = (
                f"{text}: {percent(solved)} are solved",
                f"a warm-up (isentrope sft) or easier tasks; {remedy}",
            )
        return Trouble(f"{text}. They teach nothing.", remedy, {"share": share, "success": solved})


class NotFinite:
    """Updates had to be left out because a loss or a gradient was not finite."""

    name = "not_finite"

    def __init__(self) -> None:
        self.skipped = 0.0

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        now = number(metrics, "update/skipped")
        if now is None or now <= self.skipped:
            return None
        new, self.skipped = now - self.skipped, now
        return Trouble(
            f"{new:.0f} of the step's updates {'was' if new == 1 else 'were'} left out: loss or gradient was not "
            f"finite ({now:.0f} since the start).",
            "a smaller learn.lr; run.dtype=float32; learn.clip_high nearer to 0.2",
            {"new": new, "skipped": now},
        )

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped = float(state["skipped"])
