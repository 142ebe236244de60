"""Checks ranks, lengths and dtypes of arrays: the first line of every loss and advantage.

Only shapes and types are read, never values, so nothing waits for a GPU. Letters are those of types.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Vector = Any
"""A tensor or a NumPy array."""


def expect_vectors(ids: Mapping[str, Vector] | None = None, /, **numbers: Vector) -> None:
    """Refuse arrays that are not vectors of one length: `numbers` of floating-point numbers, `ids` of integers."""
    given = {**numbers, **(ids or {})}
    shapes = {name: tuple(array.shape) for name, array in given.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        expected = "vectors of equal length" if len(shapes) > 1 else "a vector"
        raise ValueError(f"shapes {told}: expected {expected}, one entry for each")
    for name, array in numbers.items():
        if _kind(array) != "f":
            raise TypeError(f"{name} is of type {array.dtype}: expected floating-point numbers; convert it first")
    for name, array in (ids or {}).items():
        if _kind(array) not in "iu":
            raise TypeError(f"{name} is of type {array.dtype}: expected integers, which number what entries belong to")


def _kind(array: Vector) -> str:
    """NumPy's letter for the kind of numbers: f floating-point, i and u integers, b truth values, c complex."""
    dtype = array.dtype
    if hasattr(dtype, "kind"):
        return str(dtype.kind)
    if dtype.is_floating_point:
        return "f"
    return "c" if dtype.is_complex else "b" if str(dtype) == "torch.bool" else "i"
