"""Supervised learning in a run folder of its own: imitates an expert (sft) or the policy's own successes (rft)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.core.command import command
from isentrope.core.errors import TaskError
from isentrope.core.seeding import stream
from isentrope.core.signals import Interrupted
from isentrope.core.types import Episode
from isentrope.learning.optimiser import Optimiser, learning_rate, make_optimiser
from isentrope.learning.sft_step import imitate
from isentrope.loop.checks import check_first_prompts, check_sampled, check_tasks
from isentrope.loop.evaluate import evaluate, evaluation_plan
from isentrope.loop.messages import finished, say_end, summary
from isentrope.loop.session import RunSession, open_run
from isentrope.loop.stop import lost_games, say_stopped
from isentrope.rollout.collector import Collector
from isentrope.rollout.demonstrations import demonstrations, outgrown
from isentrope.runs.checkpoints import load_state, restoring
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.runs.layout import eval_path, own_path
from isentrope.worlds.contract import Instance

_DUE = "evaluation_due"  # in the state of an update whose evaluation is still to come


def warm_up(
    config: RunConfig, out: Path, resume: bool = False, quiet: bool = False, from_step: int | None = None
) -> dict[str, float]:
    """Imitate games for `sft.epochs` passes; gives the last evaluation."""
    kind = "rft" if config.sft.source == "own" else "sft"
    with open_run(config, out, resume, quiet, kind, from_step) as run:
        optimiser, due = make_optimiser(run.policy, run.config.learn), False
        if run.checkpoint:
            state = load_state(run.checkpoint)
            with restoring(run.checkpoint):
                optimiser.load_state_dict(state["optimiser"])
            due = bool(state.get(_DUE))
            run.retention.settle(run.checkpoint)
        with run.collector() as collector:
            games = _own_games(run, collector) if kind == "rft" else _expert_games(run, collector)
            return _Imitation(run, optimiser, collector, games).run_from(optimiser.updates, due)


def _expert_games(run: RunSession, collector: Collector) -> list[Episode]:
    config, settings = run.config, run.config.sft
    orders = settings.orders or (evaluation_plan(config).order,)
    instances = _instances(collector)
    games, left_out = list[Episode](), list[Episode]()
    with run.progress.stage("expert games", len(instances) * len(orders)) as moved:
        for order in orders:
            agent, tokenizer = replace(config.agent, order=order), run.policy.tokenizer
            for game in demonstrations(
                collector.world, tokenizer, agent, config.task, instances, config.run.seed, left_out
            ):
                games.append(game)
                moved(1)
    outgrew = sum(outgrown(game, config.agent) for game in left_out)
    lost = f"{outgrew} outgrow agent.max_context = {config.agent.max_context}, {len(left_out) - outgrew} are not solved"
    lost += f" in task.max_turns = {config.task.max_turns}"
    if not games:
        raise TaskError(
            f"none of the expert's {len(left_out)} games can be imitated: {lost}; allow more turns, more context "
            "(which holds agent.max_response too) or more games (sft.games)"
        )
    if left_out:
        run.progress.say(f"expert games: {len(games)} of {len(games) + len(left_out)} are imitated; {lost}")
    check_first_prompts(games, config.agent)
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
    check_sampled(played, "imitate")
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


class _Imitation:
    def __init__(self, run: RunSession, optimiser: Optimiser, collector: Collector, games: list[Episode]) -> None:
        self.run, self.optimiser, self.collector, self.games = run, optimiser, collector, games
        self.config, self.log, self.progress = run.config, run.log, run.progress
        self.per_pass = math.ceil(len(games) / run.config.sft.batch_games)
        self.total = max(1, round(run.config.sft.epochs * self.per_pass))
        self.name = "rft" if run.folder.kind == "rft" else "warm-up"
        self.saved = self.done = optimiser.updates

    def run_from(self, start: int, due: bool) -> dict[str, float]:
        """From `start` updates to the last; `due`: the evaluation after that one was given up when the run was asked to
        end."""
        run, path, metrics = self.run, self.run.folder.path, dict[str, float]()
        if start >= self.total and not due:
            return finished(self.progress, self.config, path, self.total)
        self.log.truncate(start)
        if due:
            metrics = self.evaluate(start)
            self.save(start, metrics)
        self.progress.begin(self.name, self.total, start)
        try:
            with run.stop.waits():
                for update in range(start, self.total):
                    metrics = self.update(update)
        except Interrupted as asked:
            self.log.close()
            say_stopped(self.progress, path, asked.number, self.saved, self.done)
            raise
        self.log.close()
        say_end(self.progress, path)
        return metrics

    def update(self, update: int) -> dict[str, float]:
        config, stop, done, metrics = self.config, self.run.stop, update + 1, dict[str, float]()
        loss = self.learn(update)
        self.done = done
        every = config.run.eval_every
        if done == self.total or (every and done % every == 0):
            with stop.or_else(lambda: self.save(done, {}, due=True)):
                metrics = self.evaluate(done, loss)
        if done == self.total or done % config.run.checkpoint_every == 0:
            self.save(done, metrics)
        self.progress.advance(f"loss {loss:.3f}")
        if stop.asked is not None and done < self.total:
            if self.saved < done:
                self.save(done, metrics)
            stop.end()
        return metrics

    def learn(self, update: int) -> float:
        config, done = self.config, update + 1
        order = stream(config.run.seed, "sft", update // self.per_pass).permutation(len(self.games))
        at = (update % self.per_pass) * config.sft.batch_games
        batch = [self.games[int(i)] for i in order[at : at + config.sft.batch_games]]
        rate = learning_rate(update, self.total, config.sft.lr, config.learn.warmup, config.learn.floor)
        micro, every_token = config.learn.micro_tokens, config.sft.all_tokens
        loss, norm = imitate(self.run.policy, self.optimiser, batch, rate, micro, every_token)
        seen = {"sft/loss": loss, "sft/epoch": done / self.per_pass, "grad_norm": norm, "lr": rate}
        if update == 0 and config.sft.source == "own":
            # from the settings and the games kept, so that a run resumed before its first checkpoint knows it too
            seen["rft/solved"] = len(self.games) / (len(_instances(self.collector)) * config.sft.samples)
        self.log.write(done, seen, kind="sft")
        return loss

    def evaluate(self, done: int, loss: float | None = None) -> dict[str, float]:
        self.collector.refresh()
        stored = partial(eval_path, self.run.folder.path, done) if done == self.total else None
        metrics = evaluate(self.collector, self.config.eval.quick_games, self.progress, stored)
        if lost_games(metrics):
            self.run.stop.check(math.inf)
        self.log.write(done, metrics, kind="eval")
        told = "" if loss is None else f"loss {loss:.3f}, "
        self.progress.say(f"{self.name} {done}/{self.total}: {told}{summary(metrics, self.config.eval.splits)}")
        return metrics

    def save(self, done: int, metrics: Mapping[str, float], due: bool = False) -> None:
        state = {"optimiser": self.optimiser.state_dict()} | ({_DUE: True} if due else {})
        with self.run.stop.saves():
            self.run.retention.save(done, self.run.policy, state, metrics)
        self.saved = done
