"""Look-up tables of a game that never change while it is played: made once, shared by all plays of it."""

from __future__ import annotations

from isentrope.tasks.household.game import Game, Goal, Thing

KNIVES = ("knife", "butterknife")
CLEANERS = ("sink", "sinkbasin")
HEATER = "microwave"
COOLER = "fridge"


class Tables:
    """What the engine would otherwise search for at every step."""

    def __init__(self, game: Game) -> None:
        self.game = game
        things, furniture = game.objects, game.receptacles
        self.object_named = {thing.name: index for index, thing in enumerate(things)}
        self.receptacle_named = {receptacle.name: index for index, receptacle in enumerate(furniture)}
        self.object_names = [thing.name for thing in things]
        self.receptacle_names = [receptacle.name for receptacle in furniture]
        self.location_of = [receptacle.location for receptacle in furniture]
        self.openable = [receptacle.openable for receptacle in furniture]
        self.receptacles_at: list[list[int]] = [[] for _ in game.locations]
        for index, receptacle in enumerate(furniture):
            self.receptacles_at[receptacle.location].append(index)
        self.go_commands = [self._go_commands(location) for location in range(len(game.locations))]
        self.toggleable = [index for index, thing in enumerate(things) if thing.toggleable]
        self.pickupable = {index for index, thing in enumerate(things) if thing.pickupable}
        self.cleanable = {index for index, thing in enumerate(things) if thing.cleanable}
        self.heatable = {index for index, thing in enumerate(things) if thing.heatable}
        self.coolable = {index for index, thing in enumerate(things) if thing.coolable}
        self.sliceable = {index for index, thing in enumerate(things) if thing.sliceable}
        self.knives = {index for index, thing in enumerate(things) if thing.type in KNIVES}
        self.cleaners = {index for index, receptacle in enumerate(furniture) if receptacle.type in CLEANERS}
        self.heaters = {index for index, receptacle in enumerate(furniture) if receptacle.type == HEATER}
        self.coolers = {index for index, receptacle in enumerate(furniture) if receptacle.type == COOLER}
        self.contained = self._contained()
        self.goal_objects = {index for index, thing in enumerate(things) if counts_for(game.goal, thing)}
        self.goal_places = [i for i, receptacle in enumerate(furniture) if receptacle.type == game.goal.place_type]
        self.goal_lamps = [index for index in self.toggleable if things[index].type == game.goal.place_type]
        self.contents: list[list[int]] = [[] for _ in furniture]
        for thing, receptacle in sorted(game.inside):
            self.contents[receptacle].append(thing)
        self.lying_at: list[set[int]] = [set() for _ in game.locations]
        for thing, location in game.object_at:
            self.lying_at[location].add(thing)
        self.cool = {index for index, thing in enumerate(things) if thing.cool}

    def _go_commands(self, location: int) -> list[str]:
        return sorted(f"go to {r.name}" for r in self.game.receptacles if r.location != location)

    def _contained(self) -> dict[int, list[int]]:
        """What is in a bowl or box, in id order. It never changes, and nothing contains itself in the text."""
        contained: dict[int, list[int]] = {}
        for inner, outer in sorted(self.game.nested):
            if inner != outer:
                contained.setdefault(outer, []).append(inner)
        return contained


def counts_for(goal: Goal, thing: Thing) -> bool:
    """Whether this object, in the right state and place, would fulfil the goal."""
    if thing.type != goal.object_type:
        return False
    return {"clean": thing.cleanable, "heat": thing.heatable, "cool": thing.coolable}.get(goal.kind, True)
