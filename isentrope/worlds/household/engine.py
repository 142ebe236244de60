"""Plays a household game: the commands, their preconditions and effects, and every sentence of the answer.

The text and the list of admissible commands are those of the official engine, byte for byte. That engine
interprets a PDDL domain and a text grammar; here each action is a few lines of Python. Things worth knowing:

* An object may be in several receptacles; `take` removes one of the pairs. `objectAtLocation` is a relation
  of its own, which `take` and `move` change only for the player's location.
* "Next to it" lists, for each object at the location, every receptacle there that it was once taken out of.
* A lamp that was used once stays on; heat, cool and clean ask for the right place but not for an open door.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

from isentrope.worlds.household.game import Game, Tables

WELCOME = "-= Welcome to TextWorld, ALFRED! =-\n\n"
NOTHING_HAPPENS = "Nothing happens."

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


def join_names(names: Iterable[str]) -> str:
    """The way the world lists things: a comma also before the last "and", and "nothing" for none."""
    listed = list(names)
    if len(listed) < 2:
        return listed[0] if listed else "nothing"
    return ", ".join(listed[:-1]) + ", and " + listed[-1]


class Engine:
    """The state of one play of a game. `reset` starts it over; the tables may be shared between plays."""

    def __init__(self, game: Game, tables: Tables | None = None) -> None:
        self.game = game
        self._t = tables or Tables(game)
        self._verbs: dict[str, Callable[[str], str | None]] = {
            "go": self._go,
            "open": self._open,
            "close": self._close,
            "take": self._take,
            "move": self._move,
            "examine": self._examine,
            "use": self._use,
            "heat": self._heat,
            "cool": self._cool,
            "clean": self._clean,
            "slice": self._slice,
        }
        self.reset()

    def reset(self) -> str:
        """Back to the start; returns the introduction."""
        tables = self._t
        self.location = self.game.start
        self.held = -1  # the object in hand, or -1
        self._contents = [list(row) for row in tables.contents]
        self._lying_at = [set(row) for row in tables.lying_at]
        self._taken_from: set[tuple[int, int]] = set()  # (object, receptacle) pairs undone by `take`
        self._opened: set[int] = set()
        self._clean_ones: set[int] = set()
        self._hot: set[int] = set()
        self._cool_ones = set(tables.cool)
        self._sliced: set[int] = set()
        self._on: set[int] = set()
        self._admissible: tuple[str, ...] | None = None
        self.won = self._goal_holds()
        return self.introduction()

    def introduction(self) -> str:
        return f"{WELCOME}{self.room()}\n\nYour task is to: {self.game.task}"

    def room(self) -> str:
        """The introduction's description of the room; unlike `look` it lists all receptacles."""
        if self._t.receptacles_at[self.location]:
            return self._look()
        names = join_names("a " + name for name in self._t.receptacle_names)
        return f"You are in the middle of a room. Looking quickly around you, you see {names}."

    def step(self, command: str) -> str:
        """Carry out a command and answer it; whatever is not admissible changes nothing."""
        return self.attempt(command) or NOTHING_HAPPENS

    def attempt(self, command: str) -> str | None:
        """Like `step`, but None for a command that is not admissible."""
        verb, _, rest = command.strip().partition(" ")
        if not rest:
            return self._bare(verb)
        handler = self._verbs.get(verb)
        return handler(rest) if handler else None

    def admissible(self) -> tuple[str, ...]:
        """All commands that would be carried out now, sorted."""
        if self._admissible is None:
            self._admissible = self._list_commands()
        return self._admissible

    # The commands. Each returns what happened, or None where its preconditions do not hold.

    def _bare(self, verb: str) -> str | None:
        if verb == "look":
            return self._look()
        if verb == "inventory":
            if self.held < 0:
                return "You are not carrying anything."
            return f"You are carrying: a {self._t.object_names[self.held]}."
        return HELP if verb == "help" else None

    def _look(self) -> str:
        here = self._t.receptacles_at[self.location]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        facing = join_names(self._t.receptacle_names[receptacle] for receptacle in here)
        beside = [
            "a " + self._t.object_names[thing]
            for thing in sorted(self._lying_at[self.location])
            for receptacle in here
            if (thing, receptacle) in self._taken_from
        ]
        return f"You are facing the {facing}. Next to it, you see {join_names(beside)}."

    def _go(self, rest: str) -> str | None:
        if not rest.startswith("to "):
            return None
        receptacle = self._t.receptacle_named.get(rest[3:])
        if receptacle is None or self._t.location_of[receptacle] == self.location:
            return None
        self.location = self._t.location_of[receptacle]
        self._changed()
        return f"You arrive at {rest[3:]}. {self._describe(receptacle)}"

    def _open(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is None or not self._t.openable[receptacle] or receptacle in self._opened:
            return None
        self._opened.add(receptacle)
        self._changed()
        return f"You open the {rest}. {self._describe(receptacle)}"

    def _close(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is None or receptacle not in self._opened:
            return None
        self._opened.discard(receptacle)
        self._changed()
        return f"You close the {rest}."

    def _take(self, rest: str) -> str | None:
        thing, receptacle = self._pair(rest, " from ")
        if thing is None or receptacle is None or self.held >= 0 or not self._accessible(receptacle):
            return None
        if thing not in self._contents[receptacle] or thing not in self._t.pickupable:
            return None
        self._contents[receptacle].remove(thing)
        self._taken_from.add((thing, receptacle))
        self._lying_at[self.location].discard(thing)
        self.held = thing
        self._changed()
        return f"You pick up the {rest.replace(' from ', ' from the ')}."

    def _move(self, rest: str) -> str | None:
        thing, receptacle = self._pair(rest, " to ")
        if thing is None or receptacle is None or thing != self.held or not self._takes(receptacle, thing):
            return None
        if thing not in self._contents[receptacle]:  # it may be there already: one of several places at the start
            insort(self._contents[receptacle], thing)
        self._taken_from.discard((thing, receptacle))
        self._lying_at[self.location].add(thing)
        self.held = -1
        self._changed()
        return f"You move the {rest.replace(' to ', ' to the ')}."

    def _examine(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is not None:
            return self._describe(receptacle)
        thing = self._t.object_named.get(rest)
        return self._describe_object(thing) if thing is not None and thing == self.held else None

    def _use(self, rest: str) -> str | None:
        thing = self._t.object_named.get(rest)
        if thing is None or thing not in self._t.toggleable or not self._in_reach(thing):
            return None
        self._on.add(thing)  # using it again says "on" again: it never goes off
        self._changed()
        return f"You turn on the {rest}."

    def _heat(self, rest: str) -> str | None:
        thing = self._held_at(rest, self._t.heatable, self._t.heaters)
        if thing is None:
            return None
        self._hot.add(thing)
        self._cool_ones.discard(thing)
        return self._treated("heat", rest)

    def _cool(self, rest: str) -> str | None:
        thing = self._held_at(rest, self._t.coolable, self._t.coolers)
        if thing is None:
            return None
        self._cool_ones.add(thing)
        self._hot.discard(thing)
        return self._treated("cool", rest)

    def _clean(self, rest: str) -> str | None:
        thing = self._held_at(rest, self._t.cleanable, self._t.cleaners)
        if thing is None:
            return None
        self._clean_ones.add(thing)
        return self._treated("clean", rest)

    def _slice(self, rest: str) -> str | None:
        first, separator, second = rest.partition(" with ")
        thing, knife = self._t.object_named.get(first), self._t.object_named.get(second)
        if not separator or thing not in self._t.sliceable or knife not in self._t.knives or knife != self.held:
            return None
        if thing not in self._lying_at[self.location]:  # lying behind a closed door is near enough
            return None
        self._sliced.add(thing)
        self._changed()
        return f"You sliced the {first} with the {second}."

    # What the commands share.

    def _here(self, name: str) -> int | None:
        """The receptacle of that name, if the player stands at it."""
        receptacle = self._t.receptacle_named.get(name)
        if receptacle is None or self._t.location_of[receptacle] != self.location:
            return None
        return receptacle

    def _pair(self, rest: str, separator: str) -> tuple[int | None, int | None]:
        thing, found, place = rest.partition(separator)
        if not found:
            return None, None
        return self._t.object_named.get(thing), self._here(place)

    def _held_at(self, rest: str, able: set[int], appliances: set[int]) -> int | None:
        """The held object of "THING with PLACE", if it can be treated at that place."""
        thing, receptacle = self._pair(rest, " with ")
        if receptacle not in appliances or thing not in able or thing != self.held:
            return None
        return thing

    def _treated(self, verb: str, rest: str) -> str:
        self._changed()
        return f"You {verb} the {rest.replace(' with ', ' using the ')}."

    def _accessible(self, receptacle: int) -> bool:
        return not self._t.openable[receptacle] or receptacle in self._opened

    def _takes(self, receptacle: int, thing: int) -> bool:
        types = (self.game.receptacles[receptacle].type, self.game.objects[thing].type)
        return types in self.game.fits and self._accessible(receptacle)

    def _in_reach(self, thing: int) -> bool:
        return any(thing in self._contents[receptacle] for receptacle in self._t.receptacles_at[self.location])

    def _describe(self, receptacle: int) -> str:
        name = self._t.receptacle_names[receptacle]
        if self._t.openable[receptacle] and receptacle not in self._opened:
            return f"The {name} is closed."
        names = join_names("a " + self._t.object_names[thing] for thing in self._contents[receptacle])
        if self._t.openable[receptacle]:
            return f"The {name} is open. In it, you see {names}."
        return f"On the {name}, you see {names}."

    def _describe_object(self, thing: int) -> str:
        name = self._t.object_names[thing]
        if self.game.objects[thing].container:
            inner = join_names("a " + self._t.object_names[one] for one in self._t.contained.get(thing, ()))
            return f"This is a normal {name}. In it, you see {inner}."
        sliced = "sliced " if thing in self._sliced else ""
        heat = "hot" if thing in self._hot else "cool" if thing in self._cool_ones else ""
        if thing in self._clean_ones:
            return f"This is a {heat + ' and ' if heat else ''}clean {sliced}{name}."
        if heat:
            return f"This is a {'cold' if heat == 'cool' and not sliced else heat} {sliced}{name}."
        if thing in self._on:
            return f"This {name} is on."
        return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."

    def _changed(self) -> None:
        self._admissible = None
        self.won = self._goal_holds()

    def _goal_holds(self) -> bool:
        kind, wanted = self.game.goal.kind, self._t.goal_objects
        if kind == "look":
            return self.held in wanted and any(lamp in self._on and self._in_reach(lamp) for lamp in self._t.goal_lamps)
        treated = {"clean": self._clean_ones, "heat": self._hot, "cool": self._cool_ones}.get(kind, wanted)
        needed = 2 if kind == "two" else 1
        for receptacle in self._t.goal_places:
            if sum(1 for thing in self._contents[receptacle] if thing in wanted and thing in treated) >= needed:
                return True
        return False

    def _list_commands(self) -> tuple[str, ...]:
        """Built in the order of the verbs, so that only the short stretches around "go to" need sorting."""
        tables, here, held = self._t, self._t.receptacles_at[self.location], self.held
        early = [f"examine {tables.receptacle_names[receptacle]}" for receptacle in here]
        middle, late = ["help", "inventory", "look"], self._door_commands(here, early)
        if held >= 0:
            self._held_commands(held, here, early, middle, late)
        else:
            names, movable = tables.object_names, tables.pickupable
            for receptacle in here:
                if self._accessible(receptacle):
                    place = " from " + tables.receptacle_names[receptacle]
                    late += [f"take {names[thing]}{place}" for thing in self._contents[receptacle] if thing in movable]
        late += [f"use {tables.object_names[lamp]}" for lamp in tables.toggleable if self._in_reach(lamp)]
        early.sort()
        late.sort()
        return (*early, *tables.go_commands[self.location], *middle, *late)

    def _door_commands(self, here: list[int], early: list[str]) -> list[str]:
        """Adds the `close` commands to `early` and returns the `open` commands."""
        late: list[str] = []
        for receptacle in here:
            if self._t.openable[receptacle]:
                name = self._t.receptacle_names[receptacle]
                if receptacle in self._opened:
                    early.append("close " + name)
                else:
                    late.append("open " + name)
        return late

    def _held_commands(self, held: int, here: list[int], early: list[str], middle: list[str], late: list[str]) -> None:
        tables, thing = self._t, self._t.object_names[held]
        early.append("examine " + thing)
        for receptacle in here:
            name = tables.receptacle_names[receptacle]
            if self._takes(receptacle, held):
                late.append(f"move {thing} to {name}")
            if held in tables.cleanable and receptacle in tables.cleaners:
                early.append(f"clean {thing} with {name}")
            if held in tables.coolable and receptacle in tables.coolers:
                early.append(f"cool {thing} with {name}")
            if held in tables.heatable and receptacle in tables.heaters:
                middle.append(f"heat {thing} with {name}")
        middle.sort()
        if held in tables.knives:
            lying = self._lying_at[self.location]
            late += [f"slice {tables.object_names[one]} with {thing}" for one in lying & tables.sliceable]
