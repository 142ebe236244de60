"""Computes all metrics of a step: one object that the loop asks once a step.

    observer = Observer(pieces)                          # what each token reads as
    seen = observer.look(step, episodes, scores, metrics)
    seen.metrics, seen.alarms, seen.events

Some of it is a function of the step's episodes alone; some goes on from step to step (`Running`): the forecast of drift
against what followed, the drift of length, phases and alarms. What goes on needs nothing but metrics, so it can be
told again from metrics.jsonl where the episodes of a step were not stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from isentrope.core.types import Episode, Scores
from isentrope.diagnosis.alarms import Alarm, Alarms, number
from isentrope.learning.tokens import step_tokens
from isentrope.metrics.degeneracy import degeneracy_metrics
from isentrope.metrics.entropy import predicted_drift
from isentrope.metrics.means import Metrics
from isentrope.runs.log import Record
from isentrope.runs.token_texts import TokenTexts

ENOUGH = 3  # pairs: two always lie on a line
FIRST_STEPS = 5  # that length drift is measured against


class _Remembering:
    """All that it knows is its state."""

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


class Drift(_Remembering):
    """Compares the forecast of entropy's drift with what followed: running agreement and correlation.

    At step t the forecast P_t (`entropy.py`) is made from what step t learns from. At step t + 1 the drift
    D = H_{t+1} - H_t is measured, H being the mean token entropy. Each such pair counts once:

        agreement     share of the pairs in which P and D have the same sign; a pair in which one is 0 has no sign
        correlation   Pearson's, of P and D, over all pairs so far, from the third on

    Feed it every step's metrics. Its state survives a restart, so a resumed run writes the same numbers.
    """

    def __init__(self) -> None:
        self.entropy: float | None = None  # of the step before
        self.forecast: float | None = None  # made at the step before
        self.agreed = self.signed = 0  # pairs
        self.count = 0
        self.mean_p = self.mean_d = 0.0
        self.var_p = self.var_d = self.cov = 0.0  # sums of products of deviations (Welford)

    def look(self, metrics: Mapping[str, float | None]) -> Metrics:
        entropy, before = number(metrics, "entropy/token"), self.entropy
        measured = entropy - before if entropy is not None and before is not None else None
        if measured is not None and self.forecast is not None:
            self._pair(self.forecast, measured)
        self.entropy, self.forecast = entropy, number(metrics, "drift/predicted")
        found = {} if measured is None else {"drift/measured": measured}
        if self.signed:
            found["drift/agreement"] = self.agreed / self.signed
        spread = math.sqrt(self.var_p) * math.sqrt(self.var_d)
        if self.count >= ENOUGH and spread > 0:
            found["drift/correlation"] = max(-1.0, min(1.0, self.cov / spread))
        return found

    def _pair(self, forecast: float, measured: float) -> None:
        if forecast != 0 and measured != 0:
            self.signed += 1
            self.agreed += (forecast > 0) == (measured > 0)
        self.count += 1
        off_p, off_d = forecast - self.mean_p, measured - self.mean_d
        self.mean_p += off_p / self.count
        self.mean_d += off_d / self.count
        self.var_p += off_p * (forecast - self.mean_p)
        self.var_d += off_d * (measured - self.mean_d)
        self.cov += off_p * (measured - self.mean_d)


class LengthDrift(_Remembering):
    """Mean length of a response over its mean in the first steps, from the step after those on."""

    def __init__(self) -> None:
        self.first: list[float] = []

    def look(self, metrics: Mapping[str, float | None]) -> Metrics:
        length = number(metrics, "response/tokens")
        if length is None:
            return {}
        if len(self.first) < FIRST_STEPS:
            self.first = [*self.first, length]
            return {}
        start = fmean(self.first)
        return {"degeneracy/length_drift": length / start} if start > 0 else {}


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
