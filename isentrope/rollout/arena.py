"""A world, its tasks and a policy that plays them: what training, warm-up and evaluation have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from isentrope.config.schema import RunConfig
from isentrope.errors import TaskError
from isentrope.policy.engine import TorchEngine
from isentrope.policy.policy import Policy
from isentrope.rollout.runner import Runner, Seat
from isentrope.seeding import stream
from isentrope.tasks.contract import Instance, World
from isentrope.tasks.pool import open_tasks
from isentrope.tasks.registry import make_world
from isentrope.types import Episode, RolloutPlan

Progress = Callable[[int], None]


class Arena:
    def __init__(self, config: RunConfig, policy: Policy) -> None:
        self.config = config
        task = config.task
        self.world: World = make_world(task.world, task.options)
        self.tasks = open_tasks(task.world, task.options, config.rollout.batch, task.workers, task.step_seconds)
        self.runner = Runner(TorchEngine(policy), self.tasks, config.agent, task, config.rollout.batch)

    def train(self, step: int, plan: RolloutPlan, progress: Progress = lambda finished: None) -> list[Episode]:
        """The episodes of a training step: groups on instances that are new at every step."""
        rollout, seed = self.config.rollout, self.config.run.seed
        instances = pick_instances(self.world, "train", rollout.groups, seed, step)
        seats = [Seat(instance, g, m) for g, instance in enumerate(instances) for m in range(rollout.group_size)]
        return self.runner.play(seats, plan, seed, f"train/{step}", progress)

    def evaluate(self, split: str, games: int, progress: Progress = lambda finished: None) -> list[Episode]:
        """One episode on each of `games` instances of a split from `eval.first_game` on: always the same ones."""
        known = self.world.splits()
        if split not in known:
            raise TaskError(f"{self.world.name} has no split {split!r}; it has {', '.join(known)}")
        size = self.world.size(split)
        first = self.config.eval.first_game
        count = games if size is None else min(games, size - first)
        if count <= 0:
            raise TaskError(f"eval.first_game = {first}: {self.world.name} has only {size} games in {split!r}")
        seats = [Seat(self.world.instance(split, first + i), i, 0) for i in range(count)]
        plan = RolloutPlan(self.config.agent.order, self.config.eval.temperature)
        return self.runner.play(seats, plan, self.config.run.seed, f"eval/{split}", progress)

    def close(self) -> None:
        self.tasks.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pick_instances(world: World, split: str, count: int, seed: int, step: int) -> Sequence[Instance]:
    """The instances of one step. Consecutive ones, so that kinds stay balanced where a world deals them in turn;
    a split of limited size is gone through in a new order each time."""
    size = world.size(split)
    if size is None:
        first = int(stream(seed, "instances", step).integers(2**31))
        return [world.instance(split, first + i) for i in range(count)]
    picked: list[Instance] = []
    for position in range(step * count, (step + 1) * count):
        order = stream(seed, "instances", "pass", position // size).permutation(size)
        picked.append(world.instance(split, int(np.asarray(order)[position % size])))
    return picked
