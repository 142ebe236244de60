"""A player that knows the solution: the gold path that the simulator works out for a variation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Move, View
from isentrope.tasks.scienceworld.machines import Machines
from isentrope.tasks.scienceworld.simulator import Simulator
from isentrope.tasks.scienceworld.thoughts import thought

KEPT = 2000  # solutions
LOST = Move("I know no solution from here. I look around.", "look around")


@dataclass(frozen=True)
class Solution:
    """The actions up to the end of the task, and what is seen before each."""

    actions: tuple[str, ...]
    seen: tuple[str, ...]


class Solver:
    """Solutions, each worked out once, in a simulator of its own."""

    def __init__(self, machines: Machines, simplifications: str) -> None:
        self._machines = machines
        self._simplifications = simplifications
        self._known: dict[tuple[str, int], Solution] = {}
        self._simulator: Simulator | None = None
        self._lock = threading.Lock()

    def solution(self, task: str, variation: int) -> Solution:
        with self._lock:
            if (task, variation) not in self._known:
                while len(self._known) >= KEPT:
                    del self._known[next(iter(self._known))]
                self._known[task, variation] = self._worked_out(task, variation)
            return self._known[task, variation]

    def _worked_out(self, task: str, variation: int) -> Solution:
        try:
            return self._played(task, variation)
        except TaskError:  # its process may have died of something else: once more, in a new one
            self._simulator = None
            return self._played(task, variation)

    def _played(self, task: str, variation: int) -> Solution:
        """The gold path goes on after the task is done; played once, it is known where to stop."""
        if self._simulator is None:
            self._simulator = self._machines.take(slow=True)
        path = self._simulator.gold_path(task, variation, self._simplifications)
        _, reading = self._simulator.load(task, variation, self._simplifications)
        seen = [reading.text]
        for action in path:
            reading = self._simulator.step(action)
            if reading.completed or reading.score < 0:
                break
            seen.append(reading.text)
        return Solution(tuple(path[: len(seen)]), tuple(seen))


class GoldExpert:
    """Follows the solution as long as the game does, and says so when it has left it (a person may play otherwise)."""

    def __init__(self, solver: Solver, variation_of: Callable[[Instance], int]) -> None:
        self._solver = solver
        self._variation_of = variation_of

    def start(self, view: View, instance: Instance) -> None:
        self._solution = self._solver.solution(instance.kind, self._variation_of(instance))
        self._turn = 0

    def act(self, view: View) -> Move:
        turn, solution = self._turn, self._solution
        if turn >= len(solution.actions) or not view.text.startswith(solution.seen[turn]):
            return LOST
        self._turn += 1
        action = solution.actions[turn]
        return Move(thought(action, view.goal, first=turn == 0), action)
