"""Quantiles and tails of Student's, the normal and the chi-square distribution, from scipy, with types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import scipy.special as _scipy  # pyright: ignore[reportMissingTypeStubs]
except ImportError as error:  # an installation without its dependencies
    raise ImportError(
        f"claims are judged with the package scipy, which is not here ({error}): pip install scipy"
    ) from error

_special: Any = _scipy
Vector = NDArray[np.float64]


def student_quantile(level: float, freedom: float) -> float:
    """The t that holds `level` of Student's distribution between -t and t."""
    return float(_special.stdtrit(freedom, (1 + level) / 2))


def normal_below(values: Vector) -> Vector:
    """The normal distribution function."""
    return np.asarray(_special.ndtr(values), np.float64)


def chi_square_quantiles(shares: Vector, freedom: int) -> Vector:
    return np.asarray(_special.chdtri(freedom, 1 - shares), np.float64)


def beta_quantile(share: float, a: float, b: float) -> float:
    return float(_special.betaincinv(a, b, share))


def digamma(values: Vector) -> Vector:
    return np.asarray(_special.digamma(values), np.float64)


def trigamma(values: Vector) -> Vector:
    return np.asarray(_special.polygamma(1, values), np.float64)


def inverse_trigamma(value: float) -> float:
    """x with ψ'(x) = value, by Newton's method on 1/ψ' (Smyth 2004, appendix)."""
    if value > 1e7:
        return 1 / float(np.sqrt(value))
    if value < 1e-6:
        return 1 / value
    x = 0.5 + 1 / value
    for _ in range(50):
        at = float(_special.polygamma(1, x))
        step = at * (1 - at / value) / float(_special.polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x
