"""Prompt texts around a task. The rules of the world come from the task itself (`View.rules`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.agent.response_format import PLAIN
from isentrope.core.errors import ConfigError
from isentrope.core.tokenizer import ACTION

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
_BRIEF = {"think_act": "", "act_think": "act", "act": "no think", PLAIN: "plain"}
_GENERAL = "You work on one task, step by step. After each action you are told what happened."


@dataclass(frozen=True)
class Wording:
    """Texts built from what the task shows. `brief` has next to none of its own: it suits the pocket model."""

    brief: bool = False

    def system(self, order: str, rules: str, tags: tuple[str, ...] = ACTION) -> str:
        """What the agent is told before the first turn: the task's rules, and the form of a response."""
        if self.brief:
            return _BRIEF[order]
        if order == PLAIN:
            return rules  # nothing but what the task says: a model answers as it always does
        form = _FORM[order]
        if tags != ACTION:
            blocks = " or ".join(f"<{tag}>…</{tag}>" for tag in tags)
            form = form.replace("<action>the action</action>", "ACTION")
            form += f"\nwhere ACTION is one of {blocks}; the action NAME[X] is written <NAME>X</NAME>."
        return f"{rules or _GENERAL}\n{form}"

    def first(self, goal: str, observation: str, choices: Sequence[str] | None) -> str:
        if self.brief:
            return " ".join(filter(None, (observation, goal))) + _listed(choices)
        return "\n\n".join(filter(None, (goal, observation))) + _listed(choices)

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


def wording(style: str) -> Wording:
    if style not in ("full", "brief"):
        raise ConfigError(f"agent.prompt = {style!r}: expected one of full, brief")
    return Wording(brief=style == "brief")


NO_ACTION = "No valid action in your answer."
"""What the agent reads after a response from which no action could be taken; the task is not stepped."""
