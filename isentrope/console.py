"""What a run shows while it goes on: bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Watch:
    """One bar for the whole run and one for what it is doing now. `quiet` shows nothing: for tests and libraries."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self._main: TaskID | None = None

    def __enter__(self) -> Watch:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str, total: int, done: int = 0) -> None:
        self._main = self._progress.add_task(name, total=total, completed=done, note="")

    def advance(self, note: str = "") -> None:
        """One more step of the run is done; `note` says how it went."""
        if self._main is not None:
            self._progress.update(self._main, advance=1, note=note)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    @contextmanager
    def stage(self, name: str, total: int) -> Generator[Callable[[int], None]]:
        """A bar for one stage; gives the function that moves it on."""
        bar = self._progress.add_task(f"  {name}", total=total, note="")
        try:
            yield lambda count: self._progress.update(bar, advance=count)
        finally:
            self._progress.remove_task(bar)
