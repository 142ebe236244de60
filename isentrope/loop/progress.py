"""Shows the progress of a run: bars in a terminal, elsewhere plain lines now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from isentrope.charts.text import duration
from isentrope.core.text import plain

LOG = logging.getLogger("isentrope")
LINE_SECONDS = 15.0  # plain lines come no faster than this


class Progress:
    """One bar for the whole run and one for what it is doing now. `quiet` shows nothing and logs what
    is said (logger `isentrope`): for tests and libraries.

    Without a terminal, steps are lines of the output, and how far a stage has come goes to the error stream: whoever
    keeps the output of an evaluation in a file wants its numbers alone. Names of models, worlds and splits may be
    somebody else's words, from the config of a run, so nothing in a line acts on the terminal.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self.console = Console(quiet=quiet, highlight=False)
        self._aside = Console(quiet=quiet, highlight=False, stderr=True)
        self._plain = not quiet and not self.console.is_terminal
        self._bars = Bars(
            TextColumn("{task.description:<22}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self._main: TaskID | None = None
        self._name, self._total, self._first, self._done = "", 0, 0, 0
        self._began = self._last_step = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, name: str, total: int, done: int = 0) -> None:
        name = plain(name)
        self._main = self._bars.add_task(name, total=total, completed=done, note="")
        self._name, self._total, self._first, self._done = name, total, done, done
        self._began = time.monotonic()

    def advance(self, note: str = "") -> None:
        """One more step of the run is done; `note` says how it went."""
        if self._main is not None:
            self._bars.update(self._main, advance=1, note=plain(note))
        self._done += 1
        if self._quiet:
            LOG.info("%s %d/%d  %s", self._name, self._done, self._total, note)
        at_an_end = self._done in (self._first + 1, self._total)
        if self._plain and (at_an_end or time.monotonic() - self._last_step >= LINE_SECONDS):
            self.say(f"{self._name} {self._done}/{self._total}  {note}{self._time_left()}")
            self._last_step = self._last_line

    def say(self, line: str) -> None:
        if self._quiet:
            LOG.info("%s", plain(line))
        self.console.print(plain(line), markup=False, emoji=False, soft_wrap=True)
        self._last_line = time.monotonic()

    @contextmanager
    def stage(self, name: str, total: int) -> Generator[Callable[[int], None]]:
        """A bar for one stage; gives the function that moves it on."""
        name = plain(name)
        bar = self._bars.add_task(f"  {name}", total=total, note="")
        done, began = 0, time.monotonic()

        def moved(count: int) -> None:
            nonlocal done
            done += count
            self._bars.update(bar, advance=count)
            if self._plain and time.monotonic() - max(began, self._last_line) >= LINE_SECONDS:
                self._aside.print(f"  {name} {done}/{total}", markup=False, emoji=False, soft_wrap=True)
                self._last_line = time.monotonic()

        try:
            yield moved
        finally:
            self._bars.remove_task(bar)

    def _time_left(self) -> str:
        if self._done >= self._total:
            return ""
        per_step = (time.monotonic() - self._began) / max(1, self._done - self._first)
        return f"  about {duration(per_step * (self._total - self._done))} left"
