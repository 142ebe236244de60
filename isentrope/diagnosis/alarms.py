"""Alarms: what goes wrong in a run, said while it happens.

    alarms = Alarms()
    for alarm in alarms.look(step, metrics):     # at every step
        print(alarm.text, "Try:", alarm.remedy)

An alarm is given once for each episode of trouble. It is given again only after REARM steps without trouble.
`state_dict` is JSON; a resumed run that loads it goes on as if it had never stopped.

A rule is fed one step's metrics at a time and says whether there is trouble. Metrics that a run does not have are
passed over: a rule that is never told anything never speaks. Every limit stands at the head of its rule; docs/doctor.md
tells on which runs they were set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any, ClassVar

from isentrope.core.text import percent
from isentrope.diagnosis.phases import ERUPTION, PhaseChange, PhaseDetector, RiseDetector, risen

Metrics = Mapping[str, float | None]
Trouble = tuple[str, str, dict[str, float]]  # text, remedy and numbers of an alarm
REARM = 3
WEIGH = "learn.aggregation=token or episode if it is turn or sequence"  # a remedy; the doctor knows what it is


@dataclass(frozen=True)
class Alarm:
    name: str
    step: int
    text: str  # a plain sentence with the numbers
    remedy: str  # what to try
    numbers: dict[str, float] = field(default_factory=dict[str, float])

    def event(self) -> dict[str, Any]:
        """The line that it is in events.jsonl."""
        return {"step": self.step, "kind": "alarm", "name": self.name, "text": self.text, "remedy": self.remedy}


def number(metrics: Metrics, key: str) -> float | None:
    """A metric, if it was measured and is a number."""
    value = metrics.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


@dataclass
class Ends:
    """The first five and the last values of one metric."""

    first: list[float] = field(default_factory=list[float])
    last: list[float] = field(default_factory=list[float])
    count: int = 0


class Rule:
    """Remembers the courses of a few metrics, and nothing else unless it says so."""

    name: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    last: ClassVar[int] = 5  # values that are kept of the end of a course

    def __init__(self) -> None:
        self.courses = {key: Ends() for key in self.keys}

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        """The trouble that the run is in at this step, every step that it lasts; None: no trouble."""
        raise NotImplementedError

    def add(self, metrics: Metrics) -> None:
        for key, course in self.courses.items():
            if (value := number(metrics, key)) is not None:
                course.first = [*course.first, value][:5]
                course.last = [*course.last, value][-self.last :]
                course.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {key: asdict(course) for key, course in self.courses.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.courses = {key: Ends(**state[key]) for key in self.keys}


class Eruption(Rule):
    """The phases are asked."""

    name = "eruption"

    def __init__(self, phases: PhaseDetector) -> None:
        super().__init__()
        self.phases = phases

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        if self.phases.phase != ERUPTION:
            return None
        rise = self.phases.eruptions[-1]
        numbers = {"onset": rise.onset, "before": rise.before, "top": rise.top, "amplitude": rise.amplitude}
        remedy = f"{WEIGH}; a smaller learn.lr; more learn.kl; the method seal"
        return risen(rise), remedy, numbers


class Collapse(Rule):
    """Entropy is nearly gone, and success has not come for it."""

    name, keys = "collapse", ("entropy/token", "success/all")
    SHARE = 0.2  # of the entropy at the start
    NONE = 1e-3  # nats a token: as good as nothing
    GAIN = 0.05  # success has risen if it is this much above its start
    SOLVED = 0.95  # a policy that solves everything may be sure of itself

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        entropy, success = self.courses.values()
        if entropy.count < 10:
            return None
        start, now = median(entropy.first), median(entropy.last)
        before, after = (fmean(success.first), fmean(success.last)) if success.count else (0.0, 0.0)
        near_zero = now < self.NONE and start >= 2 * self.NONE and after < self.SOLVED
        lost = now < self.SHARE * start and after < before + self.GAIN
        if not (near_zero or lost) or (success.count == 0 and not near_zero):
            return None
        solved = f"; success went from {percent(before)} to {percent(after)}" if success.count else ""
        known = {"success_start": before, "success": after} if success.count else dict[str, float]()
        return (
            f"Entropy collapsed: {start:.3g} nats a token in the first steps, {now:.2g} now{solved}.",
            "an entropy_bonus, or the methods epo, aem or higher_temperature; a smaller learn.lr; more learn.kl",
            {"entropy_start": start, "entropy": now} | known,
        )


class LikelihoodFall(Rule):
    """The policy's own valid responses become less likely to it."""

    name = "likelihood_fall"

    def __init__(self) -> None:
        self.detector = RiseDetector()  # of minus the log-probability a token

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        likelihood = number(metrics, "likelihood/valid")
        self.detector.look(step, None if likelihood is None else -likelihood)
        if not self.detector.rising:
            return None
        rise = self.detector.rises[-1]
        return (
            f"The likelihood of valid responses is falling since step {rise.onset}: "
            f"{-rise.before:.3g} nats a token before, {-rise.top:.3g} at its lowest.",
            "the method seal; a smaller learn.lr; more learn.kl",
            {"onset": rise.onset, "before": -rise.before, "lowest": -rise.top},
        )

    def state_dict(self) -> dict[str, Any]:
        return self.detector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.detector.load_state_dict(state)


class Duplication(Rule):
    """Sentences repeat themselves, more than at the start."""

    name, keys, last = "duplication", ("degeneracy/duplication",), 3
    SHARE = 0.05  # of the sentences
    ABOVE = 0.05  # more than at the start

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        (course,) = self.courses.values()
        if course.count < 5:
            return None
        start, now = median(course.first), median(course.last)
        if now < max(self.SHARE, start + self.ABOVE):
            return None
        return (
            f"Sentences repeat themselves: {percent(now)} of them stand more than once in their response, "
            f"{percent(start)} in the first steps.",
            f"an earlier checkpoint, since what was learnt this way tends to stay; {WEIGH}; a smaller learn.lr; the "
            "method seal",
            {"start": start, "now": now},
        )


class Mismatch(Rule):
    """Sampler and trainer do not agree on how likely a token was."""

    name, keys, last = "mismatch", ("mismatch/kl", "mismatch/truncated"), 3
    KL = 0.01  # nats a token
    TRUNCATED = 0.02  # share of the tokens

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        parts: list[str] = []
        kl, truncated = (median(course.last) if course.count >= 3 else 0.0 for course in self.courses.values())
        if kl > self.KL:
            parts.append(f"the KL between them is {kl:.2g} nats a token (limit {self.KL:g})")
        if truncated > self.TRUNCATED:
            limit = percent(self.TRUNCATED)
            parts.append(f"{percent(truncated)} of the tokens are beyond learn.mismatch_cap (limit {limit})")
        if not parts:
            return None
        return (
            f"Sampler and trainer disagree: {' and '.join(parts)}.",
            "learn.old_logprobs=recompute with learn.mismatch=truncate; run.dtype=float32; engine.kind=torch",
            {"kl": kl, "truncated": truncated},
        )


class GradientSpike(Rule):
    """The gradient is many times what it usually is."""

    name, keys, last = "gradient_spike", ("grad_norm",), 20
    TIMES = 8.0
    HARMLESS = 1.0  # the default of learn.grad_clip: a smaller one is not even clipped
    LEAST = 3  # steps before there is a usual

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        now, course = number(metrics, "grad_norm"), self.courses["grad_norm"]
        usual = median(course.last) if course.count >= self.LEAST else math.inf
        if now is None or now <= 0:
            return None  # nothing was learnt from, which says nothing about what is usual
        self.add(metrics)
        if now <= max(self.TIMES * usual, self.HARMLESS):
            return None
        return (
            f"The gradient's norm jumped to {now:.3g}, {now / usual:.0f} times its median of {usual:.2g}.",
            "a smaller learn.lr; a smaller learn.grad_clip; a longer learn.warmup",
            {"norm": now, "usual": usual},
        )


class NoSignal(Rule):
    """Most groups have episodes that did equally well: there is nothing to learn from."""

    name, keys = "no_signal", ("advantage/zero_groups", "success/all")
    SHARE = 0.8
    SOLVED, UNSOLVED = 0.9, 0.1

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        self.add(metrics)
        groups, success = self.courses.values()
        if groups.count < self.last or min(groups.last) < self.SHARE:
            return None
        share, solved = fmean(groups.last), fmean(success.last) if success.count else math.nan
        text = f"In {percent(share)} of the groups of the last {self.last} steps all episodes did equally well"
        remedy = "larger groups (rollout.group_size); dynamic sampling (learn.resample=3, or algorithm dapo)"
        if solved >= self.SOLVED or solved <= self.UNSOLVED:
            text = f"{text}: {percent(solved)} are solved"
        if solved >= self.SOLVED:
            remedy = "stop here, or take harder tasks"
        elif solved <= self.UNSOLVED:
            remedy = f"a warm-up (isentrope sft) or easier tasks; {remedy}"
        return f"{text}. They teach nothing.", remedy, {"share": share, "success": solved}


class NotFinite(Rule):
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
            why = "loss or gradient was not finite" if share < 1 else "no token was left to learn from"
            out = f"{new:.0f} of the step's updates {'was' if new == 1 else 'were'} left out"
            parts.append(f"{out}: {why} ({self.skipped:.0f} since the start).")
        if share >= self.SHARE:
            parts.append(f"Of {percent(share)} of the step's tokens a log-prob, entropy or advantage was not finite.")
        if not parts:
            return None
        return (
            " ".join(parts),
            "a smaller learn.lr; run.dtype=float32; learn.loss.clip_high nearer to 0.2",
            {"new": new, "skipped": self.skipped, "dropped": share},
        )

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skipped = float(state["skipped"])


RULES = (Collapse, LikelihoodFall, Duplication, Mismatch, GradientSpike, NoSignal, NotFinite)  # beside Eruption
NAMES = (Eruption.name, *(rule.name for rule in RULES))


class Alarms:
    """All alarms of a run, and its phases."""

    def __init__(self) -> None:
        self.phases = PhaseDetector()
        self.change: PhaseChange | None = None  # what the last look changed about the phase
        self._rules: list[Rule] = [Eruption(self.phases), *(rule() for rule in RULES)]
        self._calm = {rule.name: REARM for rule in self._rules}  # steps without trouble

    def look(self, step: int, metrics: Metrics) -> list[Alarm]:
        """The alarms that one training step gives. Metrics that are missing, None or not finite are passed over."""
        self.change = self.phases.look(step, number(metrics, "entropy/token"))
        given: list[Alarm] = []
        for rule in self._rules:
            trouble = rule.look(step, metrics)
            if trouble is None:
                self._calm[rule.name] += 1
                continue
            if self._calm[rule.name] >= REARM:
                given.append(Alarm(rule.name, step, *trouble))
            self._calm[rule.name] = 0
        return given

    def events(self, given: list[Alarm]) -> list[dict[str, Any]]:
        """Lines for events.jsonl after a look: the change of phase, if there was one, and the alarms given."""
        lines = [alarm.event() for alarm in given]
        if (change := self.change) is not None:
            phase = {"step": change.step, "kind": "phase", "name": change.name, "text": change.text, "remedy": ""}
            lines.insert(0, phase)
        return lines

    def metrics(self, given: list[Alarm]) -> dict[str, float]:
        """What metrics.jsonl says about the step: `phase`, and `alarm/NAME` for the alarms given."""
        return {"phase": float(self.phases.phase)} | {f"alarm/{alarm.name}": 1.0 for alarm in given}

    def state_dict(self) -> dict[str, Any]:
        rules = {rule.name: rule.state_dict() for rule in self._rules}
        return {"phases": self.phases.state_dict(), "calm": dict(self._calm), "rules": rules}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A rule that the state does not know yet, because it is newer than the checkpoint, begins anew."""
        self.phases.load_state_dict(state["phases"])
        self._calm |= state["calm"]
        for rule in self._rules:
            if rule.name in state["rules"]:
                rule.load_state_dict(state["rules"][rule.name])


def replay(records: list[dict[str, Any]]) -> tuple[Alarms, list[Alarm]]:
    """The alarms and phases of a whole run, from the lines of its metrics.jsonl."""
    alarms, given = Alarms(), list[Alarm]()
    for record in records:
        if record.get("kind", "train") == "train":
            values = {key: value for key, value in record.items() if isinstance(value, int | float)}
            given += alarms.look(int(record["step"]), values)
    return alarms, given
