"""Checks that a world keeps the contract. Run over every world of the package, and made for your own:

    from isentrope.worlds.conformance.suite import assert_conforms

    def test_my_world():
        assert_conforms(MyWorld())

or, on the command line, `isentrope check-task my_package.my_module:MyWorld`.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.core.stats import wilson
from isentrope.worlds.conformance import play, repeat
from isentrope.worlds.conformance.play import (
    Broken,
    Limited,
    Sample,
    Skipped,
    expert_play,
    need,
    random_play,
    well_formed_step,
)
from isentrope.worlds.contract import Expert, Instance, Task, View, World
from isentrope.worlds.pool.sanitize import in_words

# each check returns a few words, or raises `Broken` with what does not hold

Remake = tuple[str, Mapping[str, Any]]  # a world's name (or module:Class) and its options
HOSTILE = play.HOSTILE
ROUTE = 8  # moves
EXPERT_SOLVES = 0.9  # of the games, unless the world says less
FARTHER, FARTHEST = (
    10,
    1000,
)  # times the turns allowed, and turns, that an expert is given to show that it only takes long
FAR = 2**31 + 1000  # a run begins its games of an endless split anywhere below 2**31


def check_description(sample: Sample) -> str:
    world = sample.world
    need(isinstance(cast(object, world), World), "the class lacks something that World names")
    need(bool(world.name) and bool(world.splits()), "the world needs a name and at least one split")
    for split in world.splits():
        size = world.size(split)
        need(size is None or size > 0, f"size({split!r}) is {size}")
        if size is not None:
            _expect_task_error(lambda split=split, size=size: world.instance(split, size), f"index {size} of {split}")
    _expect_task_error(lambda: world.instance("no such split", 0), "an unknown split")
    return f"{world.name}: splits {', '.join(world.splits())}"


def check_instances(sample: Sample) -> str:
    total = 0
    for instance in sample.instances():
        again = sample.world.instance(instance.split, instance.index)
        need(again == instance, f"asked twice for the same instance: {instance} and {again}")
        need(pickle.loads(pickle.dumps(instance)) == instance, f"{instance} does not survive pickling")
        need(instance.kind in sample.world.kinds, f"kind {instance.kind!r} is not among {sample.world.kinds}")
        total += 1
    if "train" in sample.world.splits() and sample.world.size("train") is None:
        with closing(sample.world.open()) as task:
            task.start(sample.world.instance("train", FAR))
    return f"{total} instances"


def check_hostile_actions(sample: Sample) -> str:
    instance = next(sample.instances())
    task = sample.world.open()
    view = task.start(instance)
    for action in HOSTILE:
        try:
            step = task.step(action)
        except Exception as error:
            raise Broken(f"the action {action!r:.60} raised {type(error).__name__}: {error!s:.200}") from error
        well_formed_step(step, view)
        if step.terminated or step.truncated:
            view = task.start(instance)
    task.close()
    return f"{len(HOSTILE)} strings, none raised"


def check_order_of_calls(sample: Sample) -> str:
    task = sample.world.open()
    _expect_task_error(lambda: task.step("look"), "a step before start")
    task.start(next(sample.instances()))
    task.close()
    _expect_task_error(lambda: task.step("look"), "a step after close")
    task.close()
    return "step before start and after close refused; closing twice is fine"


def check_admissible(sample: Sample) -> str:
    """What a view lists is accepted there: on the first view, and along a game of the expert's or a random one."""
    tried, listed = 0, False
    for split in sample.world.splits():
        instance = sample.world.instance(split, 0)
        with closing(sample.world.open()) as task:
            if task.start(instance).admissible is not None:  # None: actions are free text; (): none at this moment
                listed = True
                tried += _try_listed(task, instance, _route(sample, instance), sample.seed)
    nothing = "no view lists any" if listed else "the world lists no admissible actions"
    return f"{tried} accepted" if tried else nothing


def _try_listed(task: Task, instance: Instance, route: list[str], seed: int) -> int:
    """How many were tried: some at the start, and a few at three places of the route, each reached anew."""
    choices = random.Random(seed)
    later = choices.sample(range(1, len(route)), min(3, max(0, len(route) - 1)))
    tried = 0
    for turn, times in ((0, 6), *((turn, 2) for turn in later)):
        for _ in range(times):
            view = _view_after(task, instance, route[:turn])
            if view is None or not view.admissible:
                break
            action = choices.choice(view.admissible)
            where = f"{instance}, after {turn} moves" if turn else str(instance)
            need(task.step(action).valid, f"{where}: the admissible action {action!r} was not accepted")
            tried += 1
    return tried


def _view_after(task: Task, instance: Instance, actions: list[str]) -> View | None:
    """What is seen after these actions; None if the game has ended by then."""
    view = task.start(instance)
    for action in actions:
        step = task.step(action)
        if step.terminated or step.truncated:
            return None
        view = step.view
    return view


def _route(sample: Sample, instance: Instance) -> list[str]:
    """The first moves of a game, as far as it gets: experts and plays have checks of their own."""
    expert = sample.world.expert(sample.seed)
    played: list[str] = []
    with closing(sample.world.open()) as task, suppress(Exception):
        game = random_play(task, instance, sample) if expert is None else expert_play(task, expert, instance, sample)
        for action, _ in islice(game, ROUTE):
            played += [action] if action else []
    return played


def check_expert(sample: Sample) -> str:
    """It solves nine games of ten, or as many as the world says. A game that only takes too many turns is no fault."""
    expert = sample.world.expert(sample.seed)
    if expert is None:
        return "the world has no expert"
    tried = list(sample.instances())
    failed: list[str] = []
    long: list[tuple[int, str]] = []  # turns that a solution takes, and the game
    for instance in tried:
        turns = _turns_to_solve(sample, expert, instance)
        if turns is None:
            failed.append(f"{instance.split} {instance.index}")
        elif turns > sample.max_turns:
            long.append((turns, f"{instance.split} {instance.index}"))
    fair = len(tried) - len(long)
    solved = fair - len(failed)
    score = f"solved {solved} of {len(tried)}"
    share = float(getattr(sample.world, "expert_solves", EXPERT_SOLVES))
    weak = solved < share * fair if share >= EXPERT_SOLVES else wilson(solved, max(1, fair)).high < share
    need(not weak, f"the expert {score}; not {', '.join(failed[:10])}")
    if failed and share < EXPERT_SOLVES:
        score += f"; the world says that its expert, which plays by rules, solves some {100 * share:.0f} %"
    if not long:
        return score
    turns, game = max(long)
    return Limited(
        f"{score}; the solutions of {len(long)} take more than the {sample.max_turns} turns allowed, or than the world "
        f"allows, so those games cannot be won here (the longest: {turns} turns, {game})"
    )


def _turns_to_solve(sample: Sample, expert: Expert, instance: Instance) -> int | None:
    """How many turns the expert takes, beyond what is allowed if it has to; None: it does not solve the game."""
    patient = replace(sample, max_turns=max(sample.max_turns, min(FARTHER * sample.max_turns, FARTHEST)))
    with closing(sample.world.open()) as task:
        steps = [step for _, step in expert_play(task, expert, instance, patient)]
    if steps and steps[-1].success:
        return len(steps)
    known = getattr(expert, "turns", None)  # of a solution that the world itself cuts off
    cut = not steps or not steps[-1].terminated
    return known if isinstance(known, int) and known > len(steps) and cut else None


def check_splits(sample: Sample) -> str:
    """No instance of one split may be one of another in disguise: told by how it starts, or by the world's own
    `fingerprint(instance)` where different instances can start alike."""
    fingerprint: Callable[[Instance], object] | None = getattr(sample.world, "fingerprint", None)
    seen: dict[object, Instance] = {}
    with closing(sample.world.open()) as task:
        for instance in sample.instances():
            mark = fingerprint(instance) if fingerprint else task.start(instance)
            other = seen.setdefault(mark, instance)
            need(other.split == instance.split, f"{other} and {instance} are the same game")
    return f"{len(seen)} different starts"


CHECKS: dict[str, Callable[[Sample], str]] = {
    "describes itself": check_description,
    "instances are stable": check_instances,
    "same actions, same results": repeat.check_play,
    "order of games": repeat.check_order,
    "global random numbers": repeat.check_global_random,
    "start anew": repeat.check_start_anew,
    "hostile actions": check_hostile_actions,
    "order of calls": check_order_of_calls,
    "admissible actions": check_admissible,
    "splits are disjoint": check_splits,
    "expert": check_expert,
}


def _expect_task_error(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except TaskError:
        return
    except Exception as error:
        raise Broken(f"{what} raised {type(error).__name__}, not TaskError") from error
    raise Broken(f"{what} was not refused with a TaskError")


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    ok: bool
    detail: str = ""
    skipped: bool = False  # the world says itself that this is not for it
    limited: bool = False  # it holds, but not all that is there can be played to its end


def iter_findings(
    world: World,
    games: int = 5,
    max_turns: int = 100,
    seed: int = 0,
    remake: Remake | None = None,
    watch: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Iterator[Finding]:
    """Every check, on the first `games` instances of each split; episodes are cut off after `max_turns`.

    `remake`: the world's name (or module:Class) and options; with them it is also played in another process.
    `watch` is told the name of the check, how many games it has looked at, and of how many.
    """
    checks = dict(CHECKS)
    if remake is not None:
        checks["in another process"] = lambda sample: repeat.check_other_process(sample, *remake)
    for name, check in checks.items():
        watch(name, 0, 0)
        sample = Sample(world, games, max_turns, seed, lambda done, total, name=name: watch(name, done, total))
        try:
            detail = check(sample)
        except Skipped as reason:
            yield Finding(name, True, str(reason), skipped=True)
        except Broken as problem:
            yield Finding(name, False, str(problem))
        except (Exception, SystemExit) as error:  # a broken world may raise anything: that is a finding too
            yield Finding(name, False, f"raised {in_words(error)}")
        else:
            yield Finding(name, True, detail, limited=isinstance(detail, Limited))


def assert_conforms(
    world: World, games: int = 5, max_turns: int = 100, seed: int = 0, remake: Remake | None = None
) -> None:
    """Raise a TaskError that lists whatever does not hold."""
    broken = [finding for finding in iter_findings(world, games, max_turns, seed, remake) if not finding.ok]
    if broken:
        lines = "\n".join(f"- {finding.name}: {finding.detail}" for finding in broken)
        raise TaskError(f"the world {getattr(world, 'name', world)!r} does not keep the contract\n{lines}")
