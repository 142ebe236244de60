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
from functools import partial

from isentrope.worlds.household.game import TREATMENTS, Game, Tables

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
            "go": self._go, "open": self._open, "close": self._close, "take": self._take, "move": self._move,
            "examine": self._examine, "use": self._use, "slice": self._slice,
            **{verb: partial(self._treat, verb) for verb in TREATMENTS},
        }  # fmt: skip
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
        self._treated: dict[str, set[int]] = {"clean": set(), "heat": set(), "cool": set(tables.cool)}
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
        answer = handler(rest) if handler else None
        if answer is not None:
            self._admissible = None
            self.won = self._goal_holds()
        return answer

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
        return f"You arrive at {rest[3:]}. {self._describe(receptacle)}"

    def _open(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is None or not self._t.openable[receptacle] or receptacle in self._opened:
            return None
        self._opened.add(receptacle)
        return f"You open the {rest}. {self._describe(receptacle)}"

    def _close(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is None or receptacle not in self._opened:
            return None
        self._opened.discard(receptacle)
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
        return f"You move the {rest.replace(' to ', ' to the ')}."

    def _examine(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is not None:
            return self._describe(receptacle)
        thing = self._t.object_named.get(rest)
        if thing is None or thing != self.held:
            return None
        if self.game.objects[thing].container:
            inner = join_names("a " + self._t.object_names[one] for one in self._t.contained.get(thing, ()))
            return f"This is a normal {rest}. In it, you see {inner}."
        sliced = "sliced " if thing in self._sliced else ""
        heat = "hot" if thing in self._treated["heat"] else "cool" if thing in self._treated["cool"] else ""
        if thing in self._treated["clean"]:
            return f"This is a {heat + ' and ' if heat else ''}clean {sliced}{rest}."
        if heat:
            return f"This is a {'cold' if heat == 'cool' and not sliced else heat} {sliced}{rest}."
        if thing in self._on:
            return f"This {rest} is on."
        return f"This is a sliced {rest}." if sliced else f"There's nothing special about {rest}."

    def _use(self, rest: str) -> str | None:
        thing = self._t.object_named.get(rest)
        if thing is None or thing not in self._t.toggleable or not self._in_reach(thing):
            return None
        self._on.add(thing)  # using it again says "on" again: it never goes off
        return f"You turn on the {rest}."

    def _treat(self, verb: str, rest: str) -> str | None:
        thing, receptacle = self._pair(rest, " with ")
        able, appliances = self._t.treatments[verb]
        if thing is None or thing != self.held or thing not in able or receptacle not in appliances:
            return None
        self._treated[verb].add(thing)
        if verb != "clean":
            self._treated["cool" if verb == "heat" else "heat"].discard(thing)
        return f"You {verb} the {rest.replace(' with ', ' using the ')}."

    def _slice(self, rest: str) -> str | None:
        first, separator, second = rest.partition(" with ")
        thing, knife = self._t.object_named.get(first), self._t.object_named.get(second)
        if not separator or thing not in self._t.sliceable or knife not in self._t.knives or knife != self.held:
            return None
        if thing not in self._lying_at[self.location]:  # lying behind a closed door is near enough
            return None
        self._sliced.add(thing)
        return f"You sliced the {first} with the {second}."

    # What the commands share.

    def _here(self, name: str) -> int | None:
        """The receptacle of that name, if the player stands at it."""
        receptacle = self._t.receptacle_named.get(name)
        return receptacle if receptacle in self._t.receptacles_at[self.location] else None

    def _pair(self, rest: str, separator: str) -> tuple[int | None, int | None]:
        thing, found, place = rest.partition(separator)
        if not found:
            return None, None
        return self._t.object_named.get(thing), self._here(place)

    def _accessible(self, receptacle: int) -> bool:
        return not self._t.openable[receptacle] or receptacle in self._opened

    def _takes(self, receptacle: int, thing: int) -> bool:
        types = (self.game.receptacles[receptacle].type, self.game.objects[thing].type)
        return types in self.game.fits and self._accessible(receptacle)

    def _in_reach(self, thing: int) -> bool:
        return any(thing in self._contents[receptacle] for receptacle in self._t.receptacles_at[self.location])

    def _describe(self, receptacle: int) -> str:
        name = self._t.receptacle_names[receptacle]
        if not self._accessible(receptacle):
            return f"The {name} is closed."
        names = join_names("a " + self._t.object_names[thing] for thing in self._contents[receptacle])
        if self._t.openable[receptacle]:
            return f"The {name} is open. In it, you see {names}."
        return f"On the {name}, you see {names}."

    def _goal_holds(self) -> bool:
        kind, wanted = self.game.goal.kind, self._t.goal_objects
        if kind == "look":
            return self.held in wanted and any(lamp in self._on and self._in_reach(lamp) for lamp in self._t.goal_lamps)
        treated = self._treated.get(kind, wanted)
        needed = 2 if kind == "two" else 1
        contents = (self._contents[receptacle] for receptacle in self._t.goal_places)
        return any(sum(thing in wanted and thing in treated for thing in inside) >= needed for inside in contents)

    def _list_commands(self) -> tuple[str, ...]:
        """Built in the order of the verbs, so that only the short stretches around "go to" need sorting."""
        tables, here, held = self._t, self._t.receptacles_at[self.location], self.held
        names, movable = tables.object_names, tables.pickupable
        early, middle, late = list[str](), ["help", "inventory", "look"], list[str]()
        for receptacle in here:
            place = tables.receptacle_names[receptacle]
            early.append("examine " + place)
            if receptacle in self._opened:
                early.append("close " + place)
            elif tables.openable[receptacle]:
                late.append("open " + place)
                continue
            if held < 0:
                inside = self._contents[receptacle]
                late += [f"take {names[thing]} from {place}" for thing in inside if thing in movable]
        if held >= 0:
            self._held_commands(held, here, early, middle, late)
        late += [f"use {names[lamp]}" for lamp in tables.toggleable if self._in_reach(lamp)]
        early.sort()
        late.sort()
        return (*early, *tables.go_commands[self.location], *middle, *late)

    def _held_commands(self, held: int, here: list[int], early: list[str], middle: list[str], late: list[str]) -> None:
        tables, thing = self._t, self._t.object_names[held]
        early.append("examine " + thing)
        for receptacle in here:
            name = tables.receptacle_names[receptacle]
            if self._takes(receptacle, held):
                late.append(f"move {thing} to {name}")
            for verb, (able, appliances) in tables.treatments.items():
                if held in able and receptacle in appliances:
                    (middle if verb == "heat" else early).append(f"{verb} {thing} with {name}")
        middle.sort()
        if held in tables.knives:
            lying = self._lying_at[self.location]
            late += [f"slice {tables.object_names[one]} with {thing}" for one in lying & tables.sliceable]
