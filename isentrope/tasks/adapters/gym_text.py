"""What a Gymnasium observation looks like in words, and what its actions are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from isentrope.errors import TaskError

MAX_NUMBERS = 64  # a longer array is a picture, which no list of numbers describes
_COLOUR = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0m", re.DOTALL)

MINIGRID_ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done")
MINIGRID_RULES = (
    "You move through rooms made of square cells and carry out a mission. You see the cells in front of you and to "
    "both sides, up to walls and closed doors. Directions are meant as you look now. Actions: turn left, turn right, "
    "go forward (one cell), pick up (what is right in front of you), drop (put what you carry in front of you), "
    "toggle (open or close a door or a box in front of you; a locked door needs the key of its colour in your hand), "
    "done (say that the mission is complete)."
)
_COMPASS = ("east", "south", "west", "north")
_COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
_TYPES = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
_DOORS = ("open", "closed", "locked")
_OPEN_GROUND = ("empty", "floor")


def describe(observation: Any) -> str:
    """Text as it stands, numbers as numbers, MiniGrid's symbols as sentences."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Mapping):
        parts = cast("Mapping[str, Any]", observation)
        if {"image", "mission", "direction"} <= set(parts):
            return minigrid_text(parts)
        return "\n".join(f"{name}: {describe(part)}" for name, part in parts.items())
    if isinstance(observation, tuple | list):
        items = cast("Iterable[Any]", observation)
        return ", ".join(describe(item) for item in items)
    if getattr(observation, "size", 1) > MAX_NUMBERS:
        raise TaskError(
            f"the observation is an array of {observation.size} numbers, which cannot be told in words: set "
            "task.options.describe to a function of your own, module:function, that takes it and returns text"
        )
    if getattr(observation, "shape", ()):
        return ", ".join(f"{number:.4g}" for number in observation.ravel().tolist())
    return f"{observation:.4g}" if isinstance(observation, float) else str(observation)


def drawn(picture: str) -> str:
    """What an environment draws for a terminal, as plain text: what was coloured stands in square brackets."""
    return _COLOUR.sub(r"[\1]", picture).strip("\n")


def minigrid_text(observation: Mapping[str, Any]) -> str:
    """The symbolic view: (type, colour, state) of each cell; the agent stands in the middle of the last row."""
    image = observation["image"]
    middle, last = image.shape[0] // 2, image.shape[1] - 1
    held = _thing(image[middle][last])
    lines = [f"You face {_COMPASS[int(observation['direction'])]}. You carry {held or 'nothing'}."]
    seen: list[tuple[int, str]] = []
    for column in range(image.shape[0]):
        for row in range(image.shape[1]):
            thing = _thing(image[column][row])
            if thing and (column, row) != (middle, last):
                seen.append((abs(column - middle) + last - row, f"{thing}: {_where(column - middle, last - row)}"))
    lines += [text for _, text in sorted(seen, key=lambda pair: pair[0])]
    ways = (("ahead", 0, -1), ("to the left", -1, 0), ("to the right", 1, 0))
    free = [f"{_free(image, middle, last, dx, dy)} {name}" for name, dx, dy in ways]
    return "\n".join([*lines, f"Free cells: {', '.join(free)}."])


def _thing(cell: Any) -> str:
    """A cell's content in words; empty if there is nothing to name."""
    kind, colour, state = (int(number) for number in cell)
    name = _TYPES[kind]
    if name in ("unseen", "wall", "agent", *_OPEN_GROUND):
        return ""
    if name == "door":
        return f"a {_DOORS[state]} {_COLOURS[colour]} door"
    return name if name == "lava" else f"a {_COLOURS[colour]} {name}"


def _where(right: int, ahead: int) -> str:
    sideways = f"{abs(right)} to the {'right' if right > 0 else 'left'}" if right else ""
    return " and ".join(part for part in (f"{ahead} ahead" if ahead else "", sideways) if part)


def _free(image: Any, x: int, y: int, dx: int, dy: int) -> int:
    """Cells one can walk in that direction before something is in the way or out of sight."""
    steps = 0
    while True:
        x, y = x + dx, y + dy
        if not (0 <= x < image.shape[0] and y >= 0) or _TYPES[int(image[x][y][0])] not in _OPEN_GROUND:
            return steps
        steps += 1
