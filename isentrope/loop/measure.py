"""The instruments of a run under way: the loop's one way to them.

    probed = monitor.probe(credited)                                   # with the policy that played
    measured = monitor.measure(step, rollout, update.scores, metrics)
    measured.metrics, measured.response                                # what is to be done about an alarm

`measure` leaves the scores beside the stored episodes, records what happened in events.jsonl and says alarms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isentrope.core.method import Method
from isentrope.core.types import Scores
from isentrope.instruments.observe import Observer
from isentrope.instruments.probes.probes import Probes
from isentrope.learning.learner import Credited
from isentrope.loop.on_alarm import OnAlarm, Response
from isentrope.loop.session import RunSession
from isentrope.metrics.means import Metrics
from isentrope.rollout.collector import Rollout
from isentrope.runs.layout import scores_path
from isentrope.runs.scores import write_scores
from isentrope.runs.token_texts import TokenTexts


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
    def __init__(self, run: RunSession) -> None:
        self.run, config, dialect = run, run.config, run.policy.dialect
        self.observer = Observer(TokenTexts(dialect.pieces(range(dialect.size))))
        self.probes = Probes(config.instruments, config.learn.micro_tokens)
        self.on_alarm = OnAlarm(config)

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
        seen = self.observer.look(step, played, scores, metrics)
        response = self.on_alarm.act(step, seen.alarms)
        self.run.log.write_events([*seen.events, *response.events])
        say = self.run.progress.say
        for alarm in seen.alarms:
            say(f"step {step}: ALARM {alarm.name}: {alarm.text} Try: {alarm.remedy}")
        for event in response.events:
            if event["kind"] != "pause":  # the loop says that when it has written the checkpoint
                say(f"step {step}: {event['text']}")
        timings = {"seconds/observe": time.monotonic() - begin}
        return Measured(seen.metrics, response, timings | (self.probes.timings if self.probes.due(step) else {}))

    def state_dict(self) -> dict[str, Any]:
        return {
            "running": self.observer.running.state_dict(),
            "probes": self.probes.state_dict(),
            "on_alarm": self.on_alarm.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[Method]:
        """Gives the methods that alarms had switched on: add them before the learner loads its own state. A checkpoint
        of an older version knows nothing of instruments: they begin anew."""
        if not state:
            return []
        self.observer.running.load_state_dict(state["running"])
        self.probes.load_state_dict(state["probes"])
        return self.on_alarm.load_state_dict(state["on_alarm"])
