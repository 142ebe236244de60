"""Overlong shaping (DAPO, arXiv:2503.14476, Eq. 13): a response close to its length limit is punished softly.

p = 0                             up to limit - buffer tokens
    (limit - buffer - length)/buffer   then falling
    -1                            from the limit on
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.core.shapes import expect_vectors


def overlong_penalty(lengths_U: NDArray[np.int64], limit: int, buffer: int) -> NDArray[np.float64]:
    """One number from -1 to 0 per response."""
    expect_vectors({"lengths_U": lengths_U})
    if not 0 < buffer <= limit:
        raise ValueError(f"buffer {buffer}: expected 1 to {limit}, the length limit")
    return np.clip((limit - buffer - lengths_U) / buffer, -1.0, 0.0)
