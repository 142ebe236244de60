"""Names from a task as parts of metric keys."""

from __future__ import annotations


def key_part(name: str) -> str:
    """A name from a task as one part of a metric key."""
    return "_".join(name.replace("/", " ").split()) or "unnamed"
