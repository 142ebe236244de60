"""The loop: plan, roll out, score, shape, update, observe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.console import Watch
from isentrope.core.errors import TaskError, TrainError
from isentrope.engines.registry import make_engine
from isentrope.evaluate import evaluate
from isentrope.instruments.live import Live
from isentrope.methods.options import with_options
from isentrope.methods.registry import make_methods
from isentrope.metrics.episodes import FAILURES, Metrics, rollout_metrics
from isentrope.metrics.timings import speed_metrics, stage_metrics
from isentrope.models.policy import snapshot
from isentrope.notices import Crowd, check_prompt, finished, look_at_rollout, say_end, say_pause, say_start, summary
from isentrope.policies import policies
from isentrope.rollout.advance import Rollouts
from isentrope.rollout.arena import Arena
from isentrope.rollout.clock import Clock
from isentrope.runs.checkpoints import Keeper, latest_checkpoint, load_state
from isentrope.runs.layout import eval_path
from isentrope.runs.writer import RunFolder
from isentrope.setup import lasting_objects, settled, use_threads
from isentrope.train.learner import Learner
from isentrope.train.player import Player


def train(config: RunConfig, out: Path, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train by reinforcement learning in the run folder `out`; gives the last evaluation."""
    config = settled(config)
    use_threads(config)
    check_prompt(config)
    methods = make_methods(config)
    with RunFolder(out, config, resume, complete=with_options) as folder, Watch(quiet) as watch:
        found = latest_checkpoint(folder.checkpoints) if resume else None
        policy, reference = policies(config, folder, found)
        say_start(watch, config, policy, folder, found)
        learner = Learner(policy, reference, config, methods)
        live = Live(config, folder.path, policy, methods, watch.say)
        keeper = Keeper(folder.checkpoints, config)
        state: dict[str, Any] = load_state(found) if found else {}
        if found:
            live.load_state_dict(state.get("instruments", {}))
            learner.load_state_dict(state["learner"])
            keeper.settle(found)
        sampler = snapshot(policy) if config.rollout.ahead else policy
        with (
            Arena(config, make_engine(config, sampler)) as arena,
            Player(config, arena, methods, policy, sampler, FAILURES).rollouts() as rollouts,
            lasting_objects(),
        ):
            rollouts.load_state_dict(state.get("rollouts", {}))
            return _Loop(config, folder, arena, learner, rollouts, keeper, live, watch).run(int(state.get("step", 0)))


class _Loop:
    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        arena: Arena,
        learner: Learner,
        rollouts: Rollouts,
        keeper: Keeper,
        live: Live,
        watch: Watch,
    ) -> None:
        self.config, self.folder, self.arena, self.learner, self.rollouts = config, folder, arena, learner, rollouts
        self.keeper, self.live, self.watch, self.log = keeper, live, watch, live.log
        self.clock, self.timings, self.crowd = Clock(), dict[str, float](), Crowd(watch, learner.policy.device)

    def run(self, start: int) -> dict[str, float]:
        """From `start` completed steps to the last. Step n is the n-th: its metrics, episodes and checkpoint say n."""
        steps, metrics = self.config.run.steps, {}
        if start >= steps:
            return finished(self.watch, self.config, self.folder.path, steps)
        self.log.truncate(start if start else -1)
        if start == 0:
            metrics = self._evaluate(0)
            self.log.write_timings(0, stage_metrics(self.clock.take()), kind="eval")
        self.watch.begin("train", steps, start)
        for step in range(start + 1, steps + 1):
            note = self._step(step)
            every = self.config.run.eval_every
            metrics = self._evaluate(step) if step == steps or (every and step % every == 0) else {}
            self.log.write_timings(step, stage_metrics(self.clock.take()) | self.timings)
            response = self.live.response
            if step == steps or step % self.config.run.checkpoint_every == 0 or response.save:
                self._save(step, metrics, response.save)
            self.watch.advance(note)
            if response.pause and step < steps:
                self.log.close()
                say_pause(self.watch, self.folder.path, step, response.pause)
                return metrics
        self.log.close()
        say_end(self.watch, self.folder.path)
        return metrics

    def _step(self, step: int) -> str:
        rollout = self.config.rollout
        self.crowd.begin()
        with self.watch.stage("play", rollout.groups * rollout.group_size) as moved, self.clock("rollout"):
            played = self.rollouts.take(step, moved)
            self.rollouts.begin_next(step)
        sampled, episodes = played.sampled, played.sampled.kept + played.sampled.dropped
        if self.live.stored(step):
            with self.clock("store"):
                sampled.write(self.folder.path, step)
        metrics = rollout_metrics(episodes) | played.metrics
        # A task that broke says nothing about the policy: its episode is stored and counted, but not learnt from.
        learnt = [episode for episode in sampled.kept if episode.stop not in FAILURES]
        try:
            look_at_rollout(self.watch, step, episodes, metrics)
            with self.clock("update"):
                metrics |= self.learner.update(step, learnt, self.live.probe(step, learnt)) | sampled.metrics
                self.rollouts.learnt()
        except (TaskError, TrainError):
            self.log.write(step, metrics)  # the step one wants to look at
            raise
        metrics |= self.live.look(step, episodes, learnt, self.learner.scores, metrics)
        self.log.write(step, metrics)
        read = learnt if metrics["update/count"] else []
        self.clock.split("update", self.learner.seconds)
        self.timings = speed_metrics(played.seconds, self.clock.seconds, episodes, read) | self.live.timings
        self.timings |= self.crowd.look(step)
        return f"success {metrics['success/all']:.2f}  entropy {metrics.get('entropy/token', 0):.2f}"

    def _evaluate(self, step: int) -> dict[str, float]:
        ends = step in (0, self.config.run.steps)
        games = self.config.eval.games if ends else self.config.eval.quick_games
        stored = str(eval_path(self.folder.path, step, "{split}")) if ends else None
        with self.clock("evaluate"):
            self.rollouts.settle()
            metrics = evaluate(self.arena, games, self.watch, stored)
        self.log.write(step, metrics, kind="eval")
        self.watch.say(f"step {step}: {summary(metrics, self.config.eval.splits)}")
        return metrics

    def _save(self, step: int, metrics: Metrics, alarm: bool) -> None:
        """Write a checkpoint; what it takes is told with the next step."""
        with self.clock("checkpoint"):
            ahead = self.rollouts.state_dict()  # first of all: what is being played may belong to the others
            state = {"step": step, "learner": self.learner.state_dict(), "instruments": self.live.state_dict()}
            self.keeper.save(step, self.learner.policy, state | ({"rollouts": ahead} if ahead else {}), metrics, alarm)
