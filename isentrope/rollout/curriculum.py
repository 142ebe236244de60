"""Task samplers that choose what is learnt from: by how often tasks are solved, by their kinds, or by a schedule.

    [task.sampler]
    kind = "pass_rate"

They work with any world. What they know of tasks and kinds is in the checkpoint, and random numbers come from the step,
so a run that is resumed plays the same tasks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from isentrope.config.kinds import KindsOptions, PassRateOptions, ScheduleOptions
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.metric import Metric
from isentrope.core.seeding import stream
from isentrope.core.types import FAILURES, Episode, Metrics
from isentrope.rollout.sampler import TaskSampler
from isentrope.worlds.contract import World

LEAST = 0.02  # weight of a task or a kind that is always or never solved: it is looked at now and then
REMEMBERED = 50_000  # tasks whose rates are kept, those that were played last
SCANNED = 2000  # tasks of an endless split that are looked at for one of a kind


def nearness(rate: float, target: float, width: float) -> float:
    """How much a task with this pass rate is worth playing: 1 at the target."""
    return max(LEAST, math.exp(-(((rate - target) / width) ** 2)))


Name = TypeVar("Name", int, str)


def solved_shares(episodes: Iterable[Episode], key: Callable[[Episode], Name]) -> dict[Name, float]:
    """By task or kind, the share of the episodes that solved it; those that broke say nothing."""
    outcomes: dict[Name, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.stop not in FAILURES:
            outcomes[key(episode)].append(episode.success)
    return {name: sum(won) / len(won) for name, won in outcomes.items()}


class PassRate(TaskSampler):
    """Plays tasks again whose pass rate is near a target, and new ones beside them."""

    name = "pass_rate"
    options_class = PassRateOptions
    metrics = (
        Metric("curriculum/new", "Share of the step's tasks that were played for the first time.", "share"),
        Metric("curriculum/rate", "Mean pass rate, before the step, of its tasks that had been played.", "share"),
        Metric("curriculum/known", "Tasks whose pass rate is remembered.", "tasks"),
    )

    def __init__(self, options: Any = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rates: dict[int, float] = {}  # those played last stand last
        self._order: tuple[int, list[int]] = (0, [])

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        draws = stream(self.seed, "curriculum", step, attempt)
        known = list(self.rates)
        wanted = count if not known else min(count, math.ceil(self.options.new * count))
        new = self._new(size, wanted, step, attempt)
        old = self._old(known, count - len(new), draws)
        more = count - len(new) - len(old)
        if more:  # fewer tasks are known than are wanted: new ones, then some twice
            new = self._new(size, len(new) + more, step, attempt)
        short = count - len(new) - len(old)
        again = [int(i) for i in draws.choice(known or new, size=short)] if short else []
        return [*new, *old, *again]

    def _new(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        """The next tasks that were not played, in an order of their own."""
        if size is None:
            first = int(stream(self.seed, "curriculum", "new", step, attempt).integers(2**31))
            return [first + i for i in range(count)]
        if self._order[0] != size:
            self._order = (size, stream(self.seed, "curriculum", "order").permutation(size).tolist())
        found: list[int] = []
        for index in self._order[1]:
            if len(found) == count:
                break
            if index not in self.rates:
                found.append(index)
        return found

    def _old(self, known: list[int], count: int, draws: np.random.Generator) -> list[int]:
        count = min(count, len(known))
        if not count:
            return []
        worth = np.array([nearness(self.rates[i], self.options.target, self.options.width) for i in known])
        return [int(i) for i in draws.choice(known, size=count, replace=False, p=worth / worth.sum())]

    def played(self, step: int, episodes: Sequence[Episode]) -> Metrics:
        tasks = {episode.index for episode in episodes}
        before = [self.rates[index] for index in sorted(tasks) if index in self.rates]
        shares = solved_shares(episodes, lambda episode: episode.index)
        for index in sorted(tasks):
            old = self.rates.pop(index, None)
            share = shares.get(index, 0.0)  # a task that breaks is played as seldom as one that nobody solves
            self.rates[index] = round(share if old is None else old + self.options.newest * (share - old), 6)
        for index in list(self.rates)[: len(self.rates) - REMEMBERED]:
            del self.rates[index]
        metrics = {"curriculum/known": float(len(self.rates))}
        if tasks:
            metrics["curriculum/new"] = 1 - len(before) / len(tasks)
        if before:
            metrics["curriculum/rate"] = sum(before) / len(before)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": list(self.rates), "rates": list(self.rates.values())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rates = {int(i): float(rate) for i, rate in zip(state["tasks"], state["rates"], strict=True)}


class _ByKind(TaskSampler):
    """Knows the kinds of tasks."""

    def __init__(self, options: Any = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self._world: World | None = None
        self._indices: dict[str, list[int]] = {}

    def begin(self, world: World) -> None:
        self._world = world
        self._check(world.kinds)

    def _check(self, kinds: Sequence[str]) -> None:
        """Refuse settings that name kinds which the world does not have."""
        unknown = sorted(self._named() - set(kinds))
        if unknown:
            raise ConfigError(
                f"task.sampler names the kind {unknown[0]!r}, which the world does not have; it has "
                f"{', '.join(kinds)[:300]}"
            )

    def _named(self) -> set[str]:
        return set()

    def _tasks(self, kinds: Sequence[str], size: int | None, draws: np.random.Generator) -> list[int]:
        """A task of each of these kinds, no task twice unless there are too few."""
        assert self._world is not None, "begin comes before the first pick"
        if size is None:
            return [self._found(kind, int(draws.integers(2**31))) for kind in kinds]
        if not self._indices:
            for index in range(size):
                self._indices.setdefault(self._world.instance("train", index).kind, []).append(index)
        picked: dict[str, list[int]] = {}
        for kind in dict.fromkeys(kinds):
            there, count = self._indices.get(kind, []), kinds.count(kind)
            if not there:
                raise TaskError(f"the split train has no task of the kind {kind!r}, which task.sampler asks for")
            picked[kind] = [int(i) for i in draws.choice(there, size=count, replace=count > len(there))]
        return [picked[kind].pop() for kind in kinds]

    def _found(self, kind: str, first: int) -> int:
        assert self._world is not None
        for index in range(first, first + SCANNED):
            if self._world.instance("train", index).kind == kind:
                return index
        raise TaskError(f"none of {SCANNED} tasks in a row is of the kind {kind!r}, which task.sampler asks for")


class Kinds(_ByKind):
    """Plays kinds of task by given weights, or those most often whose pass rate is near a target."""

    name = "kinds"
    options_class = KindsOptions
    metrics = (
        Metric("curriculum/share/{kind}", "Share of the step's tasks that were of the kind {kind}.", "share"),
        Metric("curriculum/rate/{kind}", "Pass rate of the kind {kind}, an average that forgets.", "share"),
    )

    def __init__(self, options: Any = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rates: dict[str, float] = {}

    def _named(self) -> set[str]:
        weights: dict[str, Any] = self.options.weights
        for kind, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e9:
                raise ConfigError(f"task.sampler.weights.{kind} = {weight!r:.60}: expected a number from 0")
        if weights and not any(weights.values()):
            raise ConfigError("task.sampler.weights are all 0: expected at least one larger number")
        return set(weights)

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        assert self._world is not None, "begin comes before the first pick"
        draws = stream(self.seed, "curriculum", step, attempt)
        options = self.options
        kinds = list(options.weights or self._world.kinds)
        worth = [
            options.weights[kind] if options.weights else nearness(self._rate(kind), options.target, options.width)
            for kind in kinds
        ]
        share = np.array(worth, dtype=np.float64)
        drawn = [kinds[int(i)] for i in draws.choice(len(kinds), size=count, p=share / share.sum())]
        return self._tasks(drawn, size, draws)

    def _rate(self, kind: str) -> float:
        return self.rates.get(kind, float(self.options.target))  # a kind that was not played is worth trying

    def played(self, step: int, episodes: Sequence[Episode]) -> Metrics:
        for kind, share in sorted(solved_shares(episodes, lambda episode: episode.kind).items()):
            old = self.rates.get(kind, share)
            self.rates[kind] = round(old + self.options.newest * (share - old), 6)
        kinds = {episode.group: episode.kind for episode in episodes}
        counts = {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())}
        shares = {f"curriculum/share/{_key(kind)}": count / len(kinds) for kind, count in sorted(counts.items())}
        return shares | {f"curriculum/rate/{_key(kind)}": rate for kind, rate in sorted(self.rates.items())}

    def state_dict(self) -> dict[str, Any]:
        return {"rates": self.rates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rates = {str(kind): float(rate) for kind, rate in state["rates"].items()}


class Schedule(_ByKind):
    """Opens the split step by step: kinds from certain steps on, or a share of it that grows from its beginning."""

    name = "schedule"
    options_class = ScheduleOptions
    metrics = (Metric("curriculum/open", "Share of the training split that tasks are drawn from.", "share"),)

    def __init__(self, options: Any = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self._stages = _stages_of(self.options.stages)
        self._size: int | None = None

    def _named(self) -> set[str]:
        return {kind for _, kinds in self._stages for kind in kinds}

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> list[int]:
        draws, self._size = stream(self.seed, "curriculum", step, attempt), size
        if self._stages:
            kinds = self._open_kinds(step)
            return self._tasks([kinds[i % len(kinds)] for i in range(count)], size, draws)
        if size is None:
            raise TaskError(
                "task.sampler = schedule without stages opens a share of the training split, and this world has one "
                "without an end; name the kinds to be opened in task.sampler.stages"
            )
        opened = max(1, round(self._share(step) * size))
        return [int(i) for i in draws.choice(opened, size=count, replace=count > opened)]

    def _open_kinds(self, step: int) -> tuple[str, ...]:
        return next(kinds for first, kinds in reversed(self._stages) if first <= max(step, self._stages[0][0]))

    def _share(self, step: int) -> float:
        done = min(1.0, max(0, step - 1) / max(1, self.options.steps - 1))
        return float(self.options.first + (1 - self.options.first) * done)

    def played(self, step: int, episodes: Sequence[Episode]) -> Metrics:
        if not self._stages:
            return {"curriculum/open": self._share(step)}
        if not self._indices:
            return {}
        total = sum(map(len, self._indices.values()))
        return {"curriculum/open": sum(len(self._indices.get(kind, [])) for kind in self._open_kinds(step)) / total}


def _stages_of(table: dict[str, Any]) -> list[tuple[int, tuple[str, ...]]]:
    stages: list[tuple[int, tuple[str, ...]]] = []
    for step, kinds in table.items():
        given: Any = [kinds] if isinstance(kinds, str) else kinds
        listed = tuple(cast("list[Any]", given)) if isinstance(given, list | tuple) else ()
        if (
            not step.isascii()
            or not step.isdecimal()
            or not listed
            or not all(isinstance(kind, str) for kind in listed)
        ):
            raise ConfigError(
                f"task.sampler.stages.{step} = {kinds!r:.60}: expected a step and the kinds that are open from it on, "
                'such as 50 = ["easy", "hard"]'
            )
        stages.append((int(step), listed))
    return sorted(stages)


def _key(kind: str) -> str:
    """A kind as one part of a metric's name."""
    return "_".join(kind.replace("/", " ").split()) or "unnamed"
