"""Finds sequences of a group with a common prefix, so that the prefix is computed once.

The episodes of a group start from one prompt, and in `window` context every turn repeats the rules and the goal. A
bundle is a set of sequences that share their first tokens: in a row those stand once, as a segment of their own, and
the rest of each sequence follows as a segment that sees it (the parent). Only tokens in front of the last one before
the first response are shared: that one stays with its sequence, because the response is predicted from it.

    three sequences   p p p a r r      p p p b r      p p p c r r
    one bundle        [p p p] [a r r] [b r] [c r r]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_SAVED_SHARE = {"cpu": 0.25, "cuda": 0.1}
"""Share of a mini-batch's tokens that must be saved: below it the second pass of attention costs more."""
PARENT_COST = 32
"""Tokens that one more parent is reckoned to cost; a shared beginning must save more than that."""
MAX_BUNDLE = 64
"""Sequences in a bundle."""


@dataclass(frozen=True)
class Bundle:
    members: tuple[int, ...]  # numbers of the sequences
    shared: int  # tokens at the beginning that stand once; 0: nothing is shared
    width: int  # tokens in all


@dataclass(frozen=True)
class Beginning:
    """What may be shared of one sequence."""

    number: int
    group: int
    ids: NDArray[np.int64]  # its tokens up to two before the first response
    length: int  # of the whole sequence


def bundles(beginnings: Sequence[Beginning], capacity: int, device: str = "cpu") -> list[Bundle]:
    """All sequences in bundles no wider than the capacity, in the order of their first members; one each if sharing
    does not pay there."""
    groups: dict[int, list[Beginning]] = {}
    for beginning in beginnings:
        groups.setdefault(beginning.group, []).append(beginning)
    found = [bundle for members in groups.values() for bundle in _best(members, capacity)]
    total = sum(b.length for b in beginnings)
    least = MIN_SAVED_SHARE.get(device, MIN_SAVED_SHARE["cpu"])
    if sum(bundle.width for bundle in found) > (1 - least) * total:
        return [Bundle((b.number,), 0, b.length) for b in beginnings]
    return sorted(found, key=lambda bundle: bundle.members)


def _best(members: Sequence[Beginning], capacity: int) -> list[Bundle]:
    """The cheapest way to cut the members, sorted by their tokens, into neighbours that share what all have."""
    ordered = sorted(members, key=lambda b: (b.ids.astype(">i8").tobytes(), b.number))
    alike = [_common(a.ids, b.ids) for a, b in itertools.pairwise(ordered)]
    lengths = np.array([b.length for b in ordered])
    cost, begins, shares = np.zeros(len(ordered) + 1), [0], [0]
    for end in range(1, len(ordered) + 1):
        first = max(0, end - MAX_BUNDLE)
        count = np.arange(1, end - first + 1)  # members of the last bundle, one to all
        common = np.concatenate([[0], np.minimum.accumulate(np.array(alike[first : end - 1][::-1], dtype=np.int64))])
        width = np.cumsum(lengths[first:end][::-1]) - (count - 1) * common
        price = width + np.where(common > 0, PARENT_COST, 0) + cost[end - count]
        price[1:][(width[1:] > capacity) | (common[1:] == 0)] = np.inf
        best = int(np.argmin(price))
        cost[end] = price[best]
        begins.append(end - int(count[best]))
        shares.append(int(common[best]))
    found: list[Bundle] = []
    end = len(ordered)
    while end:
        chosen, shared = ordered[begins[end] : end], shares[end]
        width = sum(b.length for b in chosen) - (len(chosen) - 1) * shared
        found.append(Bundle(tuple(sorted(b.number for b in chosen)), shared, width))
        end = begins[end]
    return found


def _common(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """How many tokens two sequences share at their beginning."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size
