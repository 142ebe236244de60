"""What `instruments.on_alarm` asks for."""

from __future__ import annotations

import re
from typing import Any, cast

PLAIN = ("nothing", "checkpoint", "pause")
_SWITCH = re.compile(r"switch:([a-z0-9_]+)")


def switched_method(on_alarm: object) -> str | None:
    """The method that an alarm is to switch on: `switch:METHOD`; None if none is."""
    found = _SWITCH.fullmatch(on_alarm) if isinstance(on_alarm, str) else None
    return found[1] if found else None


def switched_in(table: object) -> str | None:
    """The same from the [instruments] table of a recipe, whatever that may be."""
    return switched_method(cast("dict[str, Any]", table).get("on_alarm")) if isinstance(table, dict) else None


def on_alarm_problem(on_alarm: str) -> str | None:
    if on_alarm in PLAIN or switched_method(on_alarm) is not None:
        return None
    return (
        f'instruments.on_alarm = "{on_alarm}": expected {", ".join(PLAIN)} or switch: and the name of a method, '
        "such as switch:seal"
    )
