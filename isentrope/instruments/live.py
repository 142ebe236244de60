"""The instruments of a run under way: the loop's one way to them.

    learner.update(step, learnt, live.probe(step, learnt))     # probes look at the policy that played
    metrics |= live.look(step, played, learnt, learner.scores, metrics)
    live.response                                              # what is to be done about an alarm

`look` leaves the scores beside the stored episodes, records what happened in events.jsonl and says alarms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.config.schema import RunConfig
from isentrope.config.validate import trackers_of
from isentrope.core.method import Method
from isentrope.core.types import Episode, Scores
from isentrope.instruments.log import MetricsLog
from isentrope.instruments.observe import Observer
from isentrope.instruments.on_alarm import OnAlarm, Response
from isentrope.metrics.means import Metrics
from isentrope.metrics.probes.probes import Probes
from isentrope.models.policy import Policy
from isentrope.runs.layout import scores_path
from isentrope.runs.scores import write_scores
from isentrope.runs.token_texts import TokenTexts
from isentrope.train.learner import Probe


class Live:
    def __init__(
        self, config: RunConfig, run: Path, policy: Policy, methods: list[Method], say: Callable[[str], None]
    ) -> None:
        self.config, self.run, self.policy, self.say = config, run, policy, say
        self.log = MetricsLog(run, trackers_of(config.run.track), say)
        self.observer = Observer(TokenTexts(policy.dialect.pieces(range(policy.dialect.size))))
        self.probes = Probes(config.instruments, config.learn.micro_tokens)
        self.on_alarm = OnAlarm(config, methods)
        self.response = Response()
        self.timings: Metrics = {}  # of the last step

    def stored(self, step: int) -> bool:
        """Whether the episodes of this step are kept."""
        every = self.config.run.store_episodes
        return every > 0 and step % every == 0

    def probe(self, step: int, learnt: Sequence[Episode]) -> Probe | None:
        return partial(self.probes.run, self.policy, learnt) if self.probes.due(step) else None

    def look(
        self, step: int, played: Sequence[Episode], learnt: Sequence[Episode], scores: Scores | None, metrics: Metrics
    ) -> Metrics:
        """What the step was like, beyond `metrics`. `scores` count the episodes of `learnt`, a part of `played`."""
        begin = time.monotonic()
        if scores is not None:
            number = {id(episode): place for place, episode in enumerate(played)}
            places = np.array([number[id(episode)] for episode in learnt], dtype=np.int64)
            scores = replace(scores, episode_U=places[scores.episode_U])
        if scores is not None and self.stored(step):
            write_scores(scores_path(self.run, step), scores)
        seen = self.observer.look(step, played, scores, metrics)
        self.response = self.on_alarm.act(step, seen.alarms)
        self.log.write_events([*seen.events, *self.response.events])
        for alarm in seen.alarms:
            self.say(f"step {step}: ALARM {alarm.name}: {alarm.text} Try: {alarm.remedy}")
        for event in self.response.events:
            if event["kind"] != "pause":  # the loop says that when it has written the checkpoint
                self.say(f"step {step}: {event['text']}")
        self.timings = {"seconds/observe": time.monotonic() - begin}
        if self.probes.due(step):
            self.timings |= self.probes.timings
        return seen.metrics

    def state_dict(self) -> dict[str, Any]:
        return {
            "running": self.observer.running.state_dict(),
            "probes": self.probes.state_dict(),
            "on_alarm": self.on_alarm.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Call it before the learner loads its own state: methods that were switched on have to be there. A checkpoint
        of an older version knows nothing of instruments: they begin anew."""
        if state:
            self.observer.running.load_state_dict(state["running"])
            self.probes.load_state_dict(state["probes"])
            self.on_alarm.load_state_dict(state["on_alarm"])
