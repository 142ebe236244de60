"""How well a policy plays: success overall and by type of task, on each split, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.console import Watch
from isentrope.instruments.metrics import eval_metrics
from isentrope.methods.registry import make_methods
from isentrope.policy.engines import make_engine
from isentrope.policy.load import load_policy
from isentrope.rollout.arena import Arena
from isentrope.rollout.store import write_episodes
from isentrope.setup import use_threads
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


def evaluate_folder(
    config: RunConfig, path: Path, splits: Sequence[str] | None = None, games: int | None = None
) -> dict[str, float]:
    """Evaluate the model in a folder, or the best checkpoint of a run."""
    config = replace(
        config,
        policy=replace(config.policy, model=str(path)),
        eval=replace(config.eval, splits=tuple(splits or config.eval.splits), games=games or config.eval.games),
    )
    use_threads(config)
    policy = load_policy(config.policy, config.run)
    with Arena(config, make_engine(config, policy)) as arena, Watch() as watch:
        return evaluate(arena, config.eval.games, watch)


def summary(metrics: dict[str, float], splits: Sequence[str]) -> str:
    """One line, e.g. "seen 71.1 % [67, 75], unseen 70.3 % [66, 74]"."""
    return ", ".join(
        f"{split} {100 * metrics[f'eval/{split}/success']:.1f} % "
        f"[{100 * metrics[f'eval/{split}/low']:.0f}, {100 * metrics[f'eval/{split}/high']:.0f}]"
        for split in splits
        if f"eval/{split}/success" in metrics
    )
