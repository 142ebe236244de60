"""How quickly this machine does the parts of a step, for `isentrope plan`: a few small steps, played and learnt from.

Each call of the engine is one observation: passes, tokens drawn, tokens read, tokens seen in the cache, seconds. The
rates are the least-squares fit to them, none below zero. Seconds are those of the process itself if it has one thread,
so that other programs disturb less; else those of the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.cluster.plan.costs import Costs, Model
from isentrope.cluster.plan.lengths import Lengths, played
from isentrope.cluster.plan.rates import Rates
from isentrope.config.schema import RunConfig
from isentrope.core.command import page
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import ConfigError
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.registry import make_engine
from isentrope.engines.torch import TorchEngine
from isentrope.learning.learner import Learner
from isentrope.loop.session import use_threads
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy, snapshot
from isentrope.models.sources.catalogue import Facts
from isentrope.rollout.collector import Collector
from isentrope.runs.atomic import write_atomically

NUMBER = 4  # bytes: a CPU computes in float32
SIZES = ((1, 4), (2, 4), (2, 8), (3, 8))
"""Groups and episodes of a group in the steps that are measured; the first is played twice, to warm up."""


@dataclass(frozen=True)
class Step:
    """Seconds of a step's parts and its sizes."""

    lengths: Lengths
    rollout: float
    score: float
    update: float

    def data(self) -> dict[str, Any]:
        sizes = {"read": self.lengths.read.tolist(), "new": self.lengths.new.tolist()}
        spent = {"rollout": self.rollout, "score": self.score, "update": self.update}
        return sizes | {"group_size": self.lengths.group_size, "window": self.lengths.window} | spent


@dataclass(frozen=True)
class Call:
    """What the engine was asked at once, and how long it took."""

    passes: int
    responses: int
    drawn: int  # tokens behind the first of each response
    read: int
    seen: float  # pairs of a token that was read and one that it sees
    held: float  # tokens in the cache, summed over those that were drawn
    seconds: float


class Watched:
    """An engine whose calls are observed."""

    def __init__(self, engine: TorchEngine, clock: Callable[[], float]) -> None:
        self._engine, self._clock, self.tokenizer = engine, clock, engine.tokenizer
        self._held: dict[int, int] = {}
        self.seen: list[Call] = []
        self.seconds = 0.0

    def open(self, slots: Sequence[int]) -> None:
        self._held = {}
        self._engine.open(slots)

    def keep(self, slots: Sequence[int]) -> None:
        self._engine.keep(slots)

    def refresh(self) -> None:
        self._engine.refresh()

    def notes(self) -> dict[str, float]:
        return self._engine.notes()

    def close(self) -> None:
        self._engine.close()

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        begin = self._clock()
        found = self._engine.sample(requests)
        spent = self._clock() - begin
        self.seconds += spent
        new, read, seen, held, known = [len(one.ids) for one in found], 0, 0.0, 0.0, set[tuple[int, ...]]()
        for request, count in zip(requests, new, strict=True):
            before, whole = self._held.get(request.slot, 0), len(request.prompt)
            if before or tuple(request.prompt) not in known:  # those that begin alike are read once
                read += whole - before
                seen += (whole - before) * (whole + before) / 2
            if not before:
                known.add(tuple(request.prompt))
            held += (whole + count / 2) * (count - 1)
            self._held[request.slot] = whole + count - 1
        self.seen.append(Call(max(new), len(new), sum(new) - len(new), read, seen, held, spent))
        return found


@dataclass(frozen=True)
class Measured:
    rates: Rates
    steps: list[Step]


def measure(config: RunConfig, facts: Facts, sizes: Sequence[tuple[int, int]] = SIZES) -> Measured:
    """Play and learn from a few small steps of this run's tasks with its model."""
    config = replace(config, cluster=replace(config.cluster, kind="local"))
    use_threads(config)
    policy = load_policy(config.policy, config.run)
    engine = make_engine(config, policy)
    if not isinstance(engine, TorchEngine):
        engine.close()
        raise ConfigError(
            "--measure takes the rates of the torch engine on a CPU; those of a card are its own (--card), which are "
            f"measured or scaled: {page('plan')}"
        )
    own = torch.get_num_threads() == 1
    bench = _Steps(config, policy, engine, time.process_time if own else time.perf_counter)
    try:
        found = [bench.step(number, *size) for number, size in enumerate((sizes[0], *sizes))][1:]
    finally:
        bench.collector.close()
    where = f"measured here, {'processor time of one thread' if own else f'{torch.get_num_threads()} threads'}"
    return Measured(fitted(Model.of(facts, config.policy.lora_rank), bench, found, where), found)


class _Steps:
    def __init__(self, config: RunConfig, policy: Policy, engine: TorchEngine, clock: Callable[[], float]) -> None:
        self.config, self.clock, self.watched = config, clock, Watched(engine, clock)
        self.learner = Learner(policy, snapshot(policy) if config.learn.kl else None, config)
        self.collector = Collector(config, self.watched)
        self.turns, self.beside = 0, 0.0  # seconds of a rollout that are not the engine's

    def step(self, number: int, groups: int, group_size: int) -> Step:
        rollout = replace(self.config.rollout, groups=groups, group_size=group_size)
        self.collector.config = replace(self.config, rollout=rollout)
        first = len(self.watched.seen)
        before, begin = self.watched.seconds, self.clock()
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        episodes: list[Episode] = self.collector.play_groups(number, plan)
        end = self.clock()
        credited = self.learner.credit(number, episodes)
        scored = self.clock()
        self.learner.update(credited)
        done = self.clock()
        self.collector.refresh()
        if number == 0:
            del self.watched.seen[first:]
        else:
            self.turns += sum(len(episode.turns) for episode in episodes)
            self.beside += end - begin - (self.watched.seconds - before)
        return Step(played(episodes, group_size), end - begin, scored - end, done - scored)


def fitted(model: Model, bench: _Steps, steps: Sequence[Step], where: str) -> Rates:
    """Seconds of a pass, of an operation that reads, of one that draws, and of a byte of the cache."""
    calls = bench.watched.seen
    reading = [2 * model.body * c.read + 4 * model.layers * model.queries * c.seen + 2 * model.head * c.responses
               for c in calls]  # fmt: skip
    drawing = [2 * (model.body + model.head) * c.drawn for c in calls]
    cache = [NUMBER * model.layers * model.kv * c.held for c in calls]
    table = np.array([[c.passes for c in calls], reading, drawing, cache], dtype=np.float64).T
    start, read, draw, byte = nonnegative(table, np.array([c.seconds for c in calls])).tolist()
    unit = Rates(
        where, number=NUMBER, bandwidth=1 / max(byte, 1e-15), products=1.0, drawing=1.0, learning=1.0, layer=0.0,
        smallest=0.0, row=0.0, response=0.0, traffic=0.0, moved=0.0, laid=0.0, piece=0.0, patience=0, late=0, turn=0.0,
        padding="none", together=True,
    )  # fmt: skip
    pieces = [max(1, -(-step.lengths.computed // bench.config.learn.micro_tokens)) for step in steps]
    costs = Costs(model, unit)
    work = [costs.learn(step.lengths.computed, step.lengths.written, step.lengths.seen) for step in steps]
    piece, learn = nonnegative(np.array([pieces, work]).T, np.array([step.update for step in steps])).tolist()
    return replace(
        unit,
        products=1 / max(read, 1e-15),
        drawing=1 / max(draw, 1e-15),
        learning=1 / max(learn, 1e-15),
        layer=start / model.layers,
        piece=piece,
        turn=bench.beside / max(1, bench.turns),
    )


def nonnegative(table: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares of relative errors, with no coefficient below zero: whichever would be is left out."""
    scaled = table / np.maximum(values, 1e-12)[:, None]
    used = [column for column in range(table.shape[1]) if table[:, column].any()]
    found = np.zeros(table.shape[1])
    while used:
        some = np.linalg.lstsq(scaled[:, used], np.ones(len(values)), rcond=None)[0]
        if (some >= 0).all():
            found[used] = some
            break
        used.remove(used[int(some.argmin())])
    return found


def write_measured(path: Path, measured: Measured) -> None:
    data = measured.rates.data() | {"steps": [step.data() for step in measured.steps]}
    write_atomically(path, (json.dumps(data) + "\n").encode())
