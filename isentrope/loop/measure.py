"""Measures a step: metrics, probes, phases and alarms, and what the run does about an alarm."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.config.validate import switched_method
from isentrope.core.method import Method
from isentrope.core.text import listed
from isentrope.core.types import Scores
from isentrope.diagnosis.alarms import Alarm
from isentrope.diagnosis.remedies import rate_first
from isentrope.learning.learner import Credited
from isentrope.loop.rate import RateWatch
from isentrope.loop.session import RunSession
from isentrope.loop.warned import Repeats
from isentrope.methods.registry import make_switched
from isentrope.metrics.means import Metrics
from isentrope.metrics.observe import Observer, Seen
from isentrope.metrics.probes.probes import Probes
from isentrope.rollout.collector import Rollout
from isentrope.runs.episodes import write_scores
from isentrope.runs.layout import scores_path
from isentrope.runs.log import Record
from isentrope.runs.token_texts import TokenTexts


@dataclass(frozen=True)
class Response:
    save: bool = False  # a checkpoint that is kept
    pause: str = ""  # why the run is to stop after this step; empty: it is not
    method: Method | None = None  # that is on from the next step
    events: tuple[Record, ...] = ()


class OnAlarm:
    """What a run does about an alarm: nothing, write a checkpoint, pause, or switch a method on.

    A method that is switched on begins at the next step as it would begin a run: without a history of its own (EPO's H̄
    and SEAL's classifier start there), but with schedules that count the steps of the whole run. It stays on. Which
    methods were switched on is part of every checkpoint, so a run that is resumed goes on with them.
    """

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


@dataclass(frozen=True)
class Probed:
    metrics: Metrics
    seconds: Metrics


@dataclass(frozen=True)
class Measured:
    metrics: Metrics
    response: Response
    timings: Metrics


class Monitor:
    """The instruments of a run under way.

        probed = monitor.probe(credited)                                   # with the policy that played
        measured = monitor.measure(step, rollout, update.scores, metrics)
        measured.metrics, measured.response                                # what is to be done about an alarm

    `measure` leaves the scores beside the stored episodes, records what happened in events.jsonl and says alarms.
    """

    def __init__(self, run: RunSession) -> None:
        self.run, config, tokenizer = run, run.config, run.policy.tokenizer
        self.observer = Observer(TokenTexts(tokenizer.pieces(range(tokenizer.size))))
        self.probes = Probes(config.instruments, config.learn.micro_tokens)
        self.on_alarm = OnAlarm(config)
        self.rate, self.repeats = RateWatch(config, run.policy), Repeats()

    def stored(self, step: int) -> bool:
        """Whether the episodes of this step are kept."""
        every = self.run.config.run.store_episodes
        return every > 0 and step % every == 0

    def probe(self, credited: Credited) -> Probed:
        """Ask the policy that played, at the steps that are due."""
        if not self.probes.due(credited.step):
            return Probed({}, {})
        begin = time.perf_counter()
        metrics = self.probes.run(self.run.policy, credited.episodes, credited.advantage_N)
        return Probed(metrics, {"probe": time.perf_counter() - begin})

    def measure(self, step: int, rollout: Rollout, scores: Scores, metrics: Metrics) -> Measured:
        """What the step was like, beyond `metrics`. `scores` count the episodes that were learnt from."""
        begin = time.monotonic()
        played = rollout.episodes
        number = {id(episode): place for place, episode in enumerate(played)}
        places = np.array([number[id(episode)] for episode in rollout.learnt], dtype=np.int64)
        scores = replace(scores, episode_U=places[scores.episode_U])
        if self.stored(step):
            write_scores(scores_path(self.run.folder.path, step), scores)
        seen = self._rate_first(self.observer.look(step, played, scores, metrics))
        response = self.on_alarm.act(step, seen.alarms)
        warned = [one for one in (self.rate.look(step, metrics), self.repeats.look(step, played)) if one is not None]
        self.run.log.write_events([*seen.events, *response.events, *(one.event(step) for one in warned)])
        say = self.run.progress.say
        for alarm in seen.alarms:
            say(f"step {step}: ALARM {alarm.name}: {alarm.text} Try: {alarm.remedy}")
        for one in warned:
            say(one.line(step))
        for event in response.events:
            if event["kind"] != "pause":  # the loop says that when it has written the checkpoint
                say(f"step {step}: {event['text']}")
        timings = {"seconds/observe": time.monotonic() - begin}
        return Measured(seen.metrics, response, timings | (self.probes.timings if self.probes.due(step) else {}))

    def _rate_first(self, seen: Seen) -> Seen:
        """Where the rate is far beyond what fits, that comes before all else that may be tried."""
        times = self.rate.times
        alarms = [replace(alarm, remedy=rate_first(alarm.remedy, times)) for alarm in seen.alarms]
        events = [{**event, "remedy": rate_first(event["remedy"], times)} for event in seen.events]
        return replace(seen, alarms=alarms, events=events)

    def state_dict(self) -> dict[str, Any]:
        return {
            "running": self.observer.running.state_dict(),
            "probes": self.probes.state_dict(),
            "on_alarm": self.on_alarm.state_dict(),
            "rate": self.rate.state_dict(),
            "repeats": self.repeats.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[Method]:
        """Gives the methods that alarms had switched on: add them before the learner loads its own state. A checkpoint
        of an older version knows nothing of instruments: they begin anew."""
        if not state:
            return []
        self.observer.running.load_state_dict(state["running"])
        self.probes.load_state_dict(state["probes"])
        if "rate" in state:  # those of an older checkpoint begin anew, as they then did
            self.rate.load_state_dict(state["rate"])
            self.repeats.load_state_dict(state["repeats"])
        return self.on_alarm.load_state_dict(state["on_alarm"])
