"""What a run does about an alarm: nothing, write a checkpoint, pause, or switch a method on.

A method that is switched on begins at the next step as it would begin a run: without a history of its own (EPO's H̄ and
SEAL's classifier start there), but with schedules that count the steps of the whole run. It stays on. Which methods
were switched on is part of every checkpoint, so a run that is resumed goes on with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.config.validate import switched_method
from isentrope.core.method import Method
from isentrope.core.text import listed
from isentrope.diagnosis.alarms import Alarm
from isentrope.methods.registry import make_switched
from isentrope.runs.log import Record


@dataclass(frozen=True)
class Response:
    save: bool = False  # a checkpoint that is kept
    pause: str = ""  # why the run is to stop after this step; empty: it is not
    method: Method | None = None  # that is on from the next step
    events: tuple[Record, ...] = ()


class OnAlarm:
    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.switched: dict[str, dict[str, Any]] = {}  # name -> its options
        wanted = switched_method(config.instruments.on_alarm)
        if wanted is not None:
            make_switched(config, wanted)  # so that what cannot be switched on is refused before the run begins

    def act(self, step: int, alarms: Sequence[Alarm]) -> Response:
        settings = self.config.instruments
        causes = [alarm for alarm in alarms if alarm.name in settings.alarms]
        if not causes or settings.on_alarm == "nothing":
            return Response()
        named = listed([alarm.name for alarm in causes])
        because = f"because of the alarm{'s' if len(causes) > 1 else ''} {named}"
        if settings.on_alarm == "pause" and step < self.config.run.steps:
            event = _event(step, "pause", "pause", f"The run was paused after step {step}, {because}.")
            return Response(save=True, pause=" ".join(alarm.text for alarm in causes), events=(event,))
        if settings.on_alarm in ("checkpoint", "pause"):
            event = _event(step, "checkpoint", "checkpoint", f"The checkpoint of step {step} is kept, {because}.")
            return Response(save=True, events=(event,))
        name = switched_method(settings.on_alarm)
        if name is None or name in self.switched:
            return Response()
        event = _event(step, "switch", name, f"The method {name} is on from step {step + 1}, {because}.")
        return Response(method=self._switched(name), events=(event,))

    def _switched(self, name: str, options: Mapping[str, Any] | None = None) -> Method:
        method = make_switched(self.config, name, options)
        self.switched[name] = as_table(method.options)
        return method

    def state_dict(self) -> dict[str, Any]:
        return {"switched": {name: dict(options) for name, options in self.switched.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[Method]:
        """The methods that had been switched on; their own state is the learner's to load."""
        return [self._switched(name, options) for name, options in state["switched"].items()]


def _event(step: int, kind: str, name: str, text: str) -> Record:
    return {"step": step, "kind": kind, "name": name, "text": text, "remedy": ""}
