"""Which kind of thing a name is, for somebody who gave an algorithm where a method was asked for, or the reverse."""

from __future__ import annotations

from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.suggest import plain_name

# The methods' own registry is too heavy to import here; a test compares the two.
METHOD_NAMES = ("entropy_bonus", "higher_temperature", "epo", "ea", "seal", "aem", "actre", "no_think")
COMMANDS = ("sft", "rft")


def other_kind(name: str) -> str | None:
    """`; epo is a method: --set methods=epo` and the like; None for a name that is nothing at all."""
    plain = plain_name(name)
    if plain in METHOD_NAMES:
        return f"; {plain} is a method: --set methods={plain}"
    if plain in ALGORITHMS:
        return f"; {plain} is an algorithm: --set learn.algorithm={plain}"
    return f"; {plain} is a command: isentrope {plain}" if plain in COMMANDS else None
