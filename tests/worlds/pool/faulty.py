"""Household games of which some break on purpose: for tests of the worker pool, and for bench/faults.py.

Game n breaks if `fault_of(n)` names a fault; it breaks at the same turn however often it is played.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from isentrope.config.schema import setting
from isentrope.core.seeding import stream
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.household.world import HouseholdOptions, HouseholdTask, HouseholdWorld
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.guarded import Failure

NAME = "tests.worlds.pool.faulty:FaultyHousehold"
# fault -> where it has to be found: the kind of the failure, or what was mended in an episode that goes on
FAULTS = {
    "raise": "task_error",
    "hang": "time_limit",
    "kill": "worker_died",
    "nan": "garbage",
    "bytes": "garbage",
    "surrogates": "encoding",
    "huge": "text_cut",
}
TURNS = 12


@dataclass(frozen=True)
class FaultyOptions:
    share: float = setting(0.05, "share of the games that break", low=0, high=1)
    rooms: str = setting("small", "as in the household world")
    hang: float = setting(1000.0, "seconds", above=0)


def fault_of(index: int, share: float) -> str | None:
    """The fault of game `index`, or None."""
    draw = stream(0, "fault", index).random(2)
    names = list(FAULTS)
    return names[int(draw[1] * len(names))] if draw[0] < share else None


class FaultyHousehold(HouseholdWorld):
    name = "faulty"

    def __init__(self, options: FaultyOptions | None = None) -> None:
        self.faulty = options or FaultyOptions()
        super().__init__(HouseholdOptions(rooms=self.faulty.rooms))

    def open(self) -> FaultyTask:
        return FaultyTask(self)


class FaultyTask(HouseholdTask):
    def __init__(self, world: FaultyHousehold) -> None:
        super().__init__(world)
        self._options = world.faulty
        self._fault: str | None = None
        self._turns_left = 0

    def start(self, instance: Instance) -> View:
        self._fault = fault_of(instance.index, self._options.share)
        self._turns_left = 1 + instance.index % 5
        return super().start(instance)

    def step(self, action: str) -> Step:
        step = super().step(action)
        self._turns_left -= 1
        if self._fault is None or self._turns_left != 0:
            return step
        return self._broken(step, self._fault)

    def _broken(self, step: Step, fault: str) -> Step:
        if fault == "raise":
            raise RuntimeError("injected")
        if fault == "hang":
            time.sleep(self._options.hang)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        texts = {"surrogates": "a\ud800b", "huge": "x" * 10_000_000, "bytes": b"\xff\xfe"}
        if fault in texts:
            return replace(step, view=replace(step.view, text=texts[fault]))  # type: ignore[arg-type]
        return replace(step, reward=float("nan"))


@dataclass
class Played:
    """How one game went."""

    index: int
    ending: str = ""  # "won", "turns", or the kind of the failure
    detail: str = ""
    texts: list[str] = field(default_factory=list)
    mended: set[str] = field(default_factory=set)


def play(pool: TaskPool, world: FaultyHousehold, indices: Iterable[int], slots: int) -> dict[int, Played]:
    """All games, as many at once as there are slots, by a script that looks at one thing after another."""
    todo, games, seats = list(indices)[::-1], dict[int, Played](), dict[int, tuple[Played, View]]()
    while todo or seats:
        free = [slot for slot in range(slots) if slot not in seats]
        begin = {slot: world.instance("train", todo.pop()) for slot in free if todo}
        for slot, view in pool.start(begin).items():
            game = games[begin[slot].index] = Played(begin[slot].index)
            if isinstance(view, Failure):
                game.ending, game.detail = view.kind, view.detail
            else:
                seats[slot] = (game, view)
        actions = {slot: _choose(game, view) for slot, (game, view) in seats.items()}
        for slot, step in pool.step(actions).items():
            game = seats[slot][0]
            if isinstance(step, Failure):
                game.ending, game.detail = step.kind, step.detail
            else:
                game.texts.append(step.view.text)
                game.mended |= set(step.view.mended)
                seats[slot] = (game, step.view)
                game.ending = "won" if step.terminated else "turns" if len(game.texts) >= TURNS else ""
            if game.ending:
                del seats[slot]
    return games


def _choose(game: Played, view: View) -> str:
    """Always the same in the same place, so that two runs can be compared."""
    actions = view.admissible or ("look",)
    return actions[(game.index * 7 + len(game.texts) * 3) % len(actions)]


@dataclass(frozen=True)
class Account:
    """A run with faults, compared with one without."""

    injected: Counter[str]
    found: Counter[str]  # faults that stand in the record where they belong
    reached: Counter[str]  # faults of games that came so far as to meet theirs
    harmed: list[int]  # games without a fault that went differently
    wrong: list[tuple[int, str, str, str]]  # game, fault, how it ended, detail


def account(broken: dict[int, Played], clean: dict[int, Played], share: float) -> Account:
    injected, found, reached = Counter[str](), Counter[str](), Counter[str]()
    harmed: list[int] = []
    wrong: list[tuple[int, str, str, str]] = []
    for index, game in broken.items():
        fault, unbroken = fault_of(index, share), clean[index]
        if fault is None:
            if (game.ending, game.texts) != (unbroken.ending, unbroken.texts) or game.mended:
                harmed.append(index)
            continue
        injected[fault] += 1
        if len(unbroken.texts) < 1 + index % 5:
            continue  # it was won before
        reached[fault] += 1
        expected = FAULTS[fault]
        if game.ending == expected or expected in game.mended:
            found[fault] += 1
        else:
            wrong.append((index, fault, game.ending, game.detail))
    return Account(injected, found, reached, harmed, wrong)
