"""Expert that follows the gold path, the solution that the simulator works out for a variation.

The solution comes without reasons. So the thought that goes with an action claims no more than the action itself tells.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import lru_cache

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Move, View
from isentrope.worlds.scienceworld.simulator import Machines, Simulator

_WORDS = (  # the first form that fits
    (r"teleport to (.+)", "I go straight to the {0}."), (r"go (?:to )?(.+)", "I go on to the {0}."),
    (r"open (door .+)", "To get through I open the {0}."),
    (r"(open|close|read|disconnect|eat|flush) (.+)", "I {0} the {1}."),
    (r"look around", "I look at what is in this room."), (r"look in (.+)", "I check what is in the {0}."),
    (r"(?:look at|examine) (.+)", "I check the {0}."), (r"inventory", "I check what I carry."),
    (r"pick up (.+)", "I need the {0}. I take it along."), (r"(?:put down|drop) (.+)", "I put the {0} down here."),
    (r"move (.+) to (.+)", "I put the {0} in or on the {1}."), (r"mix (.+)", "I mix what is in the {0}."),
    (r"pour (.+) in(?:to)? (.+)", "I pour the {0} into the {1}."),
    (r"dunk (.+) in(?:to)? (.+)", "I fill the {0} from the {1}."),
    (r"activate (.+)", "I switch the {0} on."), (r"deactivate (.+)", "I switch the {0} off."),
    (r"use (.+) on (.+)", "I use the {0} on the {1}."),
    (r"connect (.+) to (.+)", "For the circuit I connect the {0} to the {1}."),
    (r"focus on (.+)", "The {0} is what the task asks for. I focus on it."),
    (r"wait1", "This takes a little time. I wait one step."), (r"wait.*", "This takes time. I wait."),
    (r"\d+", "Several things could be meant. I choose number {whole}."),
)  # fmt: skip
_TASK = re.compile(r"Your task is to (.+?)(?:\.\s|\.?$)", re.DOTALL)


def thought(action: str, goal: str, first: bool) -> str:
    """A sentence for an action of the solution. The first one also says what the task is."""
    said = f"Next: {action}."
    for form, words in _WORDS:
        if match := re.fullmatch(form, action):
            said = words.format(*(part.removeprefix("the ") for part in match.groups()), whole=match[0])
            break
    task = _TASK.search(goal) if first else None
    return f"I am to {' '.join(task[1].split())}. {said}" if task else said


KEPT = 2000  # solutions
LOST = Move("I know no solution from here. I look around.", "look around")
Solution = list[tuple[str, str]]  # (action, what is seen before it), up to the end of the task


class Solver:
    """Solutions, each worked out once, in a simulator of its own."""

    def __init__(self, machines: Machines, simplifications: str) -> None:
        self._machines = machines
        self._simplifications = simplifications
        self._known = lru_cache(KEPT)(self._played)
        self._simulator: Simulator | None = None
        self._lock = threading.Lock()

    def solution(self, task: str, variation: int) -> Solution:
        with self._lock:
            try:
                return self._known(task, variation)
            except TaskError:  # its process may have died of something else: once more, in a new one
                self._simulator = None
                return self._known(task, variation)

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
        return list(zip(path, seen, strict=False))


class GoldExpert:
    """Follows the solution as long as the game does, and says so when it has left it (a person may play otherwise)."""

    def __init__(self, solver: Solver, variation_of: Callable[[Instance], int]) -> None:
        self._solver = solver
        self._variation_of = variation_of

    def start(self, view: View, instance: Instance) -> None:
        self._solution = self._solver.solution(instance.kind, self._variation_of(instance))
        self._turn, self.turns = 0, len(self._solution)

    def act(self, view: View) -> Move:
        turn, solution = self._turn, self._solution
        if turn >= len(solution) or not view.text.startswith(solution[turn][1]):
            return LOST
        self._turn += 1
        action = solution[turn][0]
        return Move(thought(action, view.goal, first=turn == 0), action)
