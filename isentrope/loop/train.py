"""The loop of reinforcement learning. Open this first.

A step: collect (plan and play), store, learn (score, assign credit, shape, update), measure, evaluate, save.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.core.errors import IsentropeError
from isentrope.core.process import memory_metrics
from isentrope.learning.learner import Learner, Update
from isentrope.loop.checks import look_at_rollout
from isentrope.loop.evaluate import evaluate
from isentrope.loop.measure import Measured, Monitor
from isentrope.loop.messages import Crowd, brief, finished, say_end, say_pause, summary
from isentrope.loop.restart import restarting
from isentrope.loop.saving import Saving, evaluation_due, restore_rollouts, restored
from isentrope.loop.session import RunSession, lasting_objects, open_run
from isentrope.metrics.episodes import rollout_metrics
from isentrope.rollout.collector import Rollout
from isentrope.rollout.timings import Clock, speed_metrics, stage_metrics
from isentrope.runs.layout import eval_path


@restarting
def train(
    config: RunConfig, out: Path, resume: bool = False, quiet: bool = False, from_step: int | None = None
) -> dict[str, float]:
    """Train by reinforcement learning in the run folder `out`; gives the last evaluation."""
    with open_run(config, out, resume, quiet, from_step=from_step) as run, run.ranks() as replica:
        learner = Learner(run.policy, run.reference, run.config, run.methods, replica)
        monitor = Monitor(run)
        state, switched = restored(run, learner, monitor)
        with run.training_collector() as collector, lasting_objects():
            restore_rollouts(run, collector, state, switched)
            saving = Saving(run, learner, collector, monitor, start=int(state.get("step", 0)))
            return _Loop(run, saving).run_from(saving.saved, evaluation_due(state))


class _Loop:
    def __init__(self, run: RunSession, saving: Saving) -> None:
        self.run, self.saving, self.learner = run, saving, saving.learner
        self.collector, self.monitor = saving.collector, saving.monitor
        self.config, self.path, self.log, self.progress = run.config, run.folder.path, run.log, run.progress
        self.clock, self.crowd = Clock(), Crowd(run.progress, run.policy.device)

    def run_from(self, start: int, due: bool | None = None) -> dict[str, float]:
        """From `start` completed steps to the last. Step n is the n-th: its metrics, episodes and checkpoint say n.
        `due`, if not None: the evaluation of step `start` was given up when the run was asked to end."""
        steps, evaluation = self.config.run.steps, dict[str, float]()
        if start >= steps and due is None:
            return finished(self.progress, self.config, self.path, steps)
        self.log.truncate(start if start else -1)
        if start == 0:
            self.run.warn_first(self.collector.settle().world)
        if start == 0 or due is not None:
            evaluation = self.evaluate(start)
            self.log.write_timings(start, stage_metrics(self.clock.take()), kind="eval")
        if due is not None:
            self.saving.save(start, evaluation, due)
        self.progress.begin("train", steps, start)
        with self.saving.steps():
            for step in range(start + 1, steps + 1):
                measured, evaluation = self.step(step)
                if measured.response.pause and step < steps:
                    self.log.close()
                    say_pause(self.progress, self.path, step, measured.response.pause)
                    return evaluation
        self.log.close()
        say_end(self.progress, self.path)
        return evaluation

    def step(self, step: int) -> tuple[Measured, dict[str, float]]:
        self.crowd.begin()
        with self.saving.rollout(step):
            rollout = self.collect(step)
            self.store(step, rollout)
            self.saving.begin_update(rollout)
        update = self.learn(step, rollout)
        measured = self.measure(step, rollout, update)
        alarm = measured.response.save
        with self.saving.evaluation(step, alarm):
            evaluation = self.evaluate(step) if self.saving.due(step, self.config.run.eval_every) else {}
        self.log.write_timings(step, stage_metrics(self.clock.take()) | measured.timings)
        if self.saving.due(step, self.config.run.checkpoint_every) or alarm:
            with self.clock("checkpoint"):  # what it takes is told with the next step
                self.saving.save(step, evaluation, alarm)
        self.progress.advance(brief(measured.metrics))
        self.saving.end_step(step, evaluation)
        return measured, evaluation

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
            self.log.write_events(look_at_rollout(self.progress, step, rollout.episodes, metrics))
            with self.clock("update"):
                credited = self.learner.credit(step, rollout.learnt)
                probed = self.monitor.probe(credited)
                update = self.learner.update(credited)
                self.collector.refresh()
        except IsentropeError:
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
        self.saving.end_update(step)
        read = rollout.learnt if metrics["update/count"] else []
        self.clock.split("update", update.seconds)
        timings = speed_metrics(rollout.seconds, self.clock.seconds, rollout.episodes, read) | measured.timings
        return replace(measured, metrics=metrics, timings=timings | self.crowd.look(step) | memory_metrics())

    def evaluate(self, step: int) -> dict[str, float]:
        ends = step in (0, self.config.run.steps)
        games = self.config.eval.games if ends else self.config.eval.quick_games
        stored = partial(eval_path, self.path, step) if ends else None
        with self.clock("evaluate"):
            metrics = evaluate(self.collector.settle(), games, self.progress, stored)
        self.saving.check_evaluation(metrics)
        self.log.write(step, metrics, kind="eval")
        self.progress.say(f"step {step}: {summary(metrics, self.config.eval.splits)}")
        return metrics
