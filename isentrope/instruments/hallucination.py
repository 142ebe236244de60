"""Actions that name something which is not there.

An action is hallucinated if the task refused it and it names something that stood in none of the episode's observations
so far, nor in the goal, nor in any action that the task listed as possible. A name is a word, or a word with a number
("cabinet 7", and cabinet 7 is not there because cabinet 3 is). The first word of an action says what to do rather than
to what, and words like "to" and "with" name nothing. An action that the task carried out named nothing wrong; so free
text, such as what to search for, does not count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from isentrope.types import Episode, Turn

_NAME = re.compile(r"([^\W\d_]+)(?:\s+(\d+)\b)?|\d+")
_LITTLE = frozenset(
    {"a", "an", "and", "as", "at", "by", "for", "from", "in", "inside", "into", "it", "its", "my", "of", "off", "on"}
    | {"onto", "or", "out", "over", "so", "that", "the", "them", "then", "there", "this", "to", "under", "until", "up"}
    | {"using", "with", "within"}
)


def hallucinated(episodes: Sequence[Episode]) -> tuple[int, int]:
    """(actions sent to the tasks, those of them that were hallucinated)."""
    sent = invented = 0
    names: dict[str, frozenset[str]] = {}  # by text: the episodes of a group begin with the same one
    for episode in episodes:
        sent += sum(turn.action is not None for turn in episode.turns)
        if any(_refused(turn) for turn in episode.turns):
            invented += _invented(episode, names)
    return sent, invented


def named(action: str) -> list[str]:
    """What an action names, its first word left out."""
    found = [_written(match) for match in _NAME.finditer(action.casefold())]
    return [name for name in found[1:] if name not in _LITTLE]


def mentioned(text: str) -> frozenset[str]:
    """Every name in a text; a word with a number is there as a word too."""
    found: set[str] = set()
    for match in _NAME.finditer(text.casefold()):
        found |= {_written(match), match[1] or match[0]} | ({match[2]} if match[2] else set())
    return frozenset(found)


def _invented(episode: Episode, names: dict[str, frozenset[str]]) -> int:
    known: set[str] = set()
    count = 0
    texts = [episode.goal]
    for turn in episode.turns:
        texts += [turn.observation, *(turn.admissible or ())]
        if not _refused(turn):
            continue
        for text in texts:
            if text not in names:
                names[text] = mentioned(text)
            known |= names[text]
        texts = []
        count += any(name not in known for name in named(turn.action or ""))
    return count


def _refused(turn: Turn) -> bool:
    return turn.verdict == "inadmissible" and turn.action is not None


def _written(match: re.Match[str]) -> str:
    """`cabinet 07` is cabinet 7. Not by int(), which refuses thousands of digits: a task may say anything."""
    return f"{match[1]} {match[2].lstrip('0') or '0'}" if match[2] else match[0]
