"""The loop: plan, roll out, score, shape, update, observe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.console import Watch
from isentrope.errors import TaskError, TrainError
from isentrope.evaluate import evaluate
from isentrope.instruments.live import Live
from isentrope.instruments.metrics import FAILURES, rollout_metrics, timing_metrics
from isentrope.methods.base import Method
from isentrope.methods.registry import make_methods
from isentrope.notices import check_prompt, finished, look_at_rollout, say_end, say_pause, say_start, summary
from isentrope.policies import policies
from isentrope.policy.engines import make_engine
from isentrope.rollout.arena import Arena
from isentrope.rollout.dynamic import sample_groups
from isentrope.setup import settled, use_threads
from isentrope.train.checkpoint import latest_checkpoint, load_state
from isentrope.train.keeper import Keeper
from isentrope.train.learner import Learner
from isentrope.train.run_folder import RunFolder
from isentrope.types import RolloutPlan


def train(config: RunConfig, out: Path, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train by reinforcement learning in the run folder `out`; gives the last evaluation."""
    config = settled(config)
    use_threads(config)
    check_prompt(config)
    methods = make_methods(config)
    with RunFolder(out, config, resume) as folder, Watch(quiet) as watch:
        found = latest_checkpoint(folder.checkpoints) if resume else None
        policy, reference = policies(config, folder, found)
        say_start(watch, config, policy, folder, found)
        learner = Learner(policy, reference, config, methods)
        live = Live(config, folder.path, policy, methods, watch.say)
        start = _restore(found, learner, live) if found else 0
        keeper = Keeper(folder.checkpoints, config)
        if found:
            keeper.settle(found)
        with Arena(config, make_engine(config, policy)) as arena:
            return _Loop(config, folder, arena, learner, methods, keeper, live, watch).run(start)


def _restore(checkpoint: Path, learner: Learner, live: Live) -> int:
    state = load_state(checkpoint)
    live.load_state_dict(state.get("instruments", {}))
    learner.load_state_dict(state["learner"])
    return int(state["step"])


class _Loop:
    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        arena: Arena,
        learner: Learner,
        methods: Sequence[Method],
        keeper: Keeper,
        live: Live,
        watch: Watch,
    ) -> None:
        self.config, self.folder, self.arena, self.learner = config, folder, arena, learner
        self.methods, self.keeper, self.live, self.watch, self.log = methods, keeper, live, watch, live.log

    def run(self, start: int) -> dict[str, float]:
        """From `start` completed steps to the last. Step n is the n-th: its metrics, episodes and checkpoint say n."""
        steps, metrics = self.config.run.steps, {}
        if start >= steps:
            return finished(self.watch, self.config, self.folder.path, steps)
        self.log.truncate(start if start else -1)
        if start == 0:
            metrics = self._evaluate(0)
        self.watch.begin("train", steps, start)
        for step in range(start + 1, steps + 1):
            note = self._step(step)
            every = self.config.run.eval_every
            metrics = self._evaluate(step) if step == steps or (every and step % every == 0) else {}
            response = self.live.response
            if step == steps or step % self.config.run.checkpoint_every == 0 or response.save:
                state = {"step": step, "learner": self.learner.state_dict(), "instruments": self.live.state_dict()}
                self.keeper.save(step, self.learner.policy, state, metrics, response.save)
            self.watch.advance(note)
            if response.pause and step < steps:
                self.log.close()
                say_pause(self.watch, self.folder.path, step, response.pause)
                return metrics
        self.log.close()
        say_end(self.watch, self.folder.path)
        return metrics

    def _step(self, step: int) -> str:
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        for method in self.methods:
            plan = method.plan(step, plan)
        clock = [time.monotonic()]
        rollout = self.config.rollout
        with self.watch.stage("play", rollout.groups * rollout.group_size) as moved:
            play = partial(self.arena.train, step, plan, moved)
            sampled = sample_groups(play, rollout.groups, self.config.learn, FAILURES)
        clock.append(time.monotonic())
        if self.live.stored(step):
            sampled.write(self.folder.path / "episodes", step)
        played = sampled.kept + sampled.dropped
        metrics = rollout_metrics(played) | {f"plan/{name}": value for name, value in plan.notes.items()}
        metrics |= self.arena.notes()
        # A task that broke says nothing about the policy: its episode is stored and counted, but not learnt from.
        learnt = [episode for episode in sampled.kept if episode.stop not in FAILURES]
        try:
            look_at_rollout(self.watch, step, played, metrics)
            metrics |= self.learner.update(step, learnt, self.live.probe(step, learnt)) | sampled.metrics
            self.arena.engine.refresh()
        except (TaskError, TrainError):
            self.log.write(step, metrics)  # the step one wants to look at
            raise
        clock.append(time.monotonic())
        metrics |= self.live.look(step, played, learnt, self.learner.scores, metrics)
        self.log.write(step, metrics)
        read = learnt if metrics["update/count"] else []
        timings = timing_metrics(clock[1] - clock[0], clock[2] - clock[1], played, read)
        self.log.write_timings(step, timings | self.live.timings)
        return f"success {metrics['success/all']:.2f}  entropy {metrics.get('entropy/token', 0):.2f}"

    def _evaluate(self, step: int) -> dict[str, float]:
        ends = step in (0, self.config.run.steps)
        games = self.config.eval.games if ends else self.config.eval.quick_games
        stored = str(self.folder.path / "episodes" / f"eval-{step:06d}-{{split}}.parquet") if ends else None
        metrics = evaluate(self.arena, games, self.watch, stored)
        self.log.write(step, metrics, kind="eval")
        self.watch.say(f"step {step}: {summary(metrics, self.config.eval.splits)}")
        return metrics
