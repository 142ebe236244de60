"""Computes all metrics of a step: one object that the loop asks once a step.

    observer = Observer(pieces)                          # what each token reads as
    seen = observer.look(step, episodes, scores, metrics)
    seen.metrics, seen.alarms, seen.events

Some of it is a function of the step's episodes alone; some goes on from step to step (`Running`): the forecast of drift
against what followed, the drift of length, phases and alarms. What goes on needs nothing but metrics, so it can be
told again from metrics.jsonl where the episodes of a step were not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isentrope.core.types import Episode, Scores
from isentrope.diagnosis.alarms import Alarm, Alarms
from isentrope.learning.tokens import step_tokens
from isentrope.metrics.degeneracy import LengthDrift, degeneracy_metrics
from isentrope.metrics.drift import Drift
from isentrope.metrics.means import Metrics
from isentrope.metrics.surprisal import predicted_drift
from isentrope.runs.log import Record
from isentrope.runs.token_texts import TokenTexts


@dataclass(frozen=True)
class Seen:
    metrics: Metrics
    alarms: list[Alarm]
    events: list[Record]  # lines for events.jsonl


class Running:
    """What goes on from step to step. Feed it all metrics of every training step, in order."""

    def __init__(self) -> None:
        self.drift, self.length, self.alarms = Drift(), LengthDrift(), Alarms()

    def look(self, step: int, metrics: Mapping[str, float | None]) -> Seen:
        new = self.drift.look(metrics) | self.length.look(metrics)
        given = self.alarms.look(step, {**metrics, **new})
        return Seen(new | self.alarms.metrics(given), given, self.alarms.events(given))

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in vars(self).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A part that the state does not know, because the checkpoint is older, begins anew."""
        for name, part in vars(self).items():
            if name in state:
                part.load_state_dict(state[name])


class Observer:
    def __init__(self, words: TokenTexts | None) -> None:
        """Without words nothing can be said about sentences."""
        self.words, self.running = words, Running()

    def look(
        self, step: int, episodes: Sequence[Episode], scores: Scores | None, metrics: Mapping[str, float | None]
    ) -> Seen:
        """`episodes` are all that were played. `scores` are those of the update, which count the episodes in the same
        way; None if there was none. `metrics` are the step's so far."""
        new = self.of_episodes(episodes, scores)
        seen = self.running.look(step, {**metrics, **new})
        return Seen(new | seen.metrics, seen.alarms, seen.events)

    def of_episodes(self, episodes: Sequence[Episode], scores: Scores | None) -> Metrics:
        """What this step's episodes say by themselves, beyond `rollout_metrics`."""
        step = step_tokens(episodes)
        new = degeneracy_metrics(episodes, step, self.words)
        return new | (predicted_drift(step, scores) if scores is not None else {})
