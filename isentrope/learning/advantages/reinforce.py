"""REINFORCE with the batch mean as baseline (Williams 1992): A_i = R_i - mean over all episodes of the batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.core.shapes import expect_vectors


def reinforce(returns_E: NDArray[np.float64]) -> NDArray[np.float64]:
    """One advantage per episode."""
    expect_vectors(returns_E=returns_E)
    if len(returns_E) == 0 or np.all(returns_E == returns_E[0]):
        return np.zeros(len(returns_E))  # rounding in the mean must not leave a trace
    return returns_E - returns_E.mean()
