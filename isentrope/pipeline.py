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
from isentrope.instruments.log import MetricsLog
from isentrope.instruments.metrics import FAILURES, rollout_metrics, timing_metrics
from isentrope.methods.base import Method
from isentrope.methods.registry import make_methods
from isentrope.notices import check_prompt, finished, look_at_rollout, say_end, say_start, summary
from isentrope.policy.engines import make_engine
from isentrope.policy.load import load_checkpoint, load_folder, load_policy
from isentrope.policy.lora.adapters import reference_of
from isentrope.policy.policy import Policy
from isentrope.rollout.arena import Arena
from isentrope.rollout.dynamic import sample_groups
from isentrope.setup import use_threads
from isentrope.train.checkpoint import latest_checkpoint, load_state
from isentrope.train.keeper import Keeper
from isentrope.train.learner import Learner
from isentrope.train.run_folder import RunFolder
from isentrope.types import RolloutPlan


def train(config: RunConfig, out: Path, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train by reinforcement learning in the run folder `out`; gives the last evaluation."""
    use_threads(config)
    check_prompt(config)
    methods = make_methods(config)
    with RunFolder(out, config, resume) as folder, Watch(quiet) as watch:
        found = latest_checkpoint(folder.checkpoints) if resume else None
        policy, reference = _policies(config, folder, found)
        say_start(watch, config, policy, folder, found)
        learner = Learner(policy, reference, config, methods)
        start = _restore(found, learner) if found else 0
        keeper = Keeper(folder.checkpoints, config)
        if found:
            keeper.settle(found)
        with Arena(config, make_engine(config, policy)) as arena:
            return _Loop(config, folder, arena, learner, methods, keeper, watch).run(start)


def _policies(config: RunConfig, folder: RunFolder, found: Path | None) -> tuple[Policy, Policy | None]:
    """The policy as it is now, and the reference: the policy as it was at step 0, kept in the run folder."""
    run, longest = config.run, config.agent.max_context
    if found:
        policy = load_checkpoint(found / "policy", config.policy, run, config.learn, config.critic, longest)
    else:
        policy = load_policy(config.policy, run, config.learn, config.critic, longest)
        folder.write_reference(policy)
    folder.write_tokens(policy.dialect)
    if config.learn.gradient_checkpointing:
        policy.model.compute_twice()
    if config.learn.kl == 0:
        return policy, None
    if config.policy.lora_rank:
        return policy, reference_of(policy, folder.reference)
    reference = load_folder(folder.reference, policy.device, run.dtype, run.weights)
    reference.module.requires_grad_(False)
    return policy, reference


def _restore(checkpoint: Path, learner: Learner) -> int:
    state = load_state(checkpoint)
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
        watch: Watch,
    ) -> None:
        self.config, self.folder, self.arena, self.learner = config, folder, arena, learner
        self.methods, self.keeper, self.watch, self.log = methods, keeper, watch, MetricsLog(folder.path)

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
            if step == steps or step % self.config.run.checkpoint_every == 0:
                state = {"step": step, "learner": self.learner.state_dict()}
                self.keeper.save(step, self.learner.policy, state, metrics)
            self.watch.advance(note)
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
        every = self.config.run.store_episodes
        if every and step % every == 0:
            sampled.write(self.folder.path / "episodes", step)
        played = sampled.kept + sampled.dropped
        metrics = rollout_metrics(played) | {f"plan/{name}": value for name, value in plan.notes.items()}
        metrics |= {f"engine/{name}": value for name, value in self.arena.engine.notes().items()}
        # A task that broke says nothing about the policy: its episode is stored and counted, but not learnt from.
        learnt = [episode for episode in sampled.kept if episode.stop not in FAILURES]
        try:
            look_at_rollout(self.watch, step, played, metrics)
            metrics |= self.learner.update(step, learnt) | sampled.metrics
            self.arena.engine.refresh()
        except (TaskError, TrainError):
            self.log.write(step, metrics)  # the step one wants to look at
            raise
        clock.append(time.monotonic())
        self.log.write(step, metrics)
        read = learnt if metrics["update/count"] else []
        self.log.write_timings(step, timing_metrics(clock[1] - clock[0], clock[2] - clock[1], played, read))
        return f"success {metrics['success/all']:.2f}  entropy {metrics.get('entropy/token', 0):.2f}"

    def _evaluate(self, step: int) -> dict[str, float]:
        ends = step in (0, self.config.run.steps)
        games = self.config.eval.games if ends else self.config.eval.quick_games
        stored = str(self.folder.path / "episodes" / f"eval-{step:06d}-{{split}}.parquet") if ends else None
        metrics = evaluate(self.arena, games, self.watch, stored)
        self.log.write(step, metrics, kind="eval")
        self.watch.say(f"step {step}: {summary(metrics, self.config.eval.splits)}")
        return metrics
