"""Leaves out single tokens whose numbers are not finite, so that one of them does not cost a whole update.

A token is left out if its log-prob (of the sampler, the old policy or the reference), its entropy or its value is NaN
or infinite. It is taken out of the step's table before credit is assigned: advantages, methods, weights and
denominators are those of a step in which it was never sampled. It still stands in the context of the tokens behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from isentrope.core.types import Floats, StepTokens, Targets
from isentrope.layout import TokenSequence

Mask = NDArray[np.bool_]
Table = TypeVar("Table", StepTokens, Targets)


def finite(first_N: Floats, *others: Floats | None) -> Mask:
    """Tokens of which every column is finite; a column that is None does not count."""
    known_N = np.isfinite(first_N)
    for column_N in others:
        if column_N is not None:
            known_N &= np.isfinite(column_N)
    return known_N


def rows(table: Table, keep_N: Mask) -> Table:
    """The table with these tokens alone."""
    columns = {field.name: getattr(table, field.name) for field in fields(table) if field.name.endswith("_N")}
    return replace(table, **{name: values[keep_N] for name, values in columns.items() if values is not None})


def only(sequences: Sequence[TokenSequence], keep_N: Mask) -> list[TokenSequence]:
    """The sequences with these response tokens alone; one without any teaches nothing and is left out."""
    kept = [replace(s, columns=s.columns[keep_N[s.tokens]], tokens=s.tokens[keep_N[s.tokens]]) for s in sequences]
    return [sequence for sequence in kept if len(sequence.tokens)]


def renumbered(sequences: Sequence[TokenSequence], keep_N: Mask) -> list[TokenSequence]:
    """The same for a table that has only these tokens (`rows`)."""
    number_N = np.cumsum(keep_N) - 1
    return [replace(sequence, tokens=number_N[sequence.tokens]) for sequence in only(sequences, keep_N)]


def spread(values_N: Floats, keep_N: Mask, fill: float) -> Floats:
    """The opposite of `rows`, for one column: `fill` stands for the tokens that were left out."""
    whole = np.full(len(keep_N), fill, dtype=np.float32)
    whole[keep_N] = values_N
    return whole
