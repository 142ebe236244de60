"""Builds the prompt before each response: one growing conversation, or a prompt of its own per turn.

`prompt()` always gives all tokens before the next response. The prefix rule (`split_prefix`) then tells
whether they continue what was there before: if so, only the new tokens are stored, computed and packed.

A conversation that outgrows its limit loses its oldest turns, never a part of a message. What was sampled stays
exactly as it was: the conversation begins anew with a first message that says how many steps are left out, and the
tokens of the later turns are put behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.agent.prompts import Wording, wording
from isentrope.config.schema import AgentSettings
from isentrope.core.tokenizer import ACTION, ChatTokenizer, neutral
from isentrope.core.types import Episode
from isentrope.worlds.contract import View

KEPT = 0.75  # of the limit, once turns are left out: room for several turns until it has to be done again


def continues(before: Sequence[int], prompt: Sequence[int]) -> bool:
    """Whether `prompt` starts with all of `before`, which is not empty, and goes on."""
    count = len(before)
    if not 0 < count < len(prompt) or prompt[count - 1] != before[-1]:
        return False
    beginning = prompt[:count]
    return beginning == before if type(beginning) is type(before) is list else list(beginning) == list(before)


def split_prefix(before: Sequence[int], prompt: Sequence[int]) -> tuple[bool, list[int]]:
    """Whether `prompt` starts with all of `before`, and the tokens of it that are new."""
    goes_on = continues(before, prompt)
    return goes_on, list(prompt[len(before) :] if goes_on else prompt)


def context_lengths(episode: Episode) -> list[int]:
    """Tokens in front of each response; a turn that continues has the earlier turns in front of it too."""
    lengths: list[int] = []
    before = 0
    for turn in episode.turns:
        length = len(turn.context_ids) + (before if turn.continues else 0)
        lengths.append(length)
        before = length + len(turn.response_ids)
    return lengths


def closing(tokenizer: ChatTokenizer, answer: Sequence[int]) -> list[int]:
    """What closes an answer, unless the policy closed it itself."""
    end = tokenizer.end_of_answer()
    return [] if end and list(answer[-1:]) == end[-1:] else end


def longest_prompt(tokenizer: ChatTokenizer, agent: AgentSettings) -> int:
    """How many ids a prompt may have, so that the next response still fits."""
    return int((agent.max_context - agent.max_response) * tokenizer.ids_per_token)


@dataclass(frozen=True)
class _Past:
    """A turn that has been answered."""

    observation: str
    message: str  # the observation as it was told in the conversation
    action: str
    response: list[int]


@dataclass
class Context:
    """The conversation of one episode. `window` is None for one growing conversation."""

    tokenizer: ChatTokenizer
    wording: Wording
    order: str
    window: int | None
    show_admissible: bool
    limit: int | None = None  # a prompt of more ids loses its oldest turns; None: it may grow
    dropped: int = 0  # turns left out of the last prompt for its length
    tokens: list[int] = field(default_factory=list[int])  # everything up to and with the last response
    past: list[_Past] = field(default_factory=list[_Past])
    links: list[list[int]] = field(default_factory=list[list[int]])  # what stands between a response and the next one
    pending: tuple[str, str] = ("", "")  # observation and message that wait for an answer
    rules: str = ""  # what the task last said about its world
    tags: tuple[str, ...] = ACTION
    added: list[int] | None = None  # what the last prompt has behind `tokens`; None if that has to be looked for

    @classmethod
    def of(cls, tokenizer: ChatTokenizer, agent: AgentSettings, order: str) -> Context:
        window = agent.window if agent.context == "window" else None
        limit = longest_prompt(tokenizer, agent) if agent.overflow == "drop" else None
        told, tags = wording(agent.prompt), agent.action_tags
        return cls(tokenizer, told, order, window, agent.show_admissible, limit, tags=tags)

    def prompt(self, view: View) -> list[int]:
        """All tokens before the next response, given what the task shows now."""
        shown = (view.admissible or ()) if self.show_admissible else ()
        choices = tuple(neutral(action, self.tags) for action in shown) or None
        goal, observation, self.rules = (neutral(text, self.tags) for text in (view.goal, view.text, view.rules))
        self.pending, self.added = (observation, self.wording.next(observation, choices)), None
        if self.window is not None:
            return self._window(goal, observation, choices)
        if not self.past:
            return self._opened(self.wording.first(goal, observation, choices))
        link = [*closing(self.tokenizer, self.past[-1].response), *self.tokenizer.user(self.pending[1])]
        self.links = [*self.links[: len(self.past) - 1], link]
        whole = [*self.tokens, *link]
        if self.limit is not None and len(whole) > self.limit:
            return self._shortened(goal, whole)
        self.added = link
        return whole

    def split(self, prompt: Sequence[int]) -> tuple[bool, list[int]]:
        """`split_prefix` of the last prompt, without a look at its tokens where it is known how it came about."""
        return (True, self.added) if self.added and self.tokens else split_prefix(self.tokens, prompt)

    def answered(self, prompt: Sequence[int], response: Sequence[int], action: str | None) -> None:
        """Record the response to the last prompt."""
        observation, message = self.pending
        self.past.append(_Past(observation, message, "(no valid action)" if action is None else action, list(response)))
        self.tokens = [*prompt, *response]

    def _opened(self, message: str) -> list[int]:
        return self.tokenizer.opening(self.wording.system(self.order, self.rules, self.tags), message)

    def _window(self, goal: str, observation: str, choices: tuple[str, ...] | None) -> list[int]:
        """A prompt of its own, with as many of the window's turns as fit."""
        most = min(self.window or 0, len(self.past))
        prompt: list[int] = []
        for shown in range(most, -1, -1):
            past = [(turn.observation, turn.action) for turn in self.past[len(self.past) - shown :]]
            prompt = self._opened(self.wording.window(goal, past, len(self.past), observation, choices))
            self.dropped = most - shown
            if self.limit is None or len(prompt) <= self.limit:
                break
        return prompt

    def _shortened(self, goal: str, whole: list[int]) -> list[int]:
        """The conversation without its oldest turns: of the first one the observation stays. As it was if no way fits.

        The message that the first kept answer was given to stands in the new first message, behind a note.
        """
        assert self.limit is not None
        messages = [*(turn.message for turn in self.past), self.pending[1]]
        # Only what the new first message takes has to be encoded, and only where the rest is short enough.
        rest = [len(turn.response) + len(link) for turn, link in zip(self.past, self.links, strict=True)]
        for count in range(self.dropped + 1, len(messages)):
            if sum(rest[count:]) > KEPT * self.limit:
                continue
            message = self.wording.shortened(goal, self.past[0].observation, count, messages[count])
            kept = self._opened(message)
            for turn, link in zip(self.past[count:], self.links[count:], strict=True):
                kept += [*turn.response, *link]
            enough = KEPT * self.limit if count < len(messages) - 1 else self.limit
            if len(kept) <= enough:
                self.dropped = count
                return kept
        return whole
