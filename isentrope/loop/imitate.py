"""Supervised learning in a run folder of its own: imitates an expert (sft) or the policy's own successes (rft)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.core.command import command
from isentrope.core.errors import TaskError
from isentrope.core.seeding import stream
from isentrope.core.types import Episode
from isentrope.learning.optimiser import Optimiser, learning_rate, make_optimiser
from isentrope.learning.sft_step import imitate
from isentrope.loop.evaluate import evaluate, evaluation_plan
from isentrope.loop.messages import check_tasks, finished, say_end, summary
from isentrope.loop.session import RunSession, open_run
from isentrope.rollout.collector import Collector
from isentrope.rollout.demonstrations import demonstrations
from isentrope.runs.checkpoints import load_state, restoring
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.layout import eval_path, own_path
from isentrope.worlds.contract import Instance


def warm_up(config: RunConfig, out: Path, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Imitate games for `sft.epochs` passes; gives the last evaluation."""
    kind = "rft" if config.sft.source == "own" else "sft"
    with open_run(config, out, resume, quiet, kind) as run:
        optimiser = make_optimiser(run.policy, run.config.learn)
        if run.checkpoint:
            state = load_state(run.checkpoint)
            with restoring(run.checkpoint):
                optimiser.load_state_dict(state["optimiser"])
            run.retention.settle(run.checkpoint)
        with run.collector() as collector:
            games = _own_games(run, collector) if kind == "rft" else _expert_games(run, collector)
            return _imitate_all(run, optimiser, collector, games)


def _expert_games(run: RunSession, collector: Collector) -> list[Episode]:
    config, settings = run.config, run.config.sft
    orders = settings.orders or (evaluation_plan(config).order,)
    instances = _instances(collector)
    games: list[Episode] = []
    with run.progress.stage("expert games", len(instances) * len(orders)) as moved:
        for order in orders:
            agent = replace(config.agent, order=order)
            for game in demonstrations(
                collector.world, run.policy.tokenizer, agent, config.task, instances, config.run.seed
            ):
                games.append(game)
                moved(1)
    if not games:
        raise TaskError(
            f"the expert solved none of {len(instances)} games within task.max_turns = {config.task.max_turns} and "
            f"agent.max_context = {config.agent.max_context}; allow more turns, more context or more games (sft.games)"
        )
    return games


def _own_games(run: RunSession, collector: Collector) -> list[Episode]:
    """The policy's own successes, played once, before the first update: a resumed run reads them."""
    config, settings, path = run.config, run.config.sft, own_path(run.folder.path)
    if path.exists():
        return read_episodes(path, to_learn_from=True)
    plan = replace(evaluation_plan(config), temperature=config.rollout.temperature)
    instances = _instances(collector)
    with run.progress.stage("own games", len(instances) * settings.samples) as moved:
        played = collector.play(instances, settings.samples, plan, "own", moved)
    check_tasks(played)
    won = [episode for episode in played if episode.success]
    run.progress.say(f"own games: {len(won)} of {len(played)} solved, which are imitated")
    if not won:
        raise TaskError(
            f"the policy solved none of its {len(played)} games, so there is nothing to imitate; play more "
            f"(sft.games, sft.samples), or warm it up on expert games first ({command('sft')})"
        )
    write_episodes(path, won)
    return won


def _instances(collector: Collector) -> list[Instance]:
    settings = collector.config.sft
    return collector.instances("train", settings.games, settings.first_game, "sft.first_game")


def _imitate_all(run: RunSession, optimiser: Optimiser, collector: Collector, games: list[Episode]) -> dict[str, float]:
    config, progress, path = run.config, run.progress, run.folder.path
    per_pass = math.ceil(len(games) / config.sft.batch_games)
    total = max(1, round(config.sft.epochs * per_pass))
    log = run.log
    metrics: dict[str, float] = {}
    start = optimiser.updates
    if start >= total:
        return finished(progress, config, path, total)
    log.truncate(start)
    name = "rft" if run.folder.kind == "rft" else "warm-up"
    progress.begin(name, total, start)
    for update in range(start, total):
        order = stream(config.run.seed, "sft", update // per_pass).permutation(len(games))
        at = (update % per_pass) * config.sft.batch_games
        batch = [games[int(i)] for i in order[at : at + config.sft.batch_games]]
        rate = learning_rate(update, total, config.sft.lr, config.learn.warmup, config.learn.floor)
        loss, norm = imitate(run.policy, optimiser, batch, rate, config.learn.micro_tokens, config.sft.all_tokens)
        done = update + 1
        seen = {"sft/loss": loss, "sft/epoch": done / per_pass, "grad_norm": norm, "lr": rate}
        if update == 0 and config.sft.source == "own":
            # from the settings and the games kept, so that a run resumed before its first checkpoint knows it too
            seen["rft/solved"] = len(games) / (len(_instances(collector)) * config.sft.samples)
        log.write(done, seen, kind="sft")
        every, metrics = config.run.eval_every, {}
        if done == total or (every and done % every == 0):
            collector.refresh()
            stored = partial(eval_path, path, done) if done == total else None
            metrics = evaluate(collector, config.eval.quick_games, progress, stored)
            log.write(done, metrics, kind="eval")
            progress.say(f"{name} {done}/{total}: loss {loss:.3f}, {summary(metrics, config.eval.splits)}")
        if done == total or done % config.run.checkpoint_every == 0:
            run.retention.save(done, run.policy, {"optimiser": optimiser.state_dict()}, metrics)
        progress.advance(f"loss {loss:.3f}")
    log.close()
    say_end(progress, path)
    return metrics
