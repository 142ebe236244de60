"""ScienceWorld on its own simulator: thirty science tasks in a house, in thousands of variations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.core.needs import require, require_program
from isentrope.worlds.contract import Expert, Instance, Step, View
from isentrope.worlds.scienceworld.catalogue import SPLITS, checked_tasks, dealt, is_electrical, rules
from isentrope.worlds.scienceworld.expert import GoldExpert, Solver
from isentrope.worlds.scienceworld.simulator import Machines, Reading, Simulator

SIMPLIFICATIONS = ("teleportAction", "openDoors", "openContainers", "noElectricalAction", "selfWateringFlowerPots")
_NOT_UNDERSTOOD = ("No known action matches that input.", "Unknown action. ")


@dataclass(frozen=True)
class ScienceWorldOptions:
    tasks: tuple[str, ...] = setting((), "tasks to play, by name; empty: all thirty")
    variations: int = setting(0, "most variations of a task in each split; 0: all", low=0)
    simplifications: str = setting(
        "easy", f"easy, empty for none, or some of {', '.join(SIMPLIFICATIONS)}, joined by commas"
    )
    hint: str = setting(
        "templates",
        "templates: things in reach are listed in every observation; valid: all possible actions are listed as "
        "admissible, ten times as slow; none: neither. The forms of actions are always in the rules",
        choices=("templates", "valid", "none"),
    )
    reward: str = setting(
        "score",
        "score: what the score rose by; success: 1 for a score of 100 and nothing else",
        choices=("score", "success"),
    )
    moves: int = setting(100, "time steps (waiting takes ten) after which the simulator cuts a game off", low=1)
    repeatable: bool = setting(
        True, "the same actions give the same episode; false: a third more steps a second, and some lists vary"
    )
    jvms: int = setting(
        0, "java processes to spread games over; more are started when full; 0: as cores, at most 2", low=0
    )
    memory: int = setting(400, "megabytes of heap of a java process; a game takes about 11", low=64)
    call_seconds: float = setting(
        20.0, "a java process that takes longer for an answer is killed and replaced", above=0
    )


class ScienceWorld:
    name = "scienceworld"
    prefers = "local"  # the java processes are processes enough

    def __init__(self, options: ScienceWorldOptions | None = None) -> None:
        self.options = options or ScienceWorldOptions()
        self.kinds = checked_tasks(self.options.tasks)
        _check_simplifications(self.options.simplifications, self.kinds)
        require("scienceworld", "science", "ScienceWorld")
        require_program("java", "ScienceWorld")
        jvms = self.options.jvms or min(2, os.cpu_count() or 1)
        self.threads = 2 * jvms  # while one waits for its process, another is served
        self.deterministic = self.replayable = self.options.repeatable
        self.machines = Machines(jvms, self.options.memory, self.options.call_seconds, self.options.repeatable)
        self._games = {split: dealt(self.kinds, split, self.options.variations) for split in SPLITS}

    def splits(self) -> Sequence[str]:
        return SPLITS

    def size(self, split: str) -> int:
        if split not in SPLITS:
            raise TaskError(f"ScienceWorld has no split {split!r}; it has {', '.join(SPLITS)}")
        return len(self._games[split])

    def instance(self, split: str, index: int) -> Instance:
        return Instance(self.name, split, index, self._game(split, index)[0])

    def variation(self, instance: Instance) -> int:
        return self._game(instance.split, instance.index)[1]

    def fingerprint(self, instance: Instance) -> object:
        """Many variations look alike at first."""
        return self._game(instance.split, instance.index)

    def open(self) -> ScienceWorldTask:
        return ScienceWorldTask(self)

    def expert(self, seed: int) -> Expert:
        return GoldExpert(self.solver, self.variation)

    @cached_property
    def solver(self) -> Solver:
        return Solver(self.machines, self.options.simplifications)

    def close(self) -> None:
        self.machines.close()

    def _game(self, split: str, index: int) -> tuple[str, int]:
        size = self.size(split)
        if not 0 <= index < size:
            raise TaskError(f"there is no game number {index} in {split!r}: these {size} are numbered from 0")
        return self._games[split][index]


class ScienceWorldTask:
    """Plays one game at a time. It ends when the simulator says so: all done, failed, or too many moves."""

    def __init__(self, world: ScienceWorld) -> None:
        self._world = world
        self._simulator: Simulator | None = None
        self._playing = False

    def start(self, instance: Instance) -> View:
        self._playing = False
        if self._simulator is None or self._simulator.jvm.fault:
            self._simulator = self._world.machines.take()
        variation, simplifications = self._world.variation(instance), self._world.options.simplifications
        self._goal, reading = self._simulator.load(instance.kind, variation, simplifications)
        self._score, self._lowest = reading.score, reading.score - 100
        teleport = "teleportAction" in self._simulator.simplified
        self._rules = rules("noElectricalAction" not in self._simulator.simplified, teleport)
        self._playing = True
        return self._view(self._simulator, reading)

    def step(self, action: str) -> Step:
        simulator = self._simulator
        if simulator is None or not self._playing:
            raise TaskError("step was called before start: start an instance first")
        reading = simulator.step(action)
        score = max(reading.score, self._lowest)  # a failure, -100 there, takes away what was gained and 1 here
        gained, self._score = score - self._score, score
        terminated = reading.completed or reading.score < 0
        success = reading.completed and reading.score == 100
        options = self._world.options
        return Step(
            view=self._view(simulator, reading),
            reward=gained / 100 if options.reward == "score" else float(success),
            terminated=terminated,
            truncated=not terminated and reading.moves > options.moves,
            success=success,
            valid=not reading.text.startswith(_NOT_UNDERSTOOD),
            info={"score": max(0, reading.score) / 100, "moves": reading.moves},
        )

    def close(self) -> None:
        self._playing = False
        if self._simulator is not None:
            self._world.machines.give(self._simulator)
            self._simulator = None

    def _view(self, simulator: Simulator, reading: Reading) -> View:
        text, admissible = reading.text, None
        hint = self._world.options.hint
        if hint == "templates":
            text += f"\nThings in reach: {', '.join(simulator.objects())}"
        elif hint == "valid":
            admissible = tuple(dict.fromkeys(simulator.valid_actions()))
        return View(text=text, admissible=admissible, goal=self._goal, rules=self._rules)


def _check_simplifications(text: str, tasks: Sequence[str]) -> None:
    chosen = [part for part in text.split(",") if part]
    if text != "easy" and any(part not in SIMPLIFICATIONS for part in chosen):
        raise TaskError(
            f"simplifications = {text!r}: expected easy alone, nothing, or some of {', '.join(SIMPLIFICATIONS)}, "
            "joined by commas without blanks"
        )
    electrical = [task for task in tasks if is_electrical(task)]
    if "noElectricalAction" in chosen and electrical:
        raise TaskError(
            f"simplifications = {text!r}: {electrical[0]} cannot be solved without electrical actions; "
            "leave such tasks out of tasks"
        )
