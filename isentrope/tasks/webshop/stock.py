"""Opens the catalogue that the options ask for: the generated one, or one made from the official files."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from isentrope.errors import TaskError
from isentrope.tasks.webshop.catalogue import VERSION, Catalogue, build, cached, file_mark
from isentrope.tasks.webshop.official import Notes, opened, read_products
from isentrope.tasks.webshop.products import Product

Show = Callable[[str, float], None]  # (what is being done, share done)


def open_generated() -> Catalogue:
    """The catalogue that comes with the package. It is made in a moment, so nothing is left behind."""
    from isentrope.tasks.webshop.generate import generated_products

    with tempfile.TemporaryDirectory(prefix="isentrope-webshop-") as folder:
        build(Path(folder), generated_products())
        return Catalogue(Path(folder), in_memory=True)


def open_official(products: str, attributes: str = "", human: str = "", to_play: bool = True) -> Catalogue:
    """The catalogue of the official files; built when they are first seen. Searching alone takes no instructions."""
    source = _existing("products", products)
    paths = [source, _beside(source, attributes, to_play and not human), _existing("human", human) if human else None]
    marks = "".join(f"{file_mark(path)} " if path else "none " for path in paths)
    key = f"v{VERSION}-{hashlib.sha256(marks.encode()).hexdigest()[:20]}"

    def write(folder: Path) -> None:
        with _bar(f"reading {source.name}") as show:
            notes = Notes(folder / "notes.sqlite", paths[1], paths[2])
            with opened(source) as file:
                counted = _counted(source, notes, file, show)
                build(folder, counted, lambda share: show("writing the search index", share))
            notes.close()
            (folder / "notes.sqlite").unlink()

    return Catalogue(cached(key, write))


def _counted(source: Path, notes: Notes, file: IO[bytes], show: Show) -> Iterator[Product]:
    size = source.stat().st_size
    for number, product in enumerate(read_products(source, notes, file)):
        if number % 500 == 0:
            share = file.tell() / size if source.suffix != ".zst" else 0.0
            show(f"reading {source.name}: {number:,} products", share)
        yield product


def _existing(option: str, path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise TaskError(
            f"task.options.{option} = {path!r}: there is no such file; docs/tasks/webshop.md says where the official "
            "files are, or leave all of them out to play the generated shop"
        )
    return found


def _beside(products: Path, attributes: str, needed: bool) -> Path | None:
    """The file of attributes and instructions: as given, else items_ins_v2 beside the products."""
    if attributes:
        return _existing("attributes", attributes)
    ending = "_1000" if products.name.split(".")[0].endswith("_1000") else ""
    for name in (f"items_ins_v2{ending}.json", f"items_ins_v2{ending}.json.zst"):
        if products.with_name(name).is_file():
            return products.with_name(name)
    if not needed:
        return None
    raise TaskError(
        f"no items_ins_v2{ending}.json beside {products}: it holds the instructions; name it with "
        "task.options.attributes, or give people's instructions with task.options.human"
    )


@contextmanager
def _bar(title: str) -> Generator[Show]:
    """A progress bar on the terminal, if there is one; `show(text, share)` moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task(title, total=1.0)

        def show(text: str, share: float) -> None:
            progress.update(bar, description=text, completed=share)

        yield show
