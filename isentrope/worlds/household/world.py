"""The household world: text games in which things have to be found, treated and brought somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Instance, Step, View
from isentrope.worlds.household.engine import NOTHING_HAPPENS, Engine
from isentrope.worlds.household.game import KINDS, Game, Tables
from isentrope.worlds.household.generate import SPLITS, generate
from isentrope.worlds.household.official import Record, official_games, read_file
from isentrope.worlds.household.players import HouseholdExpert
from isentrope.worlds.household.rooms import SIZES

RULES = (
    "You look after a house and carry out one errand in it, step by step. You can walk to furniture and appliances, "
    "open and close them, pick things up, put them down, and clean, heat, cool, slice or switch on things. You carry "
    "one thing at a time. Actions look like: go to X, open X, close X, take A from X, move A to X, clean A with X, "
    "heat A with X, cool A with X, slice A with B, use A, examine X, look, inventory."
)


@dataclass(frozen=True)
class HouseholdOptions:
    rooms: str = setting(
        "full", "receptacles of generated rooms: small 5-9, medium 10-16, full as many as real rooms", choices=SIZES
    )
    kinds: tuple[str, ...] = setting(KINDS, "task types to play: pick, look, clean, heat, cool, two")
    games: str = setting(
        "", "empty: games are generated; else a folder of official games, or a games.jsonl or games.jsonl.zst file"
    )


class HouseholdWorld:
    name = "household"

    def __init__(self, options: HouseholdOptions | None = None) -> None:
        self.options = options or HouseholdOptions()
        self.kinds = tuple(self.options.kinds)
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise TaskError(f"kinds = {list(self.kinds)}: choose one or more of {', '.join(KINDS)}")
        if self.options.rooms not in SIZES:
            raise TaskError(f"rooms = {self.options.rooms!r}: choose one of {', '.join(SIZES)}")

    @cached_property
    def official(self) -> dict[str, list[tuple[str, Record | Path]]]:
        """The official games, read when first asked for; none if games are generated."""
        return official_games(self.options.games, self.kinds) if self.options.games else {}

    def splits(self) -> Sequence[str]:
        return tuple(self.official) or SPLITS

    def size(self, split: str) -> int | None:
        self._check(split)
        return len(self.official[split]) if self.official else None

    def instance(self, split: str, index: int) -> Instance:
        self._check(split)
        if index < 0:
            raise TaskError(f"there is no household game number {index}; numbers start at 0")
        kind = self._entry(split, index)[0] if self.official else self.kinds[index % len(self.kinds)]
        return Instance(self.name, split, index, kind)

    def game(self, instance: Instance) -> Game:
        return self.engine(instance).game

    def engine(self, instance: Instance) -> Engine:
        """A new play of a game."""
        if self.official:
            tables = _official(self._entry(instance.split, instance.index)[1])
        else:
            tables = _generated(instance.kind, instance.split, instance.index, self.options.rooms)
        return Engine(tables.game, tables)

    def open(self) -> HouseholdTask:
        return HouseholdTask(self)

    def expert(self, seed: int) -> Expert:
        return HouseholdExpert(seed)

    def _entry(self, split: str, index: int) -> tuple[str, Record | Path]:
        """The kind of an official game, and where it is read from."""
        games = self.official[split]
        if not 0 <= index < len(games):
            raise TaskError(f"there is no official game number {index} in {split!r}: it has {len(games)} games")
        return games[index]

    def _check(self, split: str) -> None:
        if split not in self.splits():
            raise TaskError(f"the household world has no split {split!r}; it has {', '.join(self.splits())}")


@lru_cache(maxsize=256)  # a group plays the same game, and every evaluation the same games
def _generated(kind: str, split: str, index: int, rooms: str) -> Tables:
    return Tables(generate(kind, split, index, rooms))


@lru_cache(maxsize=256)
def _official(entry: Record | Path) -> Tables:
    return Tables((read_file(entry) if isinstance(entry, Path) else entry).game())


class HouseholdTask:
    """Plays one game at a time. An episode ends when the game is won; the runner sets the turn limit."""

    def __init__(self, world: HouseholdWorld) -> None:
        self._world = world
        self._engine: Engine | None = None

    def start(self, instance: Instance) -> View:
        self._engine = self._world.engine(instance)
        return self._view(self._engine, self._engine.room())

    def step(self, action: str) -> Step:
        if self._engine is None:
            raise TaskError("step was called before start: start an instance first")
        answer = self._engine.attempt(action)
        won = self._engine.won
        return Step(
            view=self._view(self._engine, answer or NOTHING_HAPPENS),
            reward=1.0 if won else 0.0,
            terminated=won,
            success=won,
            valid=answer is not None,
        )

    def close(self) -> None:
        self._engine = None

    def _view(self, engine: Engine, text: str) -> View:
        return View(text=text, admissible=engine.admissible(), goal=engine.game.task, rules=RULES)
