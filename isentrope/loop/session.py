"""Opens what every run needs: folder, policy, world and engine, for train, sft, rft and eval alike.

with open_run(config, out, resume, quiet, kind="train") as run:     # a run folder: train, sft, rft
    with run.collector() as collector: ...
with model_session(config, "runs/first").collector() as collector: ...    # no folder: eval
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from isentrope.config.convert import parse_choice
from isentrope.config.schema import RunConfig
from isentrope.config.validate import trackers_of
from isentrope.core.engine import Engine
from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.core.process import usable_cores
from isentrope.engines.registry import engine_metrics, engine_options, make_engine
from isentrope.learning.registry import make_advantage, make_loss, part_problems
from isentrope.learning.replica import Replica
from isentrope.loop.checks import check_installed, check_prompt, check_room
from isentrope.loop.messages import say_extended, say_start
from isentrope.loop.progress import Progress
from isentrope.loop.rate import unfit_rate
from isentrope.loop.stop import Stop
from isentrope.loop.warned import Warned, other_form, short_games
from isentrope.methods.options import with_options
from isentrope.methods.registry import make_methods
from isentrope.metrics.log import MetricsLog
from isentrope.models.auto import autos, follow_model, plain_defaults
from isentrope.models.load import choose_device, load_folder, load_policy
from isentrope.models.lora import reference_of
from isentrope.models.memory import Plays
from isentrope.models.policy import Policy, snapshot
from isentrope.rollout.collector import Collector
from isentrope.rollout.prefetch import Prefetch
from isentrope.rollout.sampler import make_sampler
from isentrope.runs.checkpoints import CheckpointRetention
from isentrope.runs.layout import POLICY
from isentrope.runs.recovery import GoingOn, going_on, refuse_damaged
from isentrope.runs.writer import RunFolder, begun_config
from isentrope.worlds.contract import World
from isentrope.worlds.pool.open import open_world


def open_engine(config: RunConfig, policy: Policy | None) -> Engine:
    """The engine that plays with a policy: in this process, or several of them in others."""
    if config.cluster.kind == "local" or policy is None:
        return make_engine(config, policy)
    from isentrope.cluster.engine import ClusterEngine

    return ClusterEngine(policy, config)


@dataclass(frozen=True)
class Session:
    config: RunConfig
    policy: Policy | None  # None: a model behind a server

    def collector(self) -> Collector:
        """Opens the world and the engine, which plays with the policy."""
        return Collector(self.config, open_engine(self.config, self.policy))


@dataclass(frozen=True)
class RunSession(Session):
    """A session in a run folder."""

    policy: Policy
    reference: Policy | None  # the policy as it was at step 0, kept in the run folder; None: nothing asks for it
    methods: Sequence[Method]  # that the run begins with
    folder: RunFolder
    checkpoint: Path | None  # that the run goes on from
    progress: Progress
    stop: Stop  # what a signal asked for
    warned: Sequence[Warned] = ()  # before it began

    @cached_property
    def retention(self) -> CheckpointRetention:
        return CheckpointRetention(self.folder.checkpoints, self.config)

    @cached_property
    def log(self) -> MetricsLog:
        parts = [
            *self.methods,
            make_advantage(self.config.learn),
            make_loss(self.config.learn),
            make_sampler(self.config),
        ]
        log = MetricsLog(self.folder.path, trackers_of(self.config.run.track), self.progress.say)
        for part in parts:
            log.declare(part)
        log.declare(engine_metrics(self.config) or ())
        return log

    def warn_first(self, world: World) -> None:
        """Record what was warned of before the first step, and look at the games too."""
        short = short_games(self.config, world)
        if short is not None:
            self.progress.say(short.line())
        self.log.write_events([one.event(0) for one in (*self.warned, short) if one is not None])

    @contextmanager
    def ranks(self) -> Generator[Replica | None]:
        """The first of the ranks that learn, while the others are there; None: this process learns alone."""
        if self.config.cluster.trainers == 1:
            yield None
            return
        from isentrope.loop.ranks import ranks_of

        with ranks_of(self.policy, self.reference, self.config) as first:
            yield first

    def training_collector(self) -> Collector | Prefetch:
        """Of episodes that are played as the methods say, one step ahead if the settings say so."""
        if not self.config.rollout.ahead:
            return Collector(self.config, open_engine(self.config, self.policy), self.methods)
        sampler = snapshot(self.policy)
        collector = Collector(self.config, open_engine(self.config, sampler), self.methods)
        return Prefetch(collector, self.policy, sampler)


@contextmanager
def open_run(
    config: RunConfig,
    out: Path,
    resume: bool = False,
    quiet: bool = False,
    kind: str = "train",
    from_step: int | None = None,
) -> Generator[RunSession]:
    """A session in the run folder `out`, which no other process may write to while it lasts. A run that is resumed goes
    on from its newest checkpoint without damage, or `from_step`."""
    check_installed(config)
    config = settled(config)  # what is wrong with the world is said before a model is fetched
    asked, config = config, prepared(follow_model(config, begun_config(out)))
    check_prompt(config)
    methods = make_methods(config)  # a fault in their settings is to be found before anything is written
    if kind == "train" and (problems := part_problems(config)):
        raise ConfigError("\n".join(problems))
    opened = RunFolder(out, config, resume, kind, complete=with_options)
    with Stop(config.run.grace) as stop, opened as folder, Progress(quiet) as progress:
        on = going_on(out, kind, from_step) if resume else GoingOn()
        for line in on.said:
            progress.say(line)
        checkpoint = on.checkpoint
        policy = _policy(config, folder, checkpoint)
        check_room(config, policy.tokenizer)
        reference = _reference(config, folder, policy)
        warned = [one for one in (unfit_rate(config, policy, kind), _other_form(config, kind)) if one is not None]
        for one in warned:
            progress.say(one.line())
        say_start(progress, config, policy, folder, checkpoint, autos(asked))
        if folder.steps_before is not None and kind == "train":
            say_extended(progress, config, folder.steps_before, checkpoint)
        yield RunSession(config, policy, reference, methods, folder, checkpoint, progress, stop, warned)


def _other_form(config: RunConfig, kind: str) -> Warned | None:
    """Imitation of an expert may teach a new form; whoever plays needs to know it."""
    return other_form(config) if kind != "sft" else None


def model_session(config: RunConfig, model: str | None) -> Session:
    """A session to play with a model: a folder or a name, or (None) the one behind the engine's server."""
    if model is None:
        return Session(plain_defaults(config), None)
    # adapters of the folder are taken into the weights: nothing learns here, so no new ones are wanted
    config = follow_model(replace(config, policy=replace(config.policy, model=model, lora_rank=0)))
    return Session(config, load_policy(config.policy, config.run, max_context=config.agent.max_context))


def _policy(config: RunConfig, folder: RunFolder, checkpoint: Path | None) -> Policy:
    """The policy as it is now; that of step 0 leaves its marks in the run folder."""
    trains, longest = folder.kind == "train", config.agent.max_context
    learn = config.learn if trains else replace(config.learn, kl=0.0)  # imitation has no reference
    critic = config.critic if trains else None
    saved = checkpoint / POLICY if checkpoint else None
    share = getattr(parse_choice(engine_options(config), config.engine, "engine"), "memory", 0.0)
    plays = Plays(config.rollout.batch, share) if config.engine.kind in ("auto", "fast") else None
    policy = load_policy(config.policy, config.run, learn, critic, longest, saved, plays)
    if not saved:
        folder.write_start(policy)
        if trains:
            folder.write_reference(policy)
    folder.write_tokens(policy.tokenizer)
    if learn.gradient_checkpointing:
        policy.model.compute_twice()
    return policy


def _reference(config: RunConfig, folder: RunFolder, policy: Policy) -> Policy | None:
    if folder.kind != "train" or config.learn.kl == 0:
        return None
    refuse_damaged(folder.reference)
    if config.policy.lora_rank:
        return reference_of(policy, folder.reference)
    reference = load_folder(folder.reference, policy.device, config.run.dtype, config.run.weights)
    reference.module.requires_grad_(False)
    return reference


def prepared(config: RunConfig) -> RunConfig:
    """The settings as a run records them; the machine is set up for them."""
    use_threads(config)
    return settled(config)


def settled(config: RunConfig) -> RunConfig:
    """The settings with the splits to evaluate on written out: all but those of training, if none were named."""
    if config.eval.splits:
        return config
    world = open_world(config.task)
    splits = tuple(world.splits())
    if close := getattr(world, "close", None):
        close()
    chosen = tuple(split for split in splits if split != "train") or splits
    return replace(config, eval=replace(config.eval, splits=chosen))


def use_threads(config: RunConfig) -> None:
    """Torch threads: what was asked for, here or by OMP_NUM_THREADS, else one per core that task workers leave. More
    threads than free cores make everything many times slower."""
    cores = usable_cores()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    known = int(asked) if asked.isdecimal() else 0
    torch.set_num_threads(config.run.threads or known or max(1, min(8, cores) - config.task.workers))
    torch.use_deterministic_algorithms(choose_device(config.run.device).type == "cpu", warn_only=True)


@contextmanager
def lasting_objects() -> Generator[None]:
    """What exists now lives as long as the loop: the garbage collector need not look at it again and again. Torch and
    its neighbours alone are some 300,000 objects."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
