"""Measures degenerate responses: repetition, and actions that name something which is not there.

    duplication        share of the sentences that stand more than once in their response (SEAL, Figure 6). The action
                       is left out: it often repeats what the thought said, and should
    loops              share of the responses that hold a loop: a stretch of at most 32 tokens that stands three times
                       or more in a row, twelve tokens in all at the least
    repeated_actions   share of the turns, from the second of an episode on, with the same action as the turn before
    hallucinated       share of the actions that name something which is not there

Sentences end at . ! ? and at line breaks and tags; capitals and spaces do not tell them apart.

An action is hallucinated if the task refused it and it names something that stood in none of the episode's
observations so far, nor in the goal, nor in any action that the task listed as possible. A name is a word, or a word
with a number ("cabinet 7", and cabinet 7 is not there because cabinet 3 is). The first word of an action says what to
do rather than to what, and words like "to" and "with" name nothing. An action that the task carried out named nothing
wrong; so free text, such as what to search for, does not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from isentrope.core.types import Episode, StepTokens, Turn
from isentrope.learning.tokens import ACTION
from isentrope.metrics.means import Metrics
from isentrope.runs.token_texts import TokenTexts

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


LONGEST_PERIOD = 32  # tokens
TIMES = 3  # that a stretch stands in a row
SHORTEST_LOOP = 12  # tokens in all

_ENDS = re.compile(r"(?<=[.!?])\s+|[\n\r]+|</?\w+>")
_LETTER = re.compile(r"\w")


def degeneracy_metrics(episodes: Sequence[Episode], step: StepTokens, words: TokenTexts | None) -> Metrics:
    """Without `words` nothing is said about sentences."""
    metrics: Metrics = {}
    sentences, twice = duplicated(step, words) if words is not None else (0, 0)
    if sentences:
        metrics["degeneracy/duplication"] = twice / sentences
    if len(step.length_U):
        metrics["degeneracy/loops"] = float(looping(step).mean())
    if follow := [(a.action, b.action) for e in episodes for a, b in pairwise(e.turns)]:
        metrics["degeneracy/repeated_actions"] = sum(a is not None and a == b for a, b in follow) / len(follow)
    sent, invented = hallucinated(episodes)
    if sent:
        metrics["degeneracy/hallucinated"] = invented / sent
    return metrics


def sentences_of(text: str) -> list[str]:
    pieces = (" ".join(piece.split()).casefold() for piece in _ENDS.split(text))
    return [piece for piece in pieces if _LETTER.search(piece)]


def duplicated(step: StepTokens, words: TokenTexts) -> tuple[int, int]:
    """(sentences in all responses, those of them that stand more than once in their response)."""
    outside_N = step.part_N != ACTION
    ids = step.target_N[outside_N].tolist()
    lengths = np.bincount(step.turn_N[outside_N], minlength=len(step.length_U)).tolist()
    total = twice = at = 0
    seen: dict[tuple[int, ...], tuple[int, int]] = {}  # a small model says the same thing many times
    for length in lengths:
        said = tuple(ids[at : at + length])
        at += length
        if said not in seen:
            counts = Counter(sentences_of(words.text(said)))
            seen[said] = (sum(counts.values()), sum(count for count in counts.values() if count > 1))
        total, twice = total + seen[said][0], twice + seen[said][1]
    return total, twice


def looping(step: StepTokens) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which responses hold a loop. With period p it is a run of tokens equal to the token p places before."""
    ids_N, response_N = step.target_N, step.turn_N
    found_U = np.zeros(len(step.length_U), dtype=np.bool_)
    longest = int(step.length_U.max(initial=0))
    for period in range(1, min(LONGEST_PERIOD, longest // TIMES) + 1):
        run = max((TIMES - 1) * period, SHORTEST_LOOP - period)
        same = (ids_N[period:] == ids_N[:-period]) & (response_N[period:] == response_N[:-period])
        if len(same) < run:
            continue
        before = np.concatenate([[0], np.cumsum(same)])
        starts = np.flatnonzero(before[run:] - before[:-run] == run)
        found_U[response_N[starts]] = True
    return found_U
