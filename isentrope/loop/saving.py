"""What a run under way saves, and what it leaves when a signal asks for its end (stop.py)."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch

from isentrope.core.errors import RankLost
from isentrope.core.method import Method
from isentrope.core.signals import Interrupted
from isentrope.core.types import FAILURES
from isentrope.learning.learner import Learner
from isentrope.loop.measure import Monitor
from isentrope.loop.session import RunSession
from isentrope.loop.stop import lost_games, say_stopped
from isentrope.metrics.means import Metrics
from isentrope.rollout.collector import Collector, Rollout
from isentrope.rollout.prefetch import Prefetch
from isentrope.runs.checkpoints import load_state, restoring

State = dict[str, Any]
_DUE = "evaluation_due"  # in the state of a step whose evaluation is still to come: whether an alarm had it saved


def restored(run: RunSession, learner: Learner, monitor: Monitor) -> tuple[State, list[Method]]:
    """The state of the checkpoint that the run goes on from, taken on; and the methods that alarms had switched on."""
    if run.checkpoint is None:
        return {}, []
    state = load_state(run.checkpoint)
    with restoring(run.checkpoint):
        switched = monitor.load_state_dict(state.get("instruments", {}))
        for method in switched:
            learner.add_method(method)
            run.log.declare(method)
        learner.load_state_dict(state["learner"])
    run.retention.settle(run.checkpoint)
    return state, switched


def restore_rollouts(
    run: RunSession, collector: Collector | Prefetch, state: State, switched: Sequence[Method]
) -> None:
    for method in switched:
        collector.add_method(method)
    if run.checkpoint is not None:
        with restoring(run.checkpoint):
            collector.load_state_dict(state.get("rollouts", {}))


class Saving:
    """Saves the learner, the instruments and what the rollouts need. `saved` is the step of the last checkpoint."""

    def __init__(
        self, run: RunSession, learner: Learner, collector: Collector | Prefetch, monitor: Monitor, start: int
    ) -> None:
        self.run, self.learner, self.collector, self.monitor = run, learner, collector, monitor
        self.stop, self.saved, self.done = run.stop, start, start
        self._update_seconds = float("inf")  # of the last step; not known yet
        self._update_began = 0.0

    def due(self, step: int, every: int) -> bool:
        return step == self.run.config.run.steps or (every > 0 and step % every == 0)

    def save(self, step: int, evaluation: Metrics, alarm: bool = False, due: bool = False) -> None:
        """`due`: the evaluation of this step is still to come."""
        state = self._state(step)  # first of all: what is being played may belong to the others
        self._write(step, state | ({_DUE: alarm} if due else {}), evaluation, alarm)

    def _state(self, step: int) -> State:
        ahead = self.collector.state_dict()
        state = {"step": step, "learner": self.learner.state_dict(), "instruments": self.monitor.state_dict()}
        return state | ({"rollouts": ahead} if ahead else {})

    def _write(self, step: int, state: State, evaluation: Metrics, alarm: bool) -> None:
        with self.stop.saves():
            self.run.retention.save(step, self.run.policy, state, evaluation, alarm)
        self.saved = step

    @contextmanager
    def steps(self) -> Generator[None]:
        """In here a signal waits for the end of the step, if there is time."""
        try:
            with self.stop.waits():
                yield
        except Interrupted as asked:
            self.run.log.close()
            say_stopped(self.run.progress, self.run.folder.path, asked.number, self.saved, self.done)
            raise
        except RankLost:
            self.run.log.close()  # it is opened again
            raise

    @contextmanager
    def rollout(self, step: int) -> Generator[None]:
        """If the step is given up before its update, the one before is saved. What is played ahead cannot be: it
        belongs to the step."""
        before = None if self.run.config.rollout.ahead else frozen(self._state(step - 1))
        try:
            yield
        except Interrupted:
            if before is not None and step - 1 > self.saved:
                self._write(step - 1, before, {}, False)
            raise

    def begin_update(self, rollout: Rollout) -> None:
        """From here on the step cannot be given up without losing all that came after the last checkpoint. Episodes
        that failed after the signal may have failed because of it."""
        failed = any(episode.stop in FAILURES for episode in rollout.episodes)
        if not self.run.config.rollout.ahead:
            self.stop.check(float("inf") if failed else self._update_seconds)
        self._update_began = time.monotonic()

    def end_update(self, step: int) -> None:
        self._update_seconds, self.done = time.monotonic() - self._update_began, step

    @contextmanager
    def evaluation(self, step: int, alarm: bool) -> Generator[None]:
        """If the evaluation is given up, a checkpoint says that it is to come."""
        try:
            yield
        except Interrupted:
            self.save(step, {}, alarm, due=True)
            raise

    def check_evaluation(self, metrics: Metrics) -> None:
        if lost_games(metrics):
            self.stop.check(float("inf"))

    def end_step(self, step: int, evaluation: Metrics) -> None:
        if self.stop.asked is not None and step < self.run.config.run.steps:
            if self.saved < step:
                self.save(step, evaluation)
            self.stop.end()


def evaluation_due(state: Mapping[str, Any]) -> bool | None:
    """Whether an alarm had the state saved, if its evaluation is still to come; None: it was made, or none was due."""
    return state.get(_DUE)


def frozen(state: Any) -> Any:
    """The state as it is now: lists and tables are copied. Tensors are not; they change in the update alone."""
    if isinstance(state, torch.Tensor):
        return state
    if isinstance(state, dict):
        return {key: frozen(value) for key, value in cast("State", state).items()}
    if isinstance(state, list | tuple):
        return [frozen(value) for value in cast("list[Any]", state)]
    return state
