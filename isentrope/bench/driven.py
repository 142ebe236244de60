"""Household world with forced response lengths and random actions, so that two trainers do the same work.

Every response has exactly so many tokens; its tokens, as a number, choose one of the admissible actions. A model with
random weights then plays real games: real prompts, real observations, conversations that differ within a group. Two
trainers sample the same number of tokens and read about the same number of others.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isentrope.config.schema import setting
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.worlds.contract import Expert, Instance, Step, View
from isentrope.worlds.household.rooms import SIZES
from isentrope.worlds.household.world import HouseholdOptions, HouseholdTask, HouseholdWorld

WORLD = "isentrope.bench.driven:DrivenWorld"
WORDS = ("the", "old", "house", "is", "quiet", "and", "nobody", "has", "moved", "anything", "for", "a", "while")


@dataclass(frozen=True)
class DrivenOptions:
    rooms: str = setting("full", "as in the household world", choices=SIZES)
    words: int = setting(0, "words added to the first observation: longer prompts", low=0)


class DrivenWorld:
    """The household world, whose tasks take any number for an action: it chooses among the admissible ones."""

    name = "driven household"

    def __init__(self, options: DrivenOptions | None = None) -> None:
        self.options = options or DrivenOptions()
        self._inner = HouseholdWorld(HouseholdOptions(rooms=self.options.rooms))
        self.kinds, self.splits = self._inner.kinds, self._inner.splits
        self.size, self.instance = self._inner.size, self._inner.instance

    def open(self) -> DrivenTask:
        return DrivenTask(self._inner.open(), self.options.words)

    def expert(self, seed: int) -> Expert | None:
        return None


class DrivenTask:
    def __init__(self, inner: HouseholdTask, words: int) -> None:
        self._inner, self._view = inner, View("", None)
        self._more = " ".join(WORDS[i % len(WORDS)] for i in range(words))

    def start(self, instance: Instance) -> View:
        self._view = self._inner.start(instance)
        text = f"{self._view.text} {self._more}" if self._more else self._view.text
        return View(text, self._view.admissible, self._view.goal, self._view.rules)

    def step(self, action: str) -> Step:
        choices = [action for action in self._view.admissible or () if action != "help"] or ["look"]  # help is a page
        number = int(action) if action.isdecimal() else zlib.crc32(action.encode())
        step = self._inner.step(choices[number % len(choices)])
        self._view = step.view
        # A game that chance has won goes on, so that all conversations have the same number of turns; and the reward
        # is the response's, so that episodes differ and there is something to learn from.
        return Step(step.view, reward=number % 8 / 1000)

    def close(self) -> None:
        self._inner.close()


def action_number(response: Sequence[int]) -> int:
    """The number that a response stands for."""
    return zlib.crc32(np.asarray(response, dtype=np.int32).tobytes())


class DrivenTokenizer:
    """Another tokenizer's tokens, in which no response ends before its length and every response has a valid form."""

    ids_per_token = 1.0

    def __init__(self, inner: ChatTokenizer, length: int) -> None:
        assert length >= 4, "a response needs four tokens for its tags"
        self.length, self.eos_ids = length, frozenset[int]()
        self.pad_id, self.size, self.content, self.opening = inner.pad_id, inner.size, inner.content, inner.opening
        self.user, self.answer, self.end_of_answer = inner.user, inner.answer, inner.end_of_answer
        self.save = inner.save

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """A whole response reads as a thought and an action, the number of its tokens; anything else as dots."""
        if len(ids) != self.length:
            return [b"."] * len(ids)
        thought = [b"<think>", *[b"."] * (self.length - 4), b"</think>"]
        return [*thought, b"<action>%d" % action_number(ids), b"</action>"]
