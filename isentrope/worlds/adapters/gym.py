"""Plays any Gymnasium environment with discrete or text actions. MiniGrid is described in sentences.

isentrope play gym --set task.options.env_id=MiniGrid-DoorKey-6x6-v0
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, cast

from isentrope.config.schema import setting
from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.worlds.adapters.seeded import SeededWorld, play_order, users_function
from isentrope.worlds.contract import Expert, Instance, Move, Step, View

# observations and actions in words

MAX_NUMBERS = 64  # a longer array is a picture, which no list of numbers describes
_COLOUR = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0m", re.DOTALL)

_REASONS = {  # what MiniGrid's expert thinks when it takes the action
    "turn left": "I turn left to look or go that way.",
    "turn right": "I turn right to look or go that way.",
    "go forward": "The way is free, I go on.",
    "pick up": "What I want is in front of me, I take it.",
    "drop": "I put down what I carry.",
    "toggle": "A door or a box is in front of me, I open it.",
    "done": "The mission is complete.",
}
MINIGRID_ACTIONS = tuple(_REASONS)
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
        return ", ".join(map(describe, cast("Iterable[Any]", observation)))
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
                right, ahead = column - middle, last - row
                sideways = [f"{abs(right)} to the {'right' if right > 0 else 'left'}"] if right else []
                where = " and ".join(([f"{ahead} ahead"] if ahead else []) + sideways)
                seen.append((abs(right) + ahead, f"{thing}: {where}"))
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


def _free(image: Any, x: int, y: int, dx: int, dy: int) -> int:
    """Cells one can walk in that direction before something is in the way or out of sight."""
    steps, x, y = 0, x + dx, y + dy
    while 0 <= x < image.shape[0] and y >= 0 and _TYPES[int(image[x][y][0])] in _OPEN_GROUND:
        steps, x, y = steps + 1, x + dx, y + dy
    return steps


class BabyAIExpert:
    """MiniGrid's own bot, for BabyAI. Plays a copy of the level beside the task: it needs the level, not its text."""

    def __init__(self, world: GymWorld) -> None:
        self._world = world
        self._bots = require("minigrid.utils.baby_ai_bot", "gym", "the BabyAI expert")
        self._env: Any = None

    def start(self, view: View, instance: Instance) -> None:
        if self._env is not None:
            self._env.close()
        self._env = self._world.make()
        self._observation = self._world.reset(self._env, instance)[0]
        self._bot: Any = self._bots.BabyAIBot(self._env)
        self._mission = view.goal

    def act(self, view: View) -> Move:
        if self._env is None:
            raise TaskError("the expert was asked before it was told which game is played")
        if self._world.describe is not None and view.text != self._world.describe(self._observation):
            raise TaskError("the game went another way than the expert's")
        number = int(self._bot.replan())
        self._observation = self._env.step(number)[0]
        name = (self._world.actions or ())[number]
        return Move(f"{self._mission} {_REASONS.get(name, '')}".strip(), name)


@dataclass(frozen=True)
class GymOptions:
    env_id: str = setting("BabyAI-GoToLocal-v0", "the environment's id")
    module: str = setting("minigrid", "a module to import first, which registers the environment; empty: none")
    kwargs: dict[str, Any] = setting({}, "what the environment is made with, e.g. {is_slippery = false}")
    actions: tuple[str, ...] = setting((), "names of the discrete actions, in order; empty: MiniGrid's, or numbers")
    describe: str = setting(
        "auto", "observations as text: auto; drawn: what the environment draws as text; or module:function"
    )
    goal: str = setting("", "the task in words; empty: the observation's mission, if it has one")
    rules: str = setting("", "what the agent is told about the world; empty: MiniGrid's rules, or the list of actions")
    success_above: float = setting(0.0, "an episode that terminates with more reward than this is solved")
    reward: str = setting(
        "solved", "solved: 1 for a solved episode; env: the environment's own", choices=("solved", "env")
    )
    reward_scale: float = setting(1.0, "the environment's own reward is multiplied by this", above=0)


class GymWorld(SeededWorld):
    """Game number i of a split is the environment reset with the i-th seed of that split."""

    name = "gym"

    def __init__(self, options: GymOptions | None = None) -> None:
        self.options = options or GymOptions()
        self.kinds = (self.options.env_id,)
        self._gym = require("gymnasium", "gym", "the gym world")
        if self.options.module:
            require(self.options.module, "gym", f"the environment {self.options.env_id}")
        known: dict[str, Callable[[Any], str] | None] = {"auto": describe, "drawn": None}  # None: it draws itself
        how = self.options.describe
        self.describe = known[how] if how in known else users_function("describe", how, "auto, drawn")
        env = self.make()
        self.minigrid = env.spec is not None and str(env.spec.entry_point).startswith("minigrid.")
        self.actions = self._action_names(env)
        env.close()
        listed = "You answer with text." if self.actions is None else f"Actions: {', '.join(self.actions)}."
        usual = f"You act in the environment {self.options.env_id}, one action at a time. {listed}"
        familiar = self.minigrid and self.actions == MINIGRID_ACTIONS
        self.rules = self.options.rules or (MINIGRID_RULES if familiar else usual)

    def make(self) -> Any:
        """A new environment."""
        given = dict(self.options.kwargs)
        if self.options.describe == "drawn":
            given.setdefault("render_mode", "ansi")
        try:
            return self._gym.make(self.options.env_id, disable_env_checker=True, **given)
        except self._gym.error.UnregisteredEnv as error:
            known = cast("Mapping[str, Any]", self._gym.registry)
            raise TaskError(
                f"task.options.env_id = {self.options.env_id!r}: {error}{did_you_mean(self.options.env_id, known)}; "
                "if another package registers it, name that in task.options.module"
            ) from error
        except (self._gym.error.Error, ImportError, TypeError) as error:
            raise TaskError(f"the environment {self.options.env_id} could not be made: {error}") from error

    def reset(self, env: Any, instance: Instance) -> tuple[Any, Mapping[str, Any]]:
        """The first observation. MiniGrid prints what it tries while it makes a level, which nobody wants to read."""
        with redirect_stdout(io.StringIO()):
            return env.reset(seed=self.seed(instance))

    def open(self) -> GymTask:
        return GymTask(self)

    def expert(self, seed: int) -> Expert | None:
        return BabyAIExpert(self) if self.minigrid and self.options.env_id.startswith("BabyAI-") else None

    def _action_names(self, env: Any) -> tuple[str, ...] | None:
        """Names of the discrete actions; None if actions are free text."""
        space, spaces = env.action_space, self._gym.spaces
        if isinstance(space, spaces.Text):
            return None
        if not isinstance(space, spaces.Discrete):
            raise TaskError(f"{self.options.env_id} has the actions {space}; only Discrete and Text can be played")
        count = int(space.n)
        names = self.options.actions or (MINIGRID_ACTIONS if self.minigrid else tuple(str(n) for n in range(count)))
        if len(set(names)) != count:
            raise TaskError(f"task.options.actions: {self.options.env_id} has {count} actions, not {len(set(names))}")
        return names


class GymTask:
    def __init__(self, world: GymWorld) -> None:
        self._world = world
        self._env: Any = None
        self._playing = False

    def start(self, instance: Instance) -> View:
        if self._env is None:
            self._env = self._world.make()
        observation, info = self._world.reset(self._env, instance)
        self._total, self._playing = 0.0, True
        mission = str(cast("dict[str, Any]", observation).get("mission", "")) if isinstance(observation, dict) else ""
        self._goal = self._world.options.goal or (mission and f"Your mission: {mission}.")
        self._view = self._seen(observation, info)
        return self._view

    def step(self, action: str) -> Step:
        play_order(self._playing)
        move = self._move(action)
        if move is None:
            listed = ", ".join(self._world.actions or ())
            hint = f" The actions are: {listed}." if listed else ""
            return Step(replace(self._view, text=f"That is no action here.{hint}"), valid=False)
        observation, reward, terminated, truncated, info = self._env.step(move)
        self._total += float(reward)
        terminated = bool(terminated)
        truncated = bool(truncated) and not terminated
        success = terminated and self._total > self._world.options.success_above
        self._playing = not (terminated or truncated)
        self._view = self._seen(observation, info)
        own = float(reward) * self._world.options.reward_scale
        given = own if self._world.options.reward == "env" else float(success)
        return Step(self._view, given, terminated, truncated, success, info={"score": self._total})

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env, self._playing = None, False

    def _move(self, action: str) -> Any:
        """The environment's action for that text, or None if there is none."""
        names, space = self._world.actions, self._env.action_space
        if names is None:
            return action if space.contains(action) else None
        wanted = action.strip().lower()
        found = [number for number, name in enumerate(names) if name.lower() == wanted]
        return int(space.start) + found[0] if found else None

    def _seen(self, observation: Any, info: Mapping[str, Any]) -> View:
        names, mask = self._world.actions, info.get("action_mask")
        if names is not None and mask is not None:  # what the environment says that it takes now
            names = tuple(name for name, possible in zip(names, mask, strict=True) if possible)
        how = self._world.describe
        text = how(observation) if how is not None else drawn(str(self._env.render()))
        return View(text, names, self._goal, self._world.rules)
