"""The loop of reinforcement learning. Open this first.

A step: collect (plan and play), store, learn (score, assign credit, shape, update), measure, evaluate, save.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.core.errors import TaskError, TrainError
from isentrope.core.method import Method
from isentrope.learning.learner import Learner, Update
from isentrope.loop.evaluate import evaluate
from isentrope.loop.measure import Measured, Monitor
from isentrope.loop.messages import Crowd, brief, finished, look_at_rollout, say_end, say_pause, summary
from isentrope.loop.session import RunSession, lasting_objects, open_run
from isentrope.metrics.episodes import Metrics, rollout_metrics
from isentrope.rollout.collector import Collector, Rollout
from isentrope.rollout.prefetch import Prefetch
from isentrope.rollout.timings import Clock, speed_metrics, stage_metrics
from isentrope.runs.checkpoints import load_state, restoring
from isentrope.runs.layout import eval_path


def train(config: RunConfig, out: Path, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train by reinforcement learning in the run folder `out`; gives the last evaluation."""
    with open_run(config, out, resume, quiet) as run:
        learner = Learner(run.policy, run.reference, run.config, run.methods)
        monitor = Monitor(run)
        state, switched = dict[str, Any](), list[Method]()
        if run.checkpoint:
            state = load_state(run.checkpoint)
            with restoring(run.checkpoint):
                switched = monitor.load_state_dict(state.get("instruments", {}))
                for method in switched:
                    learner.add_method(method)
                    run.log.declare(method)
                learner.load_state_dict(state["learner"])
            run.retention.settle(run.checkpoint)
        with run.training_collector() as collector, lasting_objects():
            for method in switched:
                collector.add_method(method)
            collector.load_state_dict(state.get("rollouts", {}))
            return _Loop(run, learner, collector, monitor).run_from(int(state.get("step", 0)))


class _Loop:
    def __init__(self, run: RunSession, learner: Learner, collector: Collector | Prefetch, monitor: Monitor) -> None:
        self.run, self.learner, self.collector, self.monitor = run, learner, collector, monitor
        self.config, self.path, self.log, self.progress = run.config, run.folder.path, run.log, run.progress
        self.clock, self.crowd = Clock(), Crowd(run.progress, run.policy.device)

    def run_from(self, start: int) -> dict[str, float]:
        """From `start` completed steps to the last. Step n is the n-th: its metrics, episodes and checkpoint say n."""
        steps, evaluation = self.config.run.steps, dict[str, float]()
        if start >= steps:
            return finished(self.progress, self.config, self.path, steps)
        self.log.truncate(start if start else -1)
        if start == 0:
            evaluation = self.evaluate(0)
            self.log.write_timings(0, stage_metrics(self.clock.take()), kind="eval")
        self.progress.begin("train", steps, start)
        for step in range(start + 1, steps + 1):
            self.crowd.begin()
            rollout = self.collect(step)
            self.store(step, rollout)
            update = self.learn(step, rollout)
            measured = self.measure(step, rollout, update)
            evaluation = self.evaluate(step) if self._due(step, self.config.run.eval_every) else {}
            self.log.write_timings(step, stage_metrics(self.clock.take()) | measured.timings)
            if self._due(step, self.config.run.checkpoint_every) or measured.response.save:
                self.save(step, evaluation, measured.response.save)
            self.progress.advance(brief(measured.metrics))
            if measured.response.pause and step < steps:
                self.log.close()
                say_pause(self.progress, self.path, step, measured.response.pause)
                return evaluation
        self.log.close()
        say_end(self.progress, self.path)
        return evaluation

    def _due(self, step: int, every: int) -> bool:
        return step == self.config.run.steps or (every > 0 and step % every == 0)

    def collect(self, step: int) -> Rollout:
        """Plan how the step's episodes are played, and play them."""
        rollout = self.config.rollout
        with self.progress.stage("play", rollout.groups * rollout.group_size) as moved, self.clock("rollout"):
            return self.collector.collect(step, moved)

    def store(self, step: int, rollout: Rollout) -> None:
        if self.monitor.stored(step):
            with self.clock("store"):
                rollout.groups.write(self.path, step)

    def learn(self, step: int, rollout: Rollout) -> Update:
        """Score the episodes, assign credit, shape it, and update the policy; gives the step's metrics so far."""
        metrics = rollout_metrics(rollout.episodes) | rollout.metrics
        try:
            look_at_rollout(self.progress, step, rollout.episodes, metrics)
            with self.clock("update"):
                credited = self.learner.credit(step, rollout.learnt)
                probed = self.monitor.probe(credited)
                update = self.learner.update(credited)
                self.collector.refresh()
        except (TaskError, TrainError):
            self.log.write(step, metrics)  # the step one wants to look at
            raise
        metrics |= credited.metrics | probed.metrics | update.metrics | rollout.groups.metrics
        return replace(update, metrics=metrics, seconds=update.seconds | probed.seconds)

    def measure(self, step: int, rollout: Rollout, update: Update) -> Measured:
        """What the step was like, and what is to be done about it."""
        measured = self.monitor.measure(step, rollout, update.scores, update.metrics)
        if measured.response.method is not None:
            self.learner.add_method(measured.response.method)
            self.collector.add_method(measured.response.method)
            self.log.declare(measured.response.method)
        metrics = update.metrics | measured.metrics
        self.log.write(step, metrics)
        read = rollout.learnt if metrics["update/count"] else []
        self.clock.split("update", update.seconds)
        timings = speed_metrics(rollout.seconds, self.clock.seconds, rollout.episodes, read) | measured.timings
        return replace(measured, metrics=metrics, timings=timings | self.crowd.look(step))

    def evaluate(self, step: int) -> dict[str, float]:
        ends = step in (0, self.config.run.steps)
        games = self.config.eval.games if ends else self.config.eval.quick_games
        stored = partial(eval_path, self.path, step) if ends else None
        with self.clock("evaluate"):
            metrics = evaluate(self.collector.settle(), games, self.progress, stored)
        self.log.write(step, metrics, kind="eval")
        self.progress.say(f"step {step}: {summary(metrics, self.config.eval.splits)}")
        return metrics

    def save(self, step: int, evaluation: Metrics, alarm: bool) -> None:
        """Write a checkpoint; what it takes is told with the next step."""
        with self.clock("checkpoint"):
            ahead = self.collector.state_dict()  # first of all: what is being played may belong to the others
            state = {"step": step, "learner": self.learner.state_dict(), "instruments": self.monitor.state_dict()}
            state |= {"rollouts": ahead} if ahead else {}
            self.run.retention.save(step, self.run.policy, state, evaluation, alarm)
