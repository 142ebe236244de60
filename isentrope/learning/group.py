"""What the ranks of a learner do together, and which part of the work is whose.

A loss is a sum of weight · value whose weights sum to 1 over the whole mini-batch (core/token_weights.py). So each rank
computes its own sequences with the weights of all, and the sum of the ranks' gradients is the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from isentrope.learning.tokens import TokenSequence
from isentrope.models.policy import Policy

T = TypeVar("T")


class Group(Protocol):
    """All ranks. Each of these is called by all of them, in the same order."""

    rank: int
    size: int

    def all_of(self, value: T) -> list[T]:
        """Every rank's, in their order."""
        ...

    def add(self, tensor: Tensor) -> None:
        """In place: the sum over the ranks."""
        ...

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """In place: what the first rank has of each."""
        ...

    def part_of_sum(self, whole: Tensor) -> Tensor:
        """Of as many equal parts as there are ranks the own one, summed over the ranks."""
        ...

    def joined(self, part: Tensor) -> Tensor:
        """The parts of all ranks, one behind the other."""
        ...

    def joined_at_first(self, part: Tensor) -> Tensor | None:
        """The same at the first rank; None at the others."""
        ...

    def part_from_first(self, whole: Tensor | None, part: Tensor) -> None:
        """The opposite: the own part of what the first rank has, into `part`."""
        ...


class Alone:
    """One process does everything."""

    rank, size = 0, 1

    def all_of(self, value: T) -> list[T]:
        return [value]

    def add(self, tensor: Tensor) -> None: ...

    def spread(self, tensors: Iterable[Tensor]) -> None: ...

    def part_of_sum(self, whole: Tensor) -> Tensor:
        return whole

    def joined(self, part: Tensor) -> Tensor:
        return part

    def joined_at_first(self, part: Tensor) -> Tensor:
        return part

    def part_from_first(self, whole: Tensor | None, part: Tensor) -> None:
        if whole is not None:
            part.copy_(whole)


ALONE: Group = Alone()


def costs(lengths: NDArray[np.int64], responses: NDArray[np.int64], policy: Policy) -> NDArray[np.float64]:
    """Multiplications, about, that each sequence takes: every token those of the layers' weights, every response token
    those of the head, and attention's square. A layer of width D has about 12 D² weights and takes D · length² for it.
    """
    words, width = policy.model.head_weight().shape
    body = max(1, policy.size - words * width)
    return lengths * (body + lengths * body / (12.0 * width)) + responses * float(words * width)


def shares(cost: NDArray[np.float64], groups: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The rank of each sequence: parts of equal cost. Those of a group stand side by side, so that what they have in
    common is computed once; no part has more than the mean and half of its first and last sequence."""
    rank = np.zeros(len(cost), dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(cost[order])
    if len(cost):
        rank[order] = np.minimum((ends - cost[order] / 2) / ends[-1] * size, size - 1).astype(np.int64)
    return rank


def own_part(sequences: Sequence[TokenSequence], policy: Policy, group: Group) -> tuple[list[TokenSequence], bool]:
    """The sequences of this rank. One without any takes the shortest, which is not to count (`False`): all ranks
    compute something, and know the same parts of a method's."""
    if group.size == 1 or not sequences:
        return list(sequences), True
    lengths = np.array([len(sequence.ids) for sequence in sequences])
    cost = costs(lengths, np.array([len(sequence.tokens) for sequence in sequences]), policy)
    rank = shares(cost, np.array([sequence.group for sequence in sequences]), group.size)
    own = [sequence for sequence, its in zip(sequences, rank.tolist(), strict=True) if its == group.rank]
    return (own, True) if own else ([sequences[int(cost.argmin())]], False)
