"""Which tasks ScienceWorld has, how many variations of each, and which of them are for training.

A variation is a number; it decides the substance, the place, the tools and so on. The simulator cuts the variations of
a task into quarters: two to train on, one for development, the last and what is left over for the test. The numbers
stand here so that instances can be named without starting a simulator; a test compares them with the simulator's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError

_SITUATION = (
    "You carry out one science task in a simulated house with a kitchen, a workshop, a greenhouse, a foundry and other "
    "rooms. You walk through doors, handle things, heat, cool and mix substances, measure, grow plants, and wait for "
    "things to happen. Time passes with every action that changes something. Where the task tells you to focus on "
    "something, do so with the right thing and only then: focusing on a wrong one ends the task as failed."
)
# the actions, with what they do where that is not plain; OBJ stands for a thing, as in the simulator's own list
_ACTIONS = (
    "look around (see the room); look at OBJ (see a thing closely); look in OBJ (see what is inside); "
    "inventory (see what you carry); task (read the task again); "
    "go to OBJ (walk to a neighbouring room, its door must be open); open OBJ (a door or container); close OBJ; "
    "pick up OBJ (carry it); put down OBJ; move OBJ to OBJ (put it in or on another thing); "
    "pour OBJ in OBJ (a liquid, or what a container holds); dunk OBJ in OBJ (a container into a liquid); "
    "mix OBJ (let what a container holds react); activate OBJ (switch it on); deactivate OBJ (switch it off); "
    "use OBJ on OBJ (a tool, for example a thermometer on a substance); read OBJ; eat OBJ; flush OBJ; "
    "focus on OBJ (say that this is the thing the task is about); wait (ten time steps); wait1 (one time step); "
    "reset task (give up the progress and the focus so far)"
)
_ELECTRICAL = "; connect OBJ to OBJ (wires and terminals); disconnect OBJ"
_TELEPORT = "; teleport to OBJ (be in any room at once)"


def rules(electrical: bool, teleport: bool) -> str:
    """The rules of an episode."""
    listed = _ACTIONS + (_ELECTRICAL if electrical else "") + (_TELEPORT if teleport else "")
    return (
        f"{_SITUATION}\nActions, where OBJ is a thing or room that you see: {listed}. If you are asked which "
        "of several things you meant, answer with its number alone."
    )


SPLITS = ("train", "dev", "test")
VARIATIONS = {  # a topic after the other
    "boil": 30, "melt": 30, "freeze": 30, "change-the-state-of-matter-of": 30,
    "use-thermometer": 540, "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20, "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900, "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300, "find-non-living-thing": 300, "find-plant": 300, "find-animal": 300,
    "grow-plant": 126, "grow-fruit": 126,
    "chemistry-mix": 32, "chemistry-mix-paint-secondary-color": 36, "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125, "lifespan-shortest-lived": 125, "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14, "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168, "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-known-plant": 120, "mendelian-genetics-unknown-plant": 480,
}  # fmt: skip
TASKS = tuple(VARIATIONS)


def is_electrical(task: str) -> bool:
    """Whether the task cannot be solved without connecting wires."""
    return "power-component" in task or "conductivity" in task


def variations(task: str, split: str) -> range:
    """The simulator's own split of a task's variations."""
    count = VARIATIONS[task]
    quarter = count // 4
    ends = {"train": (0, 2 * quarter), "dev": (2 * quarter, 3 * quarter), "test": (3 * quarter, count)}
    return range(*ends[split])


def dealt(tasks: Sequence[str], split: str, most: int) -> list[tuple[str, int]]:
    """(task, variation) by number, dealt in rounds: one variation of every task that has any left.

    So the first thirty instances are of thirty tasks, and every later part of a split begins with all of them. A task's
    variations come in a fixed mixed order, because neighbours differ in next to nothing. `most` 0: all of them.
    """
    mixed: dict[str, list[int]] = {}
    for task in tasks:
        numbers = list(variations(task, split))
        random.Random(f"{task} {split}").shuffle(numbers)
        mixed[task] = numbers[: most or None]
    rounds = max(map(len, mixed.values()))
    return [(task, mixed[task][turn]) for turn in range(rounds) for task in tasks if turn < len(mixed[task])]


def checked_tasks(tasks: Sequence[str]) -> tuple[str, ...]:
    """The tasks to play, in the catalogue's order; none named: all."""
    for task in tasks:
        if task not in VARIATIONS:
            raise TaskError(f"tasks: ScienceWorld has no task {task!r}{did_you_mean(task, TASKS)}")
    return tuple(task for task in TASKS if task in tasks) if tasks else TASKS
