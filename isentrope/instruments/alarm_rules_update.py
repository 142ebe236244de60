"""What the alarms on the updates look for: mismatch, gradients, groups without a difference, updates left out.

As in alarm_rules.py every limit stands at the head of its rule; docs/doctor.md tells on which runs they were set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

from isentrope.instruments.alarm_base import Metrics, Remembers, Trouble, number
from isentrope.instruments.wording import percent


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
    HARMLESS = 1.0  # the default of learn.grad_clip: a smaller one is not even clipped
    LEAST = 3  # steps before there is a usual

    def __init__(self) -> None:
        super().__init__(("grad_norm",), last=20)

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        now, course = number(metrics, "grad_norm"), self.courses["grad_norm"]
        usual = median(course.last) if course.count >= self.LEAST else math.inf
        if now is None or now <= 0:
            return None  # nothing was learnt from, which says nothing about what is usual
        self.add(metrics)
        if now <= max(self.TIMES * usual, self.HARMLESS):
            return None
        return Trouble(
            f"The gradient's norm jumped to {now:.3g}, {now / usual:.0f} times its median of {usual:.2g}.",
            "a smaller learn.lr; a smaller learn.grad_clip; a longer learn.warmup",
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
    """Updates, or many of the tokens to learn from, had to be left out because numbers were not finite."""

    name = "not_finite"
    SHARE = 0.01  # of the tokens: one of them now and then does no harm

    def __init__(self) -> None:
        self.skipped = 0.0

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        now, share = number(metrics, "update/skipped"), number(metrics, "update/dropped_share") or 0.0
        new = max(0.0, (now or 0.0) - self.skipped)
        self.skipped += new
        parts: list[str] = []
        if new > 0:
            which = "loss or gradient was not finite" if share < 1 else "no token was left to learn from"
            were = "was" if new == 1 else "were"
            parts.append(
                f"{new:.0f} of the step's updates {were} left out: {which} ({self.skipped:.0f} since the start)."
            )
        if share >= self.SHARE:
            parts.append(f"Of {percent(share)} of the step's tokens a log-prob, entropy or advantage was not finite.")
        if not parts:
            return None
        return Trouble(
            " ".join(parts),
            "a smaller learn.lr; run.dtype=float32; learn.clip_high nearer to 0.2",
            {"new": new, "skipped": self.skipped, "dropped": share},
        )

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped = float(state["skipped"])
