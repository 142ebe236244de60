"""The words around a task. One `Wording` per world and style; worlds without one get the general wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.errors import ConfigError

_FORM = {
    "think_act": (
        "Answer every message with your reasoning and one action, in exactly this form and nothing else:\n"
        "<think>what you know and what to do next</think><action>the action</action>"
    ),
    "act_think": (
        "Answer every message with one action and the reasons for it, in exactly this form and nothing else:\n"
        "<action>the action</action><think>why this is the right action</think>"
    ),
    "act": "Answer every message with one action, in exactly this form and nothing else:\n<action>the action</action>",
}
_HOUSEHOLD = (
    "You look after a house and carry out one errand in it, step by step. You can walk to furniture and appliances, "
    "open and close them, pick things up, put them down, and clean, heat, cool, slice or switch on things. You carry "
    "one thing at a time. Actions look like: go to X, open X, close X, take A from X, move A to X, clean A with X, "
    "heat A with X, cool A with X, slice A with B, use A, examine X, look, inventory."
)
_GENERAL = "You work on one task, step by step. After each action you are told what happened."


@dataclass(frozen=True)
class Wording:
    """`system` by response order; the other texts are built from what the task shows."""

    system: dict[str, str]
    brief: bool = False

    def first(self, goal: str, observation: str, choices: Sequence[str] | None) -> str:
        if self.brief:
            return f"{observation} {goal}{_listed(choices)}"
        return f"{goal}\n\n{observation}{_listed(choices)}"

    def next(self, observation: str, choices: Sequence[str] | None) -> str:
        return observation + _listed(choices)

    def shortened(self, goal: str, start: str, count: int, message: str) -> str:
        """The first message of a conversation whose first `count` steps are left out; then `message` was told."""
        steps = f"({count} earlier step{'s' if count != 1 else ''} left out)"
        if self.brief:
            return f"{start} {goal} {steps} {message}"
        return f"{goal}\n\n{start}\n\n{steps}\n\n{message}"

    def window(
        self, goal: str, past: Sequence[tuple[str, str]], count: int, observation: str, choices: Sequence[str] | None
    ) -> str:
        if not count:
            return self.first(goal, observation, choices)
        lines = [goal, f"You have taken {count} step{'s' if count != 1 else ''} so far."]
        if past:
            lines.append(f"The last {len(past)}:" if len(past) > 1 else "The last one:")
        lines += [f"[{count - len(past) + i + 1}] {seen}\n> {did}" for i, (seen, did) in enumerate(past)]
        lines.append(f"Now: {observation}{_listed(choices)}")
        return (" " if self.brief else "\n").join(lines)


def _listed(choices: Sequence[str] | None) -> str:
    return "\nPossible actions: " + "; ".join(choices) if choices else ""


def _system(task: str) -> dict[str, str]:
    return {order: f"{task}\n{form}" for order, form in _FORM.items()}


_WORDINGS: dict[tuple[str, str], Wording] = {
    ("household", "full"): Wording(_system(_HOUSEHOLD)),
    ("household", "brief"): Wording({"think_act": "", "act_think": "act", "act": "no think"}, brief=True),
    ("", "full"): Wording(_system(_GENERAL)),
    ("", "brief"): Wording({"think_act": "", "act_think": "act", "act": "no think"}, brief=True),
}


def wording(world: str, style: str) -> Wording:
    found = _WORDINGS.get((world, style)) or _WORDINGS.get(("", style))
    if found is None:
        raise ConfigError(f"agent.prompt = {style!r}: expected one of full, brief")
    return found


NO_ACTION = "No valid action in your answer."
"""What the agent reads after a response from which no action could be taken; the task is not stepped."""
