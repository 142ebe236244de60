"""Files of several worlds: compressed ones are read like others, tasks mixed, and what is built kept in a cache."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

T = TypeVar("T")
COMPRESSED = {".zst": "zstd", ".gz": "gzip"}


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked if need be."""
    codec = COMPRESSED.get(path.suffix.lower())
    if codec is None:
        return path.open("rb")
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    return cast(Any, pa).input_stream(str(path), compression=codec)


@contextmanager
def open_text(path: Path) -> Generator[TextIO]:
    with open_bytes(path) as file:
        yield io.TextIOWrapper(file, encoding="utf-8")


def mixed(tasks: Mapping[str, Sequence[T]]) -> list[tuple[str, T]]:
    """Tasks with their kinds in one list in which each kind is spread evenly: the first hundred have the mix of all."""
    places: list[tuple[float, str, T]] = []
    for kind, ones in tasks.items():
        places += [((number + 0.5) / len(ones), kind, one) for number, one in enumerate(ones)]
    return [(kind, one) for _, kind, one in sorted(places, key=lambda place: place[:2])]


def cache_folder(world: str) -> Path:
    """A world's part of `$ISENTROPE_CACHE`, else of the system's folder for caches."""
    own = os.environ.get("ISENTROPE_CACHE")
    if own:
        return Path(own).expanduser() / world
    base = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "isentrope" / world


def built(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, filled by `build` unless it is there. Whoever comes while it is being built waits for it.

    It is filled under another name and then renamed, so that a build that was stopped leaves no half of it.
    """
    from filelock import FileLock

    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            unfinished = folder.with_name(f".{folder.name}")
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a build that was killed
            unfinished.mkdir()
            try:
                build(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def progress(*columns: ProgressColumn) -> Generator[Progress]:
    """Columns on the terminal, if there is one, between a spinner and the time, while something is built."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), *columns, TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as shown:
        yield shown
