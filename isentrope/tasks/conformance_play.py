"""What the conformance checks play with: the sample of games, hostile actions, and what views and steps must be."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from isentrope.tasks.contract import Instance, Step, Task, View, World

HOSTILE = (
    "", " ", "\n", "\x00", "\x1b[2J\x1b]0;x\x07", "no such action", "a" * 10_000, "go to" + " desk 1" * 500,
    "<|im_end|>", "</action><action>look</action>", "[INST]", "{0}%s%n{x}", "../../etc/passwd", "$(reboot)",
    "'; DROP TABLE games; --", "\udcff\ud800", "\u202e\u0000\U0001f600", "１２３", "__import__('os').system('true')",
)  # fmt: skip


class Broken(Exception):
    """Something that the contract promises does not hold."""


@dataclass(frozen=True)
class Sample:
    """The world, and which part of it to look at."""

    world: World
    games: int
    max_turns: int
    seed: int

    def instances(self) -> Iterator[Instance]:
        for split in self.world.splits():
            for index in range(self.count(split)):
                yield self.world.instance(split, index)

    def count(self, split: str) -> int:
        size = self.world.size(split)
        return self.games if size is None else min(self.games, size)


def need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def well_formed_view(view: Any) -> View:
    need(isinstance(view, View), f"expected a View, got a {type(view).__name__}")
    need(
        all(isinstance(part, str) for part in (view.text, view.goal, view.rules)),
        "a view's text, goal and rules must be text",
    )
    need(
        isinstance(view.admissible, tuple | None),
        f"admissible is a {type(view.admissible).__name__}, not a tuple or None",
    )
    actions = cast("tuple[Any, ...]", view.admissible or ())
    need(all(isinstance(action, str) and action for action in actions), "an admissible action is not text or empty")
    need(len(set(actions)) == len(actions), "an admissible action is listed twice")
    return view


def well_formed_step(step: Any, before: View) -> Step:
    need(isinstance(step, Step), f"expected a Step, got a {type(step).__name__}")
    well_formed_view(step.view)
    need(step.view.goal == before.goal, f"the goal changed from {before.goal!r:.80} to {step.view.goal!r:.80}")
    need(step.view.rules == before.rules, f"the rules changed from {before.rules!r:.80} to {step.view.rules!r:.80}")
    need(math.isfinite(step.reward), f"the reward is {step.reward}")
    need(not (step.terminated and step.truncated), "a step is both terminated and truncated")
    need(not step.success or step.terminated, "a step is a success but not terminated")
    flags = (step.terminated, step.truncated, step.success, step.valid)
    need(all(isinstance(flag, bool) for flag in flags), "terminated, truncated, success and valid must be bool")
    return step


def random_play(task: Task, instance: Instance, sample: Sample) -> Iterator[tuple[str, View | Step]]:
    """(action, what came back), the same choices each time for the same instance."""
    choices = random.Random(f"{sample.seed} {instance.split} {instance.index}")
    view = well_formed_view(task.start(instance))
    yield "", view
    for _ in range(min(sample.max_turns, 30)):
        action = choices.choice(view.admissible or HOSTILE)
        step = well_formed_step(task.step(action), view)
        yield action, step
        view = step.view
        if step.terminated or step.truncated:
            return
