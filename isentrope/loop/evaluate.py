"""Evaluates a policy: success overall and by type of task, on each split, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from isentrope.analysis.measure import Evaluation, SplitResult, measure
from isentrope.analysis.record import Record, digest, played_settings
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, RunError, TaskError
from isentrope.core.types import FAULTS, RolloutPlan
from isentrope.engines.registry import capabilities
from isentrope.loop.checks import check_installed, check_prompt, check_sampled, check_tasks
from isentrope.loop.progress import Progress
from isentrope.loop.session import model_session, prepared
from isentrope.methods.options import with_options
from isentrope.methods.registry import make_methods
from isentrope.metrics.entropy import key_part
from isentrope.metrics.episodes import eval_metrics
from isentrope.models.auto import follow_model, plain_defaults
from isentrope.rollout.collector import Collector
from isentrope.runs.checkpoints import best_checkpoint, best_step, kept_checkpoints
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import CHECKPOINTS, POLICY, REFERENCE, checkpoint_step, eval_name


def evaluate(
    collector: Collector, games: int, progress: Progress, episodes_at: Callable[[str], Path] | None = None
) -> dict[str, float]:
    """Metrics on every split of the config. `episodes_at` says where the episodes of a split are stored."""
    metrics: dict[str, float] = {}
    plan = evaluation_plan(collector.config)
    for split in collector.config.eval.splits:
        with progress.stage(f"evaluate {split}", games) as moved:
            episodes = collector.evaluate(split, games, plan, moved)
        metrics |= eval_metrics(split, episodes)
        if episodes_at is not None:
            write_episodes(episodes_at(split), episodes)
        check_tasks(episodes, "measure", FAULTS)
        check_sampled(episodes, "measure")
    return metrics


def evaluation_plan(config: RunConfig) -> RolloutPlan:
    """How evaluation games are played: as the recipe says, unless a method of the run has its own form of response."""
    plan = RolloutPlan(config.agent.order, config.eval.temperature)
    for method in make_methods(config):
        plan = method.evaluation(plan)
    return plan


@dataclass(frozen=True)
class Exam:
    """What `isentrope eval` plays, beyond the settings of the recipe."""

    all_games: bool = False  # of each split, instead of eval.games
    episodes: int = 1  # of each game
    order: str | None = None  # form of a response, whatever the recipe and its methods say
    checkpoint: str | int | None = None  # of a run: best, last, all or a step; None: best
    episodes_at: Path | None = None  # folder for the episodes


def evaluate_model(
    config: RunConfig, model: str | None, exam: Exam, name: str | None = None, quiet: bool = False
) -> Record:
    """Evaluate a model, checkpoints of a run, or (engine.kind = openai) a model behind a server."""
    elsewhere = not capabilities(config).loads_policy
    if not elsewhere:
        config = replace(config, policy=replace(config.policy, model=model or config.policy.model))
    check_installed(config, trains=False)
    if not elsewhere:
        config = follow_model(config)
        check_prompt(config)
    config = prepared(
        with_options(plain_defaults(config))
    )  # all written out, as runs record them: so that results can be compared
    plan = evaluation_plan(config)
    if exam.order is not None:
        plan = replace(plan, order=exam.order)
    if elsewhere and model is not None:
        config = replace(config, engine=replace(config.engine, options={**config.engine.options, "model": model}))
    evaluations: list[Evaluation] = []
    notes: list[Mapping[str, float]] = []
    served = ""
    with Progress(quiet) as progress:
        for step, folder in _candidates(config, model, exam.checkpoint):
            with model_session(config, folder).collector() as collector:
                if elsewhere:
                    served = str(getattr(collector.engine, "model", ""))
                    # an address with a secret was refused before
                    progress.say(f"asking {served} at {config.engine.options.get('url')}")
                try:
                    evaluations.append(_evaluation(collector, plan, exam, step, progress))
                except BaseException:  # an interrupt too: what was sampled until then was paid for
                    if spent := collector.engine.notes():
                        told = ", ".join(f"{key.replace('_', ' ')}: {value:,.6g}" for key, value in spent.items())
                        progress.say(f"broken off; until then {told}")
                    raise
                notes.append(collector.engine.notes())
    told = model or served or config.engine.options.get("model") or config.policy.model
    settings = played_settings(config, plan, exam.episodes)
    return Record(
        name=name or Path(told).name or told,
        model=told,
        seed=config.run.seed,
        config_digest=digest(config, settings, exam.all_games),
        settings=settings | _choice(config, model, exam.checkpoint),
        evaluations=tuple(evaluations),
        notes=tuple(notes),
    )


def _candidates(config: RunConfig, model: str | None, which: str | int | None) -> list[tuple[int | None, str | None]]:
    """Steps and folders of what is to be evaluated. The step of a model that is no checkpoint is None, and the folder
    of a model behind a server."""
    if not capabilities(config).loads_policy:
        if which is not None:
            raise ConfigError(
                "--step and --checkpoint are for run folders, not for engine.kind = "
                f"{config.engine.kind}; leave them out"
            )
        return [(None, None)]
    named = model or config.policy.model
    folder = Path(named)
    if not (folder / CHECKPOINTS).is_dir():
        if which is not None:
            raise RunError(f"{named} is not a run folder, so it has no checkpoints; leave --step and --checkpoint out")
        return [(None, named)]
    return [(step, str(path)) for step, path in checkpoints_of(folder, "best" if which is None else which)]


def checkpoints_of(run: Path, which: str | int) -> list[tuple[int, Path]]:
    """The models of a run's checkpoints by step: "best", "last", "all" or one step; step 0 is where it began."""
    folder = run / CHECKPOINTS
    found = {step: path / POLICY for step, path in kept_checkpoints(folder).items()}
    if (run / REFERENCE).is_dir() and which == 0:
        found[0] = run / REFERENCE
    if not found:
        raise RunError(f"the run {run} has no checkpoint yet; wait for the first (run.checkpoint_every)")
    if which == "all":
        return list(found.items())
    best = best_step(folder) if which == "best" else None
    step = which if isinstance(which, int) else max(found) if best is None else best
    if step == 0 and step not in found:
        raise RunError(f"the run {run} has no copy of the policy it began with; evaluate its policy.model instead")
    if step not in found:
        kept = ", ".join(map(str, found))
        raise RunError(f"the run {run} has no checkpoint of step {step}; it kept {kept} (run.keep_last)")
    return [(step, found[step])]


def _evaluation(
    collector: Collector, plan: RolloutPlan, exam: Exam, step: int | None, progress: Progress
) -> Evaluation:
    task, results = collector.config.task, dict[str, SplitResult]()
    for split in dict.fromkeys(collector.config.eval.splits):
        games = _games(collector, split, exam.all_games)
        title = f"evaluate {split}" if step is None else f"step {step}, {split}"
        with progress.stage(title, games * exam.episodes) as moved:
            episodes = collector.evaluate(split, games, plan, moved, exam.episodes)
        tokens_known = collector.engine.tokenizer.ids_per_token == 1
        results[split] = measure(episodes, task.success_reward, task.invalid_reward, tokens_known)
        if exam.episodes_at is not None:
            write_episodes(exam.episodes_at / eval_name(step, key_part(split)), episodes)
        check_tasks(episodes, "measure", FAULTS)
        check_sampled(episodes, "measure")
    return Evaluation(step, results)


def _games(collector: Collector, split: str, all_games: bool) -> int:
    settings = collector.config.eval
    if not all_games:
        return settings.games
    # the collector refuses an unknown split
    size = collector.world.size(split) if split in collector.world.splits() else 1
    if size is None:
        raise TaskError(
            f"{collector.world.name} makes up the games of {split!r} without end, so there is no 'all' of them; "
            "give a number with --games"
        )
    return max(1, size - settings.first_game)


def _choice(config: RunConfig, model: str | None, which: str | int | None) -> dict[str, str]:
    """How the checkpoint of a run was chosen: the best of several figures is too high, so tables say it."""
    folder = Path(model or config.policy.model) / CHECKPOINTS
    if not capabilities(config).loads_policy or not folder.is_dir():
        return {}
    best = best_checkpoint(folder)
    wanted = which in (None, "best") or (best is not None and which == checkpoint_step(best[0]))
    if wanted:
        return {"eval.checkpoint": "best" if best is not None else "last"}
    return {"eval.checkpoint": f"step {which}" if isinstance(which, int) else str(which)}
