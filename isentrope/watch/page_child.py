"""What the process does in which a page of the live page's server is made: see `pages.py`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from isentrope.core.errors import IsentropeError
from isentrope.core.limits import real

PAGE, REFUSED = b"page\n", b"refused\n"


def main() -> None:
    """Reads which page of which run, writes it. Whatever else is said goes nowhere."""
    out, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    os.chdir(asked["here"])  # from where paths are meant, in settings too
    with os.fdopen(out, "wb") as file:
        try:
            file.write(PAGE + page_of(asked["kind"], Path(asked["run"]), asked["places"]).encode("utf-8", "replace"))
        except IsentropeError as error:
            file.write(REFUSED + str(error).encode("utf-8", "replace"))


def page_of(kind: str, path: Path, places: list[str]) -> str:
    from isentrope.report import diagnosis, page
    from isentrope.runs.folder import Run

    run = Run.open(path, thin=True)
    if kind == "doctor":
        return diagnosis.page(run)
    # the warm-up that it came from, if it lies in a folder that is watched: a run's settings may name any
    warmup = run.warmup(lambda found: any(real(found).is_relative_to(place) for place in places), thin=True)
    return page.page(run, warmup)
