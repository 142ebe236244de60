"""Supervised learning, in a run folder of its own: imitate a scripted expert (sft), or one's own successes (rft)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.config.validate import trackers_of
from isentrope.console import Watch
from isentrope.core.errors import TaskError
from isentrope.core.seeding import stream
from isentrope.core.types import Episode
from isentrope.engines.registry import make_engine
from isentrope.evaluate import evaluate, evaluation_plan
from isentrope.instruments.log import MetricsLog
from isentrope.methods.options import with_options
from isentrope.methods.registry import make_methods
from isentrope.models.load import LARGE, load_checkpoint, load_policy
from isentrope.models.policy import Policy
from isentrope.notices import check_prompt, check_tasks, finished, say_end, say_start, summary
from isentrope.rollout.arena import Arena
from isentrope.rollout.demonstrate import demonstrations
from isentrope.runs.checkpoints import Keeper, latest_checkpoint, load_state
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.layout import POLICY, eval_path, own_path
from isentrope.runs.writer import RunFolder
from isentrope.setup import settled, use_threads
from isentrope.train.imitate import imitate
from isentrope.train.learner import make_optimiser
from isentrope.train.optimise import Optimiser, learning_rate

HIGH_RATE = 2e-4
"""A learning rate above which large models usually fall apart when all of their weights learn."""


def warm_up(config: RunConfig, out: Path, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Imitate games for `sft.epochs` passes; gives the last evaluation."""
    config = settled(config)
    use_threads(config)
    check_prompt(config)
    make_methods(config)  # a fault in their settings is to be found before anything is written
    kind = "rft" if config.sft.source == "own" else "sft"
    with RunFolder(out, config, resume, kind, complete=with_options) as folder, Watch(quiet) as watch:
        found = latest_checkpoint(folder.checkpoints) if resume else None
        run, learn, longest = config.run, replace(config.learn, kl=0.0), config.agent.max_context  # no reference here
        if found:
            policy = load_checkpoint(found / POLICY, config.policy, run, learn, max_context=longest)
        else:
            policy = load_policy(config.policy, run, learn, max_context=longest)
            folder.write_start(policy)
        folder.write_tokens(policy.dialect)
        if config.learn.gradient_checkpointing:
            policy.model.compute_twice()
        _warn_of_rate(policy, config.sft.lr, watch)
        say_start(watch, config, policy, folder, found)
        optimiser = make_optimiser(policy, config.learn)
        keeper = Keeper(folder.checkpoints, config)
        if found:
            optimiser.load_state_dict(load_state(found)["optimiser"])
            keeper.settle(found)
        with Arena(config, make_engine(config, policy)) as arena:
            if config.sft.source == "own":
                games = _own_games(arena, config, own_path(folder.path), watch)
            else:
                games = _expert_games(arena, policy, config, watch)
            return _imitate_all(config, policy, optimiser, arena, games, folder, keeper, watch)


def _warn_of_rate(policy: Policy, rate: float, watch: Watch) -> None:
    learning = sum(p.numel() for p in policy.module.parameters() if p.requires_grad)
    if learning >= LARGE and rate > HIGH_RATE:
        watch.say(
            f"sft.lr = {rate:g} is high for {learning / 1e6:.0f} million weights that learn; 1e-5 is a usual choice "
            "(the default, 1e-3, is the pocket model's)"
        )


def _expert_games(arena: Arena, policy: Policy, config: RunConfig, watch: Watch) -> list[Episode]:
    settings = config.sft
    orders = settings.orders or (evaluation_plan(config).order,)
    instances = arena.instances("train", settings.games, settings.first_game, "sft.first_game")
    games: list[Episode] = []
    with watch.stage("expert games", len(instances) * len(orders)) as moved:
        for order in orders:
            agent = replace(config.agent, order=order)
            for game in demonstrations(arena.world, policy.dialect, agent, config.task, instances, config.run.seed):
                games.append(game)
                moved(1)
    if not games:
        raise TaskError(
            f"the expert solved none of {len(instances)} games within task.max_turns = {config.task.max_turns} and "
            f"agent.max_context = {config.agent.max_context}; allow more turns, more context or more games (sft.games)"
        )
    return games


def _own_games(arena: Arena, config: RunConfig, path: Path, watch: Watch) -> list[Episode]:
    """The policy's own successes, played once, before the first update: a resumed run reads them."""
    settings = config.sft
    if path.exists():
        return read_episodes(path)
    plan = replace(evaluation_plan(config), temperature=config.rollout.temperature)
    instances = arena.instances("train", settings.games, settings.first_game, "sft.first_game")
    with watch.stage("own games", len(instances) * settings.samples) as moved:
        played = arena.play(instances, settings.samples, plan, "own", moved)
    check_tasks(played)
    won = [episode for episode in played if episode.success]
    watch.say(f"own games: {len(won)} of {len(played)} solved, which are imitated")
    if not won:
        raise TaskError(
            f"the policy solved none of its {len(played)} games, so there is nothing to imitate; play more "
            "(sft.games, sft.samples), or warm it up on expert games first (isentrope sft)"
        )
    write_episodes(path, won)
    return won


def _solved(arena: Arena, config: RunConfig, won: list[Episode]) -> dict[str, float]:
    """Known from the settings and the games kept, so that a run resumed before its first checkpoint knows it too."""
    if config.sft.source != "own":
        return {}
    instances = arena.instances("train", config.sft.games, config.sft.first_game, "sft.first_game")
    return {"rft/solved": len(won) / (len(instances) * config.sft.samples)}


def _imitate_all(
    config: RunConfig,
    policy: Policy,
    optimiser: Optimiser,
    arena: Arena,
    games: list[Episode],
    folder: RunFolder,
    keeper: Keeper,
    watch: Watch,
) -> dict[str, float]:
    per_pass = math.ceil(len(games) / config.sft.batch_games)
    total = max(1, round(config.sft.epochs * per_pass))
    log = MetricsLog(folder.path, trackers_of(config.run.track), watch.say)
    metrics: dict[str, float] = {}
    start = optimiser.updates
    if start >= total:
        return finished(watch, config, folder.path, total)
    log.truncate(start)
    name = "rft" if folder.kind == "rft" else "warm-up"
    watch.begin(name, total, start)
    for update in range(start, total):
        order = stream(config.run.seed, "sft", update // per_pass).permutation(len(games))
        at = (update % per_pass) * config.sft.batch_games
        batch = [games[int(i)] for i in order[at : at + config.sft.batch_games]]
        rate = learning_rate(update, total, config.sft.lr, config.learn.warmup, config.learn.floor)
        loss, norm = imitate(policy, optimiser, batch, rate, config.learn.micro_tokens, config.sft.all_tokens)
        done = update + 1
        seen = {"sft/loss": loss, "sft/epoch": done / per_pass, "grad_norm": norm, "lr": rate}
        log.write(done, seen | (_solved(arena, config, games) if update == 0 else {}), kind="sft")
        every, metrics = config.run.eval_every, {}
        if done == total or (every and done % every == 0):
            arena.engine.refresh()
            stored = str(eval_path(folder.path, done, "{split}")) if done == total else None
            metrics = evaluate(arena, config.eval.quick_games, watch, stored)
            log.write(done, metrics, kind="eval")
            watch.say(f"{name} {done}/{total}: loss {loss:.3f}, {summary(metrics, config.eval.splits)}")
        if done == total or done % config.run.checkpoint_every == 0:
            keeper.save(done, policy, {"optimiser": optimiser.state_dict()}, metrics)
        watch.advance(f"loss {loss:.3f}")
    log.close()
    say_end(watch, folder.path)
    return metrics
