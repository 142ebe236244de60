"""Plays games of ScienceWorld through its Java side, in as many Java processes as are needed."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.worlds.scienceworld.jvm import Jvm

ASIDE = ("help", "objects", "task")  # questions that the interface answers itself; the game is not stepped
UNKNOWN = "Unknown action.  Type 'help' for a list of actions, and 'objects' for a list of possible object referents. "
MAX_ACTION = 500  # characters; the longest real action has about 120, and longer ones only keep the parser busy


@dataclass(frozen=True)
class Reading:
    """What the simulator says after an action."""

    text: str
    score: int  # in percent, below 0 once the task has failed
    completed: bool
    moves: int  # time steps so far; waiting counts as ten


class Simulator:
    """Lives in a java process and plays one game at a time. `load` before anything else."""

    def __init__(self, jvm: Jvm, slow: bool = False) -> None:
        self.jvm = jvm
        self.count = 0  # these two belong to the process and are put in place by it
        self.simplified = ""
        self._last = Reading("", 0, False, 0)
        with jvm.turn(None):
            self._server = jvm.interface(slow)
            self._dice = jvm.dice()
            self._hint_dice = jvm.dice()  # its own, so that what is shown changes nothing in the game

    def load(self, task: str, variation: int, simplifications: str) -> tuple[str, Reading]:
        """The task in words, and the first look around (which takes no time)."""
        with self.jvm.turn(self, self._dice):
            self._load(task, variation, simplifications, gold=False)
            return str(self._server.getTaskDescription()), self._step("look around")

    def step(self, action: str) -> Reading:
        """As the package's own `env.step`, less what nobody asked for: above all a list of every possible action."""
        with self.jvm.turn(self, self._dice):
            return self._step(action[:MAX_ACTION].encode("utf-8", "replace").decode("utf-8"))

    def objects(self) -> list[str]:
        """Names of what is in sight; what is carried is not among them."""
        with self._aside():
            text = self._server.getPossibleObjectReferentLUTJSON()
        return sorted(set(cast("dict[str, str]", json.loads(text)).values()))

    def valid_actions(self) -> list[str]:
        """Every action that can be taken now: hundreds, and slow.

        The simulator's list also has actions on things in closed containers, which it then does not understand.
        """
        with self._aside():
            listed = json.loads(self._server.getValidActionObjectCombinationsJSON())["validActions"]
            within = self._within_reach()
        # a number answers the question which thing was meant; teleporting is done from afar
        return [
            one["action"]
            for one in listed
            if one["action"].isdecimal() or one["action"].startswith("teleport") or within.issuperset(one["obj_ids"])
        ]

    @contextlib.contextmanager
    def _aside(self) -> Generator[None]:
        """For what is shown and changes nothing. Where things are alike, names are drawn: each time in the same way."""
        with self.jvm.turn(self, self._hint_dice):
            self._hint_dice.setSeed(0)
            yield

    def _within_reach(self) -> set[int]:
        """The numbers of all objects that an action may name: those in the room, and the agent's own."""
        parser, agent = self._game.inputParser(), self._game.agent()
        found: set[int] = set()
        for root in (agent.getContainer().get(), agent):
            numbers = parser.getAllUniqueReferentsLUT(root, True, False).keySet().mkString(" ")
            found.update(map(int, numbers.split()))
        return found

    def action_forms(self) -> list[str]:
        with self._aside():
            return self._lines(self._server.getPossibleActions())

    def gold_path(self, task: str, variation: int, simplifications: str) -> list[str]:
        """A solution, which the simulator works out in some seconds."""
        with self.jvm.turn(self, self._dice):
            self._load(task, variation, simplifications, gold=True)
            return self._lines(self._server.getGoldActionSequence())

    def split(self, name: str) -> list[int]:
        """The variations of the loaded task for "Train", "Dev" or "Test"."""
        with self.jvm.turn(self, self._dice):
            return [int(number) for number in getattr(self._server, f"getVariations{name}")()]

    def _load(self, task: str, variation: int, simplifications: str, gold: bool) -> None:
        trouble = self._server.load(task, variation, simplifications, gold)
        self.simplified = str(self._server.getSimplificationsUsed())
        self.jvm.simplified = self.simplified  # loading a game sets them
        if trouble:
            raise TaskError(f"ScienceWorld could not load {task}, variation {variation}: {trouble}")
        self._game = self._server.agentInterface().get()

    def _step(self, action: str) -> Reading:
        if action.strip().lower() in ASIDE:
            return replace(self._last, text=str(self._server.step(action)))
        # the game itself, not the interface around it: that one also looks around, and keeps and prints a history
        text, score, completed = self._game.step(action).toString()[1:-1].rsplit(",", 2)  # a triple, in one call
        percent = round(100 * float(score))
        if percent < 0 and self._game.isInErrorState():
            raise TaskError(f"the simulator broke down: {str(self._game.getErrorStateMessage())[:300]}")
        self._last = Reading(text or UNKNOWN, percent, completed == "true", int(self._game.getCurIterations()))
        return self._last

    def _lines(self, java_list: Any) -> list[str]:
        """A Java list in one call: reading it item by item takes a call for each."""
        joined = str(self.jvm.join("\n", java_list))
        return joined.split("\n") if joined else []


ROOM = 16  # megabytes that a game is given; it takes about 11


class Machines:
    """Starts processes when they are needed: the first `jvms` as games are opened, more only when those are full.

    A process that died or hung is forgotten, and the next game that finds no room starts a new one.
    """

    def __init__(self, jvms: int, memory: int, seconds: float, repeatable: bool) -> None:
        self._jvms = jvms
        self._start = partial(Jvm, memory, seconds, repeatable)
        self._room = max(1, memory // ROOM)
        self._lock = threading.Lock()
        self._starting: list[_Start] = []
        self._free: list[Simulator] = []
        self._closed = False

    def take(self, slow: bool = False) -> Simulator:
        """A simulator that nobody else uses, until it is given back."""
        with self._lock:
            if self._closed:
                raise TaskError("the world of ScienceWorld is closed")
            while self._free and not slow:
                simulator = self._free.pop()
                if not simulator.jvm.fault:
                    return simulator
            self._starting = [start for start in self._starting if not start.done() or start.is_up()]
            start = min(self._starting, key=lambda start: start.games, default=None)
            if start is None or len(self._starting) < self._jvms or start.games >= self._room:
                start = _Start()
                self._starting.append(start)
            start.games += 1
            first = start.games == 1
        if first:
            try:
                start.set_result(self._start())
            except BaseException as error:
                start.set_exception(error)
        return Simulator(start.result(), slow)

    def give(self, simulator: Simulator) -> None:
        with self._lock:
            if not simulator.jvm.fault:
                self._free.append(simulator)

    def processes(self) -> list[Jvm]:
        """Those that are up."""
        with self._lock:
            return [start.result() for start in self._starting if start.is_up()]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            starting, self._starting, self._free = self._starting, [], []
        for start in starting:
            if start.exception() is None:  # waits until it is up
                start.result().close()


class _Start(Future[Jvm]):
    """A process that is up or on its way."""

    games = 0  # simulators that were promised a place in it

    def is_up(self) -> bool:
        return self.done() and self.exception() is None and not self.result().fault
