"""The cache folder of converted models, the packages that make them, and quiet output while they are made."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

from isentrope.core.errors import EngineError
from isentrope.core.needs import install_command


def library(name: str, who: str, title: str = "") -> Any:
    """A package of the extra [hf]; `who` are the things that need it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EngineError(f"{who} need {title or name}: {install_command('hf')}") from error


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
    given = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME") or "~/.cache"
    return expanded("~/Library/Caches" if sys.platform == "darwin" else given, "ISENTROPE_CACHE") / "isentrope"


@contextmanager
def quiet_transformers() -> Generator[None]:
    """Transformers prints bars and advice of its own; errors are raised all the same."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):  # some bars heed no setting
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def working(line: str) -> Generator[None]:
    """Say on stderr what is being done; in a terminal, with a spinner for as long as it lasts."""
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False)
    console.print(line, markup=False)
    with console.status("") if console.is_terminal else nullcontext():
        yield
