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

from isentrope.learning.prefix_sharing import Bundle
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


def costs(found: Sequence[Bundle], sequences: Sequence[TokenSequence], policy: Policy) -> NDArray[np.float64]:
    """Multiplications, about, that each bundle takes: every token those of the layers' weights, every response token
    those of the head, and attention's square. A layer of width D has about 12 D² weights and takes D · length² for it.
    """
    words, width = policy.model.head_weight().shape
    body = float(max(1, policy.size - words * width))

    def cost(bundle: Bundle) -> float:
        members = [sequences[number] for number in bundle.members]
        square = sum(len(sequence.ids) ** 2 for sequence in members)
        responses = sum(len(sequence.tokens) for sequence in members)
        return body * (bundle.width + square / (12 * width)) + words * width * responses

    return np.array([cost(bundle) for bundle in found])


def ranks_of(cost: NDArray[np.float64], size: int) -> list[int]:
    """The rank of each piece of work: the dearest first, each to the rank that has least."""
    rank, load = [0] * len(cost), [0.0] * size
    for number in np.argsort(-cost, kind="stable").tolist():
        rank[number] = int(np.argmin(load))
        load[rank[number]] += float(cost[number])
    return rank


def own_part(
    found: Sequence[Bundle], sequences: Sequence[TokenSequence], policy: Policy, group: Group
) -> tuple[list[Bundle], bool]:
    """The bundles of this rank. One without any takes the cheapest, which is not to count (`False`): all ranks compute
    something, and know the same of a method's weights."""
    cost = costs(found, sequences, policy)
    own = [bundle for bundle, rank in zip(found, ranks_of(cost, group.size), strict=True) if rank == group.rank]
    return (own, True) if own or not found else ([found[int(cost.argmin())]], False)
