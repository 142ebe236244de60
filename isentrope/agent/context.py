"""What the policy is shown before each response: one growing conversation, or a prompt of its own per turn.

`prompt()` always gives all tokens before the next response. The prefix rule (`split_prefix`) then tells
whether they continue what was there before: if so, only the new tokens are stored, computed and packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.agent.prompts import Wording
from isentrope.agent.tokens import Dialect, neutral
from isentrope.tasks.contract import View


def split_prefix(before: Sequence[int], prompt: Sequence[int]) -> tuple[bool, list[int]]:
    """Whether `prompt` starts with all of `before`, and the tokens of it that are new."""
    count = len(before)
    if count and len(prompt) > count and list(prompt[:count]) == list(before):
        return True, list(prompt[count:])
    return False, list(prompt)


@dataclass
class Context:
    """The conversation of one episode. `window` is None for one growing conversation."""

    dialect: Dialect
    wording: Wording
    order: str
    window: int | None
    show_admissible: bool
    tokens: list[int] = field(default_factory=list[int])  # everything up to and with the last response
    past: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # (observation, action) of past turns
    pending: str = ""

    def prompt(self, view: View) -> list[int]:
        """All tokens before the next response, given what the task shows now."""
        self.pending = neutral(view.text)
        choices = tuple(neutral(a) for a in view.admissible) if self.show_admissible and view.admissible else None
        goal = neutral(view.goal)
        if self.window is not None:
            past = self.past[-self.window :] if self.window else []
            message = self.wording.window(goal, past, len(self.past), self.pending, choices)
            return self.dialect.system(self.wording.system[self.order]) + self.dialect.user(message)
        if not self.tokens:
            message = self.wording.first(goal, self.pending, choices)
            return self.dialect.system(self.wording.system[self.order]) + self.dialect.user(message)
        new = [*self.dialect.end_of_answer(), *self.dialect.user(self.wording.next(self.pending, choices))]
        if self.tokens[-1] in self.dialect.eos_ids and new[0] == self.tokens[-1]:
            new = new[1:]  # the policy closed its answer itself
        return [*self.tokens, *new]

    def answered(self, prompt: Sequence[int], response: Sequence[int], action: str | None) -> None:
        """Record the response to the last prompt."""
        self.past.append((self.pending, action if action is not None else "(no valid action)"))
        self.tokens = [*prompt, *response]
