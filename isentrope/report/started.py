"""How a run was started, for its pages: command line, machine and versions, as run.json tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isentrope.charts.text import safe
from isentrope.runs.origin import Start, starts_of

STARTED = "How it was run"  # the section's title


def started(about: Mapping[str, Any]) -> str:
    """A card with every start; empty for a folder that is older than these entries."""
    starts = starts_of(about)
    if not starts:
        return ""
    first, *later = starts
    body = _start(first, None)
    if later:
        body += "".join(f"<h4>Resumed {safe(one.at)}</h4>{_start(one, first)}" for one in later)
    return f'<div class="card started">{body}</div>'


def _start(start: Start, first: Start | None) -> str:
    """`first`: what the run began with; of a later start only what is new is told."""
    rows = {"started": start.at} if first is None else {}
    if first is None or start.machine != first.machine:
        rows["machine"] = start.machine_words
    if first is None or start.versions != first.versions:
        rows["versions"] = start.version_words
    told = "".join(f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in rows.items() if value)
    command = f"<pre>{safe(start.command)}</pre>" if start.command else ""
    return command + (f'<dl class="facts-row">{told}</dl>' if told else "")
