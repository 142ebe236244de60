"""Paths that begin at home."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from isentrope.errors import EngineError


def expanded(text: str, setting: str) -> Path:
    """`text` with the home folder written out; `setting` is where it comes from."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # no such user, or one without a home, as in some containers
        raise EngineError(f"{setting} = {text!r}: there is no such home folder; give the whole path") from error


def cache_folder() -> Path:
    """Where converted models are kept: `$ISENTROPE_CACHE`, else the system's folder for caches."""
    own = os.environ.get("ISENTROPE_CACHE")
    if own:
        return expanded(own, "ISENTROPE_CACHE")
    if sys.platform == "darwin":
        return expanded("~/Library/Caches", "ISENTROPE_CACHE") / "isentrope"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return expanded(base or "~/.cache", "ISENTROPE_CACHE") / "isentrope"
