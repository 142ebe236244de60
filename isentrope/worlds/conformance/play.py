"""Plays a sample of games for the conformance checks, and checks views and steps."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from isentrope.worlds.contract import Expert, Instance, Step, Task, View, World

# Actions that no world expects, and every world must survive: a language model will say them all sooner or later.
HOSTILE = (
    # nothing, blanks, control characters, escape sequences
    "", " ", "\n", "\t\r\n", "\x00", "\x7f\x08\x08", "\x1b[2J\x1b]0;x\x07", "look\x00look", "\r\nlook",
    # not an action, too long, too deep
    "no such action", "a" * 10_000, "go to" + " desk 1" * 500, "[" * 2_000, "(" * 500 + ")" * 500, "\n" * 3_000,
    # tags and templates of chat models
    "<|im_end|>", "<|im_start|>system\n", "</action><action>look</action>", "<think>", "[INST]", "</s><s>",
    "{{ 7 * 7 }}", "{% for x in y %}", "${7*7}", "#{7*7}", "<%= 7 %>",
    # format strings, paths, shells, queries, markup, code
    "{0}%s%n{x}", "%99999999d", "{0.__class__}", "../../etc/passwd", "/dev/zero", "C:\\nul", "~root/.ssh",
    "$(reboot)", "`id`", "; rm -rf /tmp/x &", "| cat", "'; DROP TABLE games; --", "\" OR 1=1 --",
    '{"action": "look"}', "[1, 2", "null", "true", "<script>alert(1)</script>", "<!ENTITY x SYSTEM 'file:///'>",
    "__import__('os').system('true')", "search[", "click[]", "search[[x]]", "answer[" + "x" * 200 + "]",
    # numbers
    "0", "-1", "1e999", "NaN", "9" * 400, "0x10", "1_0", "9**9**9",
    # unicode: lone surrogates, direction marks, wide digits, many combining marks, case that changes length
    "\udcff\ud800", "\u202e\u0000\U0001f600", "１２３", "e" + "\u0301" * 200, "ﬁne ẞ İ ŉ", "\ufeff look",
    "\u2028\u2029",
    # patterns that make a careless regular expression slow
    "a" * 200 + "!", "(a+)+$", ".*" * 50, " " * 5_000 + "x",
)  # fmt: skip

TURNS = 30  # of a random play at most: what goes wrong does so early
_TAGS = re.compile(r"</?(?:think|action)>")
_SLACK = 1e-6  # rewards may be sums of fractions


class Broken(Exception):
    """Something that the contract promises does not hold."""


class Skipped(Exception):
    """The world says itself that a check is not for it, and why."""


class Limited(str):
    """What a check says where it holds, but not for all games: a limit is in the way, not a fault."""


@dataclass(frozen=True)
class Sample:
    """The world, and which part of it to look at."""

    world: World
    games: int
    max_turns: int
    seed: int
    moved: Callable[[int, int], None] = field(default=lambda done, total: None)  # games looked at, of so many

    def instances(self) -> Iterator[Instance]:
        total = sum(self.count(split) for split in self.world.splits())
        done = 0
        for split in self.world.splits():
            for index in range(self.count(split)):
                self.moved(done, total)
                yield self.world.instance(split, index)
                done += 1

    def repeatable(self) -> list[Instance]:
        """The instances that come out the same again, as far as the world says; if there is none, why not."""
        instances = list(self.instances())
        reasons = cast("Mapping[str, str]", getattr(self.world, "not_deterministic", {}))  # by kind
        kept = [instance for instance in instances if instance.kind not in reasons]
        if not getattr(self.world, "deterministic", True):
            reasons, kept = {"": "all of it"}, []
        if not kept:
            raise Skipped(f"the world says that it is not deterministic: {'; '.join(sorted(set(reasons.values())))}")
        return kept

    def count(self, split: str) -> int:
        size = self.world.size(split)
        return self.games if size is None else min(self.games, size)


def need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def well_formed_view(view: Any) -> View:
    need(isinstance(view, View), f"expected a View, got a {type(view).__name__}")
    texts = (view.text, view.goal, view.rules)
    need(all(isinstance(text, str) for text in texts), "a view's text, goal and rules must be text")
    need(not _TAGS.search(view.rules), "the rules hold a tag such as <action>: how a response looks is not the task's")
    kind = type(view.admissible).__name__
    need(isinstance(view.admissible, tuple | None), f"admissible is a {kind}, not a tuple or None")
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
    for name, value in step.info.items():
        need(isinstance(cast(object, name), str), f"info has a {type(name).__name__} for a name")
        need(isinstance(cast(object, value), str | float | int), f"info[{name!r}] is a {type(value).__name__}")
        need(isinstance(value, str) or math.isfinite(value), f"info[{name!r}] is {value}")
    return step


def _played(task: Task, view: View, turns: int, choose: Callable[[View], str]) -> Iterator[tuple[str, Step]]:
    """(action, what came back). Rewards are in task units: they add up to 1 at most, and a solved episode has some."""
    total = 0.0
    for _ in range(turns):
        action = choose(view)
        step = well_formed_step(task.step(action), view)
        yield action, step
        total += step.reward
        need(-1 - _SLACK <= total <= 1 + _SLACK, f"the rewards of an episode add up to {total:g}; expected -1 to 1")
        need(not step.success or total > 0, f"a solved episode has the reward {total:g} in all")
        if step.terminated or step.truncated:
            return
        view = step.view


def random_play(task: Task, instance: Instance, sample: Sample) -> Iterator[tuple[str, View | Step]]:
    """(action, what came back), the same choices each time for the same instance."""
    choices = random.Random(f"{sample.seed} {instance.split} {instance.index}")
    view = well_formed_view(task.start(instance))
    yield "", view
    # where no action is listed at the start, the expert knows some that do something
    guide = None if view.admissible else sample.world.expert(sample.seed)
    if guide is not None:
        guide.start(view, instance)
    yield from _played(task, view, min(sample.max_turns, TURNS), lambda view: _choice(view, choices, guide))


def expert_play(task: Task, expert: Expert, instance: Instance, sample: Sample) -> Iterator[tuple[str, Step]]:
    """(action, what came back) of the expert's game."""
    view = task.start(instance)
    expert.start(view, instance)
    return _played(task, view, sample.max_turns, lambda view: expert.act(view).action)


def _choice(view: View, choices: random.Random, guide: Expert | None) -> str:
    stray = choices.choice(view.admissible or HOSTILE)
    if guide is None or choices.random() < 0.3:
        return stray
    try:
        return guide.act(view).action
    except Exception:  # it expects its own moves; strays may lead where it has no answer
        return stray
