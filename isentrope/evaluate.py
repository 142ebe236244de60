"""How well a policy plays: success overall and by type of task, on each split, with intervals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isentrope.config.schema import EngineSettings, RunConfig
from isentrope.config.text import as_table, config_to_toml
from isentrope.console import Watch
from isentrope.errors import ConfigError, RunError, TaskError
from isentrope.instruments.metrics import eval_metrics, key_part
from isentrope.methods.options import with_options
from isentrope.methods.registry import make_methods
from isentrope.policy.engines import make_engine
from isentrope.policy.load import load_policy
from isentrope.results.measure import Evaluation, SplitResult, measure
from isentrope.results.record import Record
from isentrope.results.rows import SAME_TEST
from isentrope.rollout.arena import Arena
from isentrope.rollout.store import write_episodes
from isentrope.setup import use_threads
from isentrope.train.checkpoint import best_checkpoint, latest_checkpoint
from isentrope.types import RolloutPlan


def evaluate(arena: Arena, games: int, watch: Watch, episodes_at: str | None = None) -> dict[str, float]:
    """Metrics on every split of the config. `episodes_at`, with {split} in it, is where the episodes are stored."""
    metrics: dict[str, float] = {}
    plan = evaluation_plan(arena.config)
    for split in arena.config.eval.splits:
        with watch.stage(f"evaluate {split}", games) as moved:
            episodes = arena.evaluate(split, games, plan, moved)
        metrics |= eval_metrics(split, episodes)
        if episodes_at:
            write_episodes(Path(episodes_at.format(split=split)), episodes)
    return metrics


def evaluation_plan(config: RunConfig) -> RolloutPlan:
    """How evaluation games are played: as the recipe says, unless a method of the run has its own form of response."""
    plan = RolloutPlan(config.agent.order, config.eval.temperature)
    for method in make_methods(config):
        plan = method.evaluation(plan)
    return plan


def summary(metrics: dict[str, float], splits: Sequence[str]) -> str:
    """One line, e.g. "seen 71.1 % [67, 75], unseen 70.3 % [66, 74]"."""
    return ", ".join(
        f"{split} {100 * metrics[f'eval/{split}/success']:.1f} % "
        f"[{100 * metrics[f'eval/{split}/low']:.0f}, {100 * metrics[f'eval/{split}/high']:.0f}]"
        for split in splits
        if f"eval/{split}/success" in metrics
    )


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
    use_threads(config)
    config = with_options(config)  # all written out, as runs record them: so that results can be compared
    plan = evaluation_plan(config)
    if exam.order is not None:
        plan = replace(plan, order=exam.order)
    if config.engine.kind == "openai" and model is not None:
        config = replace(config, engine=replace(config.engine, model=model))
    evaluations: list[Evaluation] = []
    notes: list[Mapping[str, float]] = []
    served = ""
    with Watch(quiet) as watch:
        for step, folder in _candidates(config, model, exam.checkpoint):
            with _arena(config, folder) as arena:
                served = str(getattr(arena.engine, "model", "")) if config.engine.kind == "openai" else ""
                evaluations.append(_evaluation(arena, plan, exam, step, watch))
                notes.append(arena.engine.notes())
    told = model or served or config.engine.model or config.policy.model
    return Record(
        name=name or Path(told).name or told,
        model=told,
        seed=config.run.seed,
        config_digest=_digest(config),
        settings=_settings(config, plan, exam),
        evaluations=tuple(evaluations),
        notes=tuple(notes),
    )


def _candidates(config: RunConfig, model: str | None, which: str | int | None) -> list[tuple[int | None, str | None]]:
    """Steps and folders of what is to be evaluated. The step of a model that is no checkpoint is None, and the folder
    of a model behind a server."""
    if config.engine.kind == "openai":
        if which is not None:
            raise ConfigError(
                "--step and --checkpoint are for run folders, not for engine.kind = openai; leave them out"
            )
        return [(None, None)]
    named = model or config.policy.model
    folder = Path(named)
    if not (folder / "checkpoints").is_dir():
        if which is not None:
            raise RunError(f"{named} is not a run folder, so it has no checkpoints; leave --step and --checkpoint out")
        return [(None, named)]
    return [(step, str(path)) for step, path in checkpoints_of(folder, "best" if which is None else which)]


def checkpoints_of(run: Path, which: str | int) -> list[tuple[int, Path]]:
    """The models of a run's checkpoints by step: "best", "last", "all" or one step; step 0 is where it began."""
    folder = run / "checkpoints"
    found = {int(path.name.removeprefix("step-")): path / "policy" for path in sorted(folder.glob("step-*"))}
    if (run / "reference").is_dir() and which == 0:
        found[0] = run / "reference"
    if not found:
        raise RunError(f"the run {run} has no checkpoint yet; wait for the first (run.checkpoint_every)")
    if which == "all":
        return list(found.items())
    best, last = best_checkpoint(folder), latest_checkpoint(folder)
    chosen = best[0] if which == "best" and best else last.name if last and not isinstance(which, int) else None
    step = which if isinstance(which, int) else int(str(chosen).removeprefix("step-"))
    if step == 0 and step not in found:
        raise RunError(f"the run {run} has no copy of the policy it began with; evaluate its policy.model instead")
    if step not in found:
        kept = ", ".join(map(str, found))
        raise RunError(f"the run {run} has no checkpoint of step {step}; it kept {kept} (run.keep_last)")
    return [(step, found[step])]


def _arena(config: RunConfig, folder: str | None) -> Arena:
    if folder is None:
        return Arena(config, make_engine(config, None))
    # adapters of the folder are taken into the weights: nothing learns here, so no new ones are wanted
    config = replace(config, policy=replace(config.policy, model=folder, lora_rank=0))
    return Arena(config, make_engine(config, load_policy(config.policy, config.run)))


def _evaluation(arena: Arena, plan: RolloutPlan, exam: Exam, step: int | None, watch: Watch) -> Evaluation:
    task, found = arena.config.task, dict[str, SplitResult]()
    for split in dict.fromkeys(arena.config.eval.splits):
        games = _games(arena, split, exam.all_games)
        title = f"evaluate {split}" if step is None else f"step {step}, {split}"
        with watch.stage(title, games * exam.episodes) as moved:
            episodes = arena.evaluate(split, games, plan, moved, exam.episodes)
        tokens_known = arena.engine.dialect.ids_per_token == 1
        found[split] = measure(episodes, task.success_reward, task.invalid_reward, tokens_known)
        if exam.episodes_at is not None:
            when = "" if step is None else f"{step:06d}-"
            write_episodes(exam.episodes_at / f"eval-{when}{key_part(split)}.parquet", episodes)
    return Evaluation(step, found)


def _games(arena: Arena, split: str, all_games: bool) -> int:
    settings = arena.config.eval
    if not all_games:
        return settings.games
    size = arena.world.size(split) if split in arena.world.splits() else 1  # the arena refuses an unknown split
    if size is None:
        raise TaskError(
            f"{arena.world.name} makes up the games of {split!r} without end, so there is no 'all' of them; "
            "give a number with --games"
        )
    return max(1, size - settings.first_game)


def _digest(config: RunConfig) -> str:
    """Of the settings that decide what is measured: not of where it runs."""
    engine = EngineSettings(kind=config.engine.kind, model=config.engine.model)
    run, task = replace(config.run, device="auto", threads=0), replace(config.task, workers=0)
    text = config_to_toml(replace(config, engine=engine, run=run, task=task))
    return hashlib.sha256(text.encode()).hexdigest()


def _settings(config: RunConfig, plan: RolloutPlan, exam: Exam) -> dict[str, Any]:
    played = {"agent.order": plan.order, "eval.temperature": plan.temperature, "eval.episodes": exam.episodes}
    told = {key: value for key, value in _leaves(config) if key in SAME_TEST}
    told |= {"engine.kind": config.engine.kind, "methods": list(config.methods), **played}
    plain: dict[str, Any] = json.loads(json.dumps(told, default=str, sort_keys=True))
    return plain


def _leaves(config: RunConfig) -> Iterator[tuple[str, Any]]:
    for section, table in as_table(config).items():
        if isinstance(table, dict) and section != "method":
            yield from ((f"{section}.{key}", value) for key, value in table.items())  # type: ignore[union-attr]
