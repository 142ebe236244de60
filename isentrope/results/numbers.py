"""Numbers from files that anybody may have written."""

from __future__ import annotations

from typing import Any

MOST = 2**63  # of any number in a record or a log


def count(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name} is {value!r:.60}, expected a count")
    return value


def finite(value: Any, name: str) -> float:
    """A number that can be reckoned with: JSON may hold NaN, infinity and integers that no float reaches."""
    if not isinstance(value, int | float) or not abs(value) <= MOST:  # NaN compares with nothing
        raise ValueError(f"{name} is {value!r:.60}, expected a number of at most {MOST:.0e}")
    return float(value)
