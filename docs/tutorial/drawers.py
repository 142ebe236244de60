# drawers.py
"""A dresser of seven drawers, a thing in one of them, and three drawers that may be opened."""

import random
import re

from isentrope import Instance, Move, Step, TaskError, View

DRAWERS = 7
DRESSERS = range(1, 19)
THINGS = ("mug", "book", "pen", "candle", "bowl", "cup", "fork", "knife", "plate", "pot")
THINGS += ("vase", "watch", "laptop", "pillow", "keychain", "newspaper", "spoon", "statue", "towel", "pencil")


class Drawers:
    name, kinds = "drawers", ("find",)

    def __init__(self):
        games = [(thing, dresser, place) for thing in THINGS for dresser in DRESSERS for place in range(1, DRAWERS + 1)]
        random.Random(0).shuffle(games)
        self.games = {"train": games[:1500], "valid": games[1500:2000], "test": games[2000:]}

    def splits(self):
        return tuple(self.games)

    def size(self, split):
        return len(self.games[split])

    def instance(self, split, index):
        if split not in self.games or not 0 <= index < self.size(split):
            raise TaskError(f"no game {split} {index}; there are {', '.join(self.games)}")
        return Instance(self.name, split, index, "find")

    def fingerprint(self, instance):  # games that differ in the place alone begin alike
        return self.games[instance.split][instance.index]

    def open(self):
        return Search(self)

    def expert(self, seed):
        return Rummager(seed)


class Search:
    """One game."""

    def __init__(self, world):
        self.world, self.place = world, None

    def start(self, instance):
        self.thing, self.dresser, self.place = self.world.fingerprint(instance)
        self.low, self.high = 1, DRAWERS
        return self.view(f"You are facing dresser {self.dresser}.")

    def step(self, action):
        if self.place is None:
            raise TaskError("step was called before start")
        if action not in (choices := self.choices()):
            return Step(self.view("Nothing happens."), valid=False)
        number = choices.index(action) + 1
        if number == self.place:
            return Step(self.view("You see it."), reward=1.0, terminated=True, success=True)
        if number < self.place:
            self.low = max(self.low, number + 1)
        else:
            self.high = min(self.high, number - 1)
        return Step(self.view("Nothing here."))

    def close(self):
        self.place = None

    def choices(self):
        return tuple(f"open drawer {n}" for n in range(1, DRAWERS + 1))

    def view(self, text):
        text = f"{text} The {self.thing} is in {self.low} to {self.high}."
        rules = f"A dresser has drawers 1 to {DRAWERS}. An action is: open drawer N."
        return View(text, self.choices(), f"Find the {self.thing}.", rules)


class Rummager:
    """Follows what it is told, but has no plan: it opens any drawer that the thing can still be in."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def start(self, view, instance):
        pass

    def act(self, view):
        low, high = map(int, re.search(r"in (\d+) to (\d+)", view.text).groups())
        return Move(f"It is in {low} to {high}.", f"open drawer {self.random.randint(low, high)}")
