"""Alarms: what goes wrong in a run, said while it happens.

    alarms = Alarms()
    for alarm in alarms.look(step, metrics):     # at every step
        print(alarm.text, "Try:", alarm.remedy)

An alarm is given once for each episode of trouble. It is given again only after REARM steps without trouble.
`state_dict` is JSON; a resumed run that loads it goes on as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isentrope.diagnosis.alarm_rules import (
    WEIGH,
    Collapse,
    Duplication,
    GradientSpike,
    LikelihoodFall,
    Metrics,
    Mismatch,
    NoSignal,
    NotFinite,
    Rule,
    Trouble,
    number,
)
from isentrope.diagnosis.phases import ERUPTION, PhaseChange, PhaseDetector, risen

REARM = 3
NAMES = (
    "eruption", "collapse", "likelihood_fall", "duplication", "mismatch", "gradient_spike", "no_signal", "not_finite",
)  # fmt: skip


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


class Eruption(Rule):
    """The rule of the alarm `eruption`: the phases are asked."""

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
        return Trouble(risen(rise), remedy, numbers)


class Alarms:
    """All alarms of a run, and its phases."""

    def __init__(self) -> None:
        self.phases = PhaseDetector()
        self.change: PhaseChange | None = None  # what the last look changed about the phase
        others = (Collapse, LikelihoodFall, Duplication, Mismatch, GradientSpike, NoSignal, NotFinite)
        self._rules: list[Rule] = [Eruption(self.phases), *(rule() for rule in others)]
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
                given.append(Alarm(rule.name, step, trouble.text, trouble.remedy, trouble.numbers))
            self._calm[rule.name] = 0
        return given

    def events(self, given: list[Alarm]) -> list[dict[str, Any]]:
        """Lines for events.jsonl after a look: the change of phase, if there was one, and the alarms given."""
        lines = [alarm.event() for alarm in given]
        if (change := self.change) is not None:
            phase = {"step": change.step, "kind": "phase", "name": change.name, "text": change.text, "remedy": ""}
            return [phase, *lines]
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
