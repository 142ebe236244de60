"""How a run was started, for its pages: command line, machine and versions, as run.json tells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from isentrope.charts.text import safe
from isentrope.runs.origin import Imported, Start, imported_of, starts_of

STARTED = "How it was run"  # the section's title
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def started(about: Mapping[str, Any]) -> str:
    """A card with every start; empty for a folder that is older than these entries."""
    imported, starts = imported_of(about), starts_of(about)
    if imported is not None and not imported.watched:
        return _imported(imported)
    if not starts:
        return ""
    first, *later = starts
    body = (_trainer(imported) if imported else "") + _start(first, None)
    if later:
        body += "".join(f"<h4>Resumed {safe(_when(one.at))}</h4>{_start(one, first)}" for one in later)
    return f'<div class="card started">{body}</div>'


def _trainer(imported: Imported) -> str:
    """Of a run that our instruments watched in another program."""
    return f'<dl class="facts-row"><div><dt>trained by</dt><dd>{safe(imported.program)}</dd></div></dl>'


def _imported(imported: Imported) -> str:
    """Where and how it ran is not known."""
    rows = {
        "imported": _when(imported.at),
        "from": f"{imported.source} ({imported.what} of {imported.program})",
        "not read": "; ".join(imported.problems),
    }
    told = "".join(f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in rows.items() if value)
    command = f"<pre>{safe(imported.command)}</pre>" if imported.command else ""
    return f'<div class="card started">{command}<dl class="facts-row">{told}</dl></div>'


def _start(start: Start, first: Start | None) -> str:
    """`first`: what the run began with; of a later start only what is new is told."""
    rows = {"started": _when(start.at)} if first is None else {}
    if first is None or start.machine != first.machine:
        rows["machine"] = start.machine_words
    if first is None or start.versions != first.versions:
        rows["versions"] = start.version_words
    told = "".join(f"<div><dt>{name}</dt><dd>{safe(value)}</dd></div>" for name, value in rows.items() if value)
    command = f"<pre>{safe(start.command)}</pre>" if start.command else ""
    return command + (f'<dl class="facts-row">{told}</dl>' if told else "")


def _when(at: str) -> str:
    """`2026-11-19 04:12 UTC`; a time that is not written as ours is left as it is."""
    return f"{at[:10]} {at[11:16]} UTC" if _TIME.fullmatch(at) else at
