"""The nearest name, for errors about a name that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def plain_name(name: str) -> str:
    """A name as ours are written: `Dr. GRPO` -> `dr_grpo`, `GRPO+` -> `grpo_plus`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("+", "_plus")).strip("_")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None if nothing comes close. Case and punctuation do not matter."""
    plain = {plain_name(one): one for one in reversed(list(known))}
    found = get_close_matches(plain_name(name), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or the list of what there is, or nothing: to be put behind an error's sentence."""
    names = sorted(set(known))
    guess = nearest(name, names)
    if guess is not None:
        return f"; did you mean {guess}?"
    return f"; there is: {', '.join(names)}" if names else ""
