"""A world, its tasks and a policy that plays them: what training, warm-up and evaluation have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from isentrope.config.schema import RunConfig
from isentrope.core.engine import Engine
from isentrope.core.errors import TaskError
from isentrope.core.seeding import stream
from isentrope.core.types import Episode, RolloutPlan
from isentrope.rollout.runner import Runner, Seat
from isentrope.worlds.contract import Instance, World
from isentrope.worlds.pool.open import open_tasks, open_world

Progress = Callable[[int], None]


class Arena:
    def __init__(self, config: RunConfig, engine: Engine) -> None:
        self.config, self.engine = config, engine
        task = config.task
        self.world: World = open_world(task)
        self.tasks = open_tasks(
            task.world, task.options, config.rollout.batch, task.workers, task.step_seconds, task.where, self.world
        )
        self.runner = Runner(engine, self.tasks, config.agent, task, config.rollout.batch)

    def train(
        self,
        step: int,
        plan: RolloutPlan,
        progress: Progress = lambda finished: None,
        attempt: int = 0,
        groups: int = 0,
    ) -> list[Episode]:
        """The episodes of a training step: groups on instances that are new at every step, and at every attempt."""
        if attempt == 0:
            self.notes()  # an evaluation before this step is not part of it
        rollout, seed = self.config.rollout, self.config.run.seed
        instances = pick_instances(self.world, "train", groups or rollout.groups, seed, step, attempt)
        name = f"train/{step}" if attempt == 0 else f"train/{step}/{attempt}"
        first = attempt * rollout.groups  # so that no two groups of a step have the same number
        return self.play(instances, rollout.group_size, plan, name, progress, first)

    def play(
        self,
        instances: Sequence[Instance],
        samples: int,
        plan: RolloutPlan,
        name: str,
        progress: Progress = lambda finished: None,
        first_group: int = 0,
    ) -> list[Episode]:
        """A group of `samples` episodes on each instance. `name` names the random numbers."""
        seats = [Seat(instance, first_group + g, m) for g, instance in enumerate(instances) for m in range(samples)]
        return self.runner.play(seats, plan, self.config.run.seed, name, progress)

    def evaluate(
        self,
        split: str,
        games: int,
        plan: RolloutPlan,
        progress: Progress = lambda finished: None,
        samples: int = 1,
    ) -> list[Episode]:
        """`samples` episodes on each of `games` instances of a split from `eval.first_game` on: always the same."""
        known = self.world.splits()
        if split not in known:
            raise TaskError(f"{self.world.name} has no split {split!r}; it has {', '.join(known)}")
        instances = self.instances(split, games, self.config.eval.first_game, "eval.first_game")
        return self.play(instances, samples, plan, f"eval/{split}", progress)

    def instances(self, split: str, count: int, first: int, setting: str) -> list[Instance]:
        """`count` instances of a split from `first` on, or as many as there are. An error names `setting`."""
        size = self.world.size(split)
        there = count if size is None else min(count, size - first)
        if there <= 0:
            raise TaskError(f"{setting} = {first}: {self.world.name} has only {size} games in {split!r}")
        return [self.world.instance(split, first + i) for i in range(there)]

    def notes(self) -> dict[str, float]:
        """What the engine and the tasks have to tell since this was asked last, under the names of metrics."""
        engine = {f"engine/{name}": value for name, value in self.engine.notes().items()}
        return engine | {f"tasks/{name}": value for name, value in self.tasks.notes().items()}

    def close(self) -> None:
        self.tasks.close()
        self.engine.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pick_instances(world: World, split: str, count: int, seed: int, step: int, attempt: int = 0) -> Sequence[Instance]:
    """The instances of one step. Consecutive ones, so that kinds stay balanced where a world deals them in turn;
    a split of limited size is gone through in a new order each time. Further attempts draw at random."""
    size = world.size(split)
    if size is None:
        names = (step,) if attempt == 0 else (step, attempt)
        first = int(stream(seed, "instances", *names).integers(2**31))
        return [world.instance(split, first + i) for i in range(count)]
    if attempt:
        drawn = stream(seed, "instances", step, attempt).integers(size, size=count)
        return [world.instance(split, int(i)) for i in drawn]
    picked: list[Instance] = []
    for position in range(step * count, (step + 1) * count):
        order = stream(seed, "instances", "pass", position // size).permutation(size)
        picked.append(world.instance(split, int(np.asarray(order)[position % size])))
    return picked
