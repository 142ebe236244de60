"""Suggests the nearest known name in errors about a name that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from isentrope.config.algorithms import ALGORITHMS


def plain_name(name: str) -> str:
    """A name as ours are written: `Dr. GRPO` -> `dr_grpo`, `GRPO+` -> `grpo_plus`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower().replace("+", "_plus")).strip("_")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None if nothing comes close. Case and punctuation do not matter."""
    plain = {plain_name(one): one for one in reversed(list(known))}
    found = get_close_matches(plain_name(name), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], most: int | None = None) -> str:
    """`; did you mean X?`, or the list of what there is, if not longer than `most`, or nothing: to be put behind an
    error's sentence."""
    names = sorted(set(known))
    guess = nearest(name, names)
    if guess is not None:
        return f"; did you mean {guess}?"
    return f"; there is: {', '.join(names)}" if names and (most is None or len(names) <= most) else ""


# The methods of this package: name -> module:Class. They are imported where they are used (methods/registry.py).
METHOD_CLASSES = {
    "entropy_bonus": "isentrope.methods.entropy_bonus:EntropyBonus",
    "higher_temperature": "isentrope.methods.higher_temperature:HigherTemperature",
    "epo": "isentrope.methods.epo:Epo",
    "ea": "isentrope.methods.ea:Ea",
    "seal": "isentrope.methods.seal:Seal",
    "aem": "isentrope.methods.aem:Aem",
    "actre": "isentrope.methods.actre:ActRe",
    "no_think": "isentrope.methods.no_think:NoThink",
}
COMMANDS = ("sft", "rft")


def other_kind(name: str) -> str | None:
    """`; epo is a method: --set methods=epo` and the like; None for a name that is nothing at all."""
    plain = plain_name(name)
    if plain in METHOD_CLASSES:
        return f"; {plain} is a method: --set methods={plain}"
    if plain in ALGORITHMS:
        return f"; {plain} is an algorithm: --set learn.algorithm={plain}"
    return f"; {plain} is a command: isentrope {plain}" if plain in COMMANDS else None
