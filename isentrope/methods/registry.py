"""The methods by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from isentrope.config.convert import parse_section
from isentrope.errors import ConfigError
from isentrope.methods.base import Method
from isentrope.methods.entropy_bonus import EntropyBonus

METHODS: dict[str, Any] = {"entropy_bonus": EntropyBonus}


def make_methods(names: Sequence[str], options: Mapping[str, Any], steps: int) -> list[Method]:
    """The methods of a run, in the order given, each with its own table of settings."""
    made: list[Method] = []
    for name in names:
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"methods: unknown method {name!r}{hint} (known: {', '.join(sorted(METHODS))})")
        kind = METHODS[name]
        made.append(kind(steps, parse_section(kind.options_class, options.get(name, {}), f"method.{name}")))
    return made
