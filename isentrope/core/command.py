"""The command line that a user has to type for `isentrope`, as it was installed here: every hint is made by it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path


def command(*words: object) -> str:
    """`isentrope report runs/first`, so that it works when it is typed here."""
    return " ".join([program(), *(shlex.quote(str(word)) for word in words)])


def page(name: str) -> str:
    """How a page of the documentation is shown: `isentrope docs engines`. Messages name it by this alone."""
    return command("docs", name)


@cache
def program() -> str:
    """`isentrope` if a shell finds this installation by that name; else its script; else a module for Python."""
    return program_of(Path(sys.executable), shutil.which("isentrope"), Path.cwd()) if sys.executable else "isentrope"


def program_of(python: Path, on_path: str | None, here: Path) -> str:
    script = python.parent / ("isentrope.exe" if os.name == "nt" else "isentrope")
    beside = script.is_file()
    if on_path is not None and ((beside and Path(on_path).resolve() == script.resolve()) or _runs(on_path, python)):
        return "isentrope"
    return _typed(script, here) if beside else f"{_typed(python, here)} -m isentrope"


def _runs(script: str, python: Path) -> bool:
    """Whether a script is run by this Python, as its first line says: of `pip install --user`, say."""
    try:
        with open(script, "rb") as opened:
            first = opened.readline(1000)
    except OSError:
        return False
    return first.startswith(b"#!") and first[2:].strip() == os.fsencode(python)


def _typed(path: Path, here: Path) -> str:
    """For a shell: of a path below this folder only what follows it."""
    return shlex.quote(str(path.relative_to(here)) if path.is_relative_to(here) else str(path))
