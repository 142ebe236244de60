"""Why a run failed, in a few words: from how it ended and from the end of what it said."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from isentrope.charts.text import clipped, visible

_TAIL = 20000  # bytes
_MOST = 600  # letters
_BOX = re.compile(r"[│╭╮╰╯─]")
_PANEL = re.compile(r"╭─.*?╰─[^\n]*", re.DOTALL)


def reason_of(code: int, log: Path) -> str:
    if code < 0:
        return f"killed from outside ({_name(-code)}), several times; was there too little memory?"
    said = _said(log)
    if code == 0:
        return clipped(f"ended without an error before its last step: {said}", _MOST)
    return clipped(said or f"ended with the exit status {code} and said nothing", _MOST)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _said(log: Path) -> str:
    """The last error panel, without its frame; else the last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    panels = list(_PANEL.finditer(text))
    if panels and not text[panels[-1].end() :].strip():
        title, *body = panels[-1].group().splitlines()
        words = [" ".join(_BOX.sub(" ", part).split()) for part in (title, "\n".join(body))]
        return visible(": ".join(part for part in words if part))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return visible(lines[-1]) if lines else ""
