"""What stored episodes show of how games are played: what is read, said and accepted.

Nothing here knows a world or a fault: whether an observation answers the action before it, whether it is cut, what
kinds of actions are accepted, whether the episodes of a group are one and the same, in which form responses are and how
long games last.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from isentrope.core.types import FAILURES, Episode, Turn

_NAMES = re.compile(r"[a-z]+ \d+|[a-z]{5,}")  # what an action is about: `drawer 2`, `sofa`
_VERB = re.compile(r"[a-z_]{1,20}")


@dataclass(frozen=True)
class Played:
    episodes: int = 0
    turns: int = 0
    said: dict[str, int] = field(default_factory=dict[str, int])  # actions by their first word
    accepted: dict[str, int] = field(default_factory=dict[str, int])
    listed: dict[str, int] = field(default_factory=dict[str, int])  # those that the observation had listed
    refused: dict[str, int] = field(default_factory=dict[str, int])  # ... and that were refused all the same
    answers: tuple[float, float, int] = (0.0, 0.0, 0)  # see `answered`
    longest: int = 0  # characters of the longest observation
    at_longest: float = 0.0  # share of the different observations that have so many
    observations: int = 0  # different ones
    groups: int = 0  # with two episodes and more
    same: float = 0.0  # share of them whose episodes say the same, token by token
    surprise: float = 0.0  # nats: minus the log-prob of all that is said in an episode, the median
    thoughts: float = 0.0  # share of the turns with a thought
    most_turns: int = 0  # of an episode
    ended: float = 0.0  # share of the episodes that the task ended by itself
    one_logprob: float | None = None  # of every token, if all have the same


def played(episodes: Sequence[Episode]) -> Played:
    episodes = [episode for episode in episodes if episode.stop not in FAILURES]
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        return Played(len(episodes))
    said, accepted, listed, refused = (Counter[str]() for _ in range(4))
    for verb, turn in _verbs(turns):
        said[verb] += 1
        accepted[verb] += turn.valid
        if turn.admissible is not None and turn.action in turn.admissible:
            listed[verb] += 1
            refused[verb] += not turn.valid
    texts = {turn.observation for turn in turns}
    longest = max(map(len, texts))
    groups = _groups(episodes)
    return Played(
        len(episodes), len(turns), dict(said), dict(accepted), dict(listed), dict(refused),
        answered(episodes), longest, fmean(len(text) == longest for text in texts), len(texts),
        len(groups), fmean(len(group) == 1 for group in groups) if groups else 0.0,
        median(-sum(float(turn.logprobs.sum()) for turn in episode.turns) for episode in episodes),
        fmean(turn.think_span is not None for turn in turns), max(len(episode.turns) for episode in episodes),
        fmean(episode.stop == "terminated" for episode in episodes), _one_logprob(turns),
    )  # fmt: skip


def _verbs(turns: Iterable[Turn]) -> Iterable[tuple[str, Turn]]:
    for turn in turns:
        if turn.action and (found := _VERB.match(turn.action)):
            yield found[0], turn


def answered(episodes: Sequence[Episode]) -> tuple[float, float, int]:
    """Which share of what an action names, and the next action does not, the next observation has; the same of the one
    after that; and of how many actions this is the mean. What a world says of an action comes at once, so the second
    is next to nothing."""
    now, late = list[float](), list[float]()
    for episode in episodes:
        for (turn, after), (_, later) in pairwise(pairwise(episode.turns)):
            about = _named(turn.action) - _named(after.action)
            if about:
                now.append(len(about & _named(after.observation)) / len(about))
                late.append(len(about & _named(later.observation)) / len(about))
    return (fmean(now), fmean(late), len(now)) if now else (0.0, 0.0, 0)


def _named(text: str | None) -> set[str]:
    return set(_NAMES.findall((text or "").lower()))


def _groups(episodes: Sequence[Episode]) -> list[set[bytes]]:
    """For each group with two episodes and more, the different things that were said in it."""
    found, sizes = defaultdict[int, set[bytes]](set), Counter[int]()
    for episode in episodes:
        words = b"/".join(turn.response_ids.tobytes() for turn in episode.turns)
        found[episode.group].add(words)
        sizes[episode.group] += 1
    return [texts for group, texts in found.items() if sizes[group] > 1]


def _one_logprob(turns: Sequence[Turn]) -> float | None:
    logprob_N = np.concatenate([turn.logprobs for turn in turns])
    same = len(logprob_N) >= 100 and logprob_N[0] != 0 and np.ptp(logprob_N) == 0
    return float(logprob_N[0]) if same else None
