"""What a long piece of work shows: a line of ours and a spinner, nothing of the libraries that do it."""

from __future__ import annotations

import io
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, redirect_stderr


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
