"""Means for metrics: sums in float64, what is not known (NaN) left out, and no number where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Metrics = dict[str, float]
Vector = NDArray[np.float64]
Ids = NDArray[np.int64]


def mean(values: Sequence[float] | NDArray[Any]) -> float:
    return float(np.mean(values, dtype=np.float64))


def mean_of_known(values: Sequence[float] | NDArray[Any]) -> float:
    """The mean of what an engine could tell; NaN if it could tell nothing."""
    found = np.asarray(values)
    known = found[~np.isnan(found)]
    return mean(known) if len(known) else float("nan")


def weighed_mean(values: Vector, weights: Vector) -> float:
    """Σ w·v / Σ w over what is known and has a weight; NaN if nothing has. Equal weights give exactly the mean."""
    counts = ~np.isnan(values) & (weights > 0)
    if not counts.any():
        return float("nan")
    scaled = weights[counts] / weights[counts].max()
    return float(np.sum(scaled * values[counts], dtype=np.float64) / np.sum(scaled, dtype=np.float64))


def known_means(values: Mapping[str, Sequence[float] | NDArray[Any]]) -> Metrics:
    """The mean of each; keys whose mean is not known are left out."""
    return known({key: mean_of_known(found) for key, found in values.items()})


def known(values: Mapping[str, float]) -> Metrics:
    return {key: value for key, value in values.items() if not np.isnan(value)}


def means_by(values: Vector, group: Ids, count: int) -> Vector:
    """The mean of the known values of each of `count` groups; NaN for a group without any."""
    there = ~np.isnan(values)
    numbers = np.bincount(group[there], minlength=count)
    totals = np.bincount(group[there], weights=values[there], minlength=count)
    return np.divide(totals, numbers, out=np.full(count, np.nan), where=numbers > 0)


def sums_by(values: Vector, group: Ids, count: int) -> Vector:
    """The sum of the values of each group; NaN if one of them is not known."""
    return np.bincount(group, weights=values, minlength=count).astype(np.float64)
