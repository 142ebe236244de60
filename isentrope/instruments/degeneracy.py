"""Signs that the policy's responses fall apart.

    duplication        share of the sentences that stand more than once in their response (SEAL, Figure 6). The action
                       is left out: it often repeats what the thought said, and should
    loops              share of the responses that hold a loop: a stretch of at most 32 tokens that stands three times
                       or more in a row, twelve tokens in all at the least
    repeated_actions   share of the turns, from the second of an episode on, with the same action as the turn before
    hallucinated       see hallucination.py

Sentences end at . ! ? and at line breaks and tags; capitals and spaces do not tell them apart.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from isentrope.instruments.hallucination import hallucinated
from isentrope.instruments.means import Metrics
from isentrope.instruments.spoken import ACTION, Spoken
from isentrope.instruments.words import Words
from isentrope.types import Episode

LONGEST_PERIOD = 32  # tokens
TIMES = 3  # that a stretch stands in a row
SHORTEST_LOOP = 12  # tokens in all
FIRST_STEPS = 5  # that length drift is measured against

_ENDS = re.compile(r"(?<=[.!?])\s+|[\n\r]+|</?\w+>")
_LETTER = re.compile(r"\w")


def degeneracy_metrics(episodes: Sequence[Episode], step: Spoken, words: Words | None) -> Metrics:
    """Without `words` nothing is said about sentences."""
    metrics: Metrics = {}
    sentences, twice = duplicated(step, words) if words is not None else (0, 0)
    if sentences:
        metrics["degeneracy/duplication"] = twice / sentences
    if len(step.length_U):
        metrics["degeneracy/loops"] = float(looping(step).mean())
    follow = [(a.action, b.action) for e in episodes for a, b in zip(e.turns, e.turns[1:], strict=False)]
    if follow:
        metrics["degeneracy/repeated_actions"] = sum(a is not None and a == b for a, b in follow) / len(follow)
    sent, invented = hallucinated(episodes)
    if sent:
        metrics["degeneracy/hallucinated"] = invented / sent
    return metrics


def sentences_of(text: str) -> list[str]:
    pieces = (" ".join(piece.split()).casefold() for piece in _ENDS.split(text))
    return [piece for piece in pieces if _LETTER.search(piece)]


def duplicated(step: Spoken, words: Words) -> tuple[int, int]:
    """(sentences in all responses, those of them that stand more than once in their response)."""
    spoken_N = step.part_N != ACTION
    ids = step.ids_N[spoken_N].tolist()
    lengths = np.bincount(step.response_N[spoken_N], minlength=len(step.length_U)).tolist()
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


def looping(step: Spoken) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which responses hold a loop. With period p it is a run of tokens equal to the token p places before."""
    ids_N, response_N = step.ids_N, step.response_N
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


class LengthDrift:
    """Mean length of a response over its mean in the first steps, from the step after those on."""

    def __init__(self) -> None:
        self.first: list[float] = []

    def look(self, metrics: Mapping[str, float | None]) -> Metrics:
        length = metrics.get("response/tokens")
        if length is None or not math.isfinite(length):
            return {}
        if len(self.first) < FIRST_STEPS:
            self.first.append(length)
            return {}
        start = fmean(self.first)
        return {"degeneracy/length_drift": length / start} if start > 0 else {}

    def state_dict(self) -> dict[str, Any]:
        return {"first": list(self.first)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.first = list(state["first"])
