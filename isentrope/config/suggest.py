"""The nearest name, for errors about a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None if nothing comes close."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or the list of what there is, or nothing: to be put behind an error's sentence."""
    names = sorted(set(known))
    guess = nearest(name, names)
    if guess is not None:
        return f"; did you mean {guess}?"
    return f"; there is: {', '.join(names)}" if names else ""
