"""The interface of task worlds: start, step, close.

A *world* is a family of task instances (all household games). An *instance* names one of them and can be
sent to another process. A *task* plays one instance at a time. "Terminated" means that the task itself
came to its end; "truncated" means that somebody cut it off. The runner adds the turn limit, so most tasks
never truncate.

    world = HouseholdWorld(...)
    task = world.open()
    view = task.start(world.instance("train", 0))
    step = task.step("go to desk 1")      # any string: an unknown action is answered, never raised
    task.close()

A world may have more than `World` asks for; whoever finds it there uses it:

    prefers = "processes"       # or "local": where its tasks are played if the user does not say (task.where = "auto").
                                # A world of another package that says neither is played in one worker process
    threads = 8                 # so many tasks may be played at once in threads of one process: `open`, `start` and
                                # `step` of different tasks may run side by side, those of one task never do, but its
                                # thread may change. Without it tasks of one process are played one after another
    replayable = False          # an episode that was lost with its worker process is not brought back by playing its
                                # actions again (a world whose steps are slow, or come out differently)
    def close(self) -> None     # gives back what the world holds (processes, files); called once nobody plays any
                                # more, perhaps twice, and not at all if the process is killed
    def fingerprint(self, instance: Instance) -> object # tells instances apart whose first views may look alike
    expert_solves = 0.85        # about the share of games that its expert solves, where that is less than nine in ten
    not_deterministic = {"kind": "why"} # games of this kind do not come out the same again; `deterministic = False`
                                # says so of all. `isentrope check-task` leaves them out where that matters
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from isentrope.core.limits import LARGEST


@dataclass(frozen=True)
class Instance:
    """One task of a world: the same instance always starts from the same state."""

    world: str
    split: str
    index: int
    kind: str  # the task type, for success by type, e.g. "pick" or "heat"


@dataclass(frozen=True)
class View:
    """What the agent is shown after start or after a step."""

    text: str  # the observation, untrusted
    admissible: tuple[str, ...] | None  # the actions that would be accepted now, or None if the world lists none
    goal: str = ""  # the task in words; the same at every turn of an episode
    # what an agent is told about the world: what it can do and how actions look; the same at every turn
    rules: str = ""
    mended: tuple[str, ...] = ()  # what the pool put right: text_cut, actions_cut, info_cut, encoding; not the task's


@dataclass(frozen=True)
class Step:
    view: View
    reward: float = 0.0  # in task units: 1 for a solved task; the runner scales it
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    valid: bool = True  # False: the action was not understood or not possible, the state did not change
    info: dict[str, str | float | bool] = field(default_factory=dict[str, "str | float | bool"])


REWARD = "reward/"
"""What begins the names in `Step.info` of the parts that a reward is made of: `reward/exact`, a number each. A run
records them for every episode, and their means as metrics of the same names."""
_PART = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_PARTS = 20


def rewards_of(step: Step) -> dict[str, float]:
    """The parts of a step's reward by name; untrusted, so bounded in number and length."""
    parts: dict[str, float] = {}
    for key, value in step.info.items():
        name = key.removeprefix(REWARD)
        if name != key and not isinstance(value, str) and abs(value) <= LARGEST and _PART.fullmatch(name):
            parts[name] = float(value)
    return dict(list(parts.items())[:_PARTS])


class Task(Protocol):
    """Plays one instance at a time. Deterministic given the instance and the actions."""

    def start(self, instance: Instance) -> View: ...

    def step(self, action: str) -> Step: ...

    def close(self) -> None: ...


class Expert(Protocol):
    """A player for warm-up data: a script that sees what the agent sees, or the known solution of the instance. One
    that knows how many turns its solution takes may say so in `turns`, once it was started."""

    def start(self, view: View, instance: Instance) -> None: ...

    def act(self, view: View) -> Move: ...


@dataclass(frozen=True)
class Move:
    """What an expert does in one turn, and the thought that goes with it."""

    thought: str
    action: str


@runtime_checkable
class World(Protocol):
    name: str
    kinds: tuple[str, ...]

    def splits(self) -> Sequence[str]: ...

    def size(self, split: str) -> int | None:
        """How many instances the split has; None if it generates as many as are asked for."""
        ...

    def instance(self, split: str, index: int) -> Instance: ...

    def open(self) -> Task: ...

    def expert(self, seed: int) -> Expert | None:
        """A scripted player, or None if the world has none."""
        ...
