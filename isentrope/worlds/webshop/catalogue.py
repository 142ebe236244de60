"""Keeps the shop's stock on disk: products in a database, the search index and the goals beside it. Its search can be
compared with rankings recorded from another engine.

It is built once from the official files, in bounded memory, and found again by the files' sizes and samples of their
contents. A catalogue that is half built is never seen: it is written under another name and renamed at the end.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from isentrope.core.command import page
from isentrope.core.errors import TaskError
from isentrope.worlds.files import built, cache_folder, progress
from isentrope.worlds.webshop.products import Product, from_plain
from isentrope.worlds.webshop.reward import Goal, count_attributes, goal_count, goal_of, shuffled, weight
from isentrope.worlds.webshop.search import IndexBuilder, Search
from isentrope.worlds.webshop.sources import Notes, generated_products, opened, read_products

VERSION = 1  # of what is stored; raise it when that changes, and old folders are no longer found
_TABLES = """
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
CREATE TABLE products (position INTEGER PRIMARY KEY, asin TEXT UNIQUE, data BLOB);
CREATE TABLE terms (term TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID;
"""


class Catalogue:
    """A catalogue that has been built."""

    def __init__(self, folder: Path, in_memory: bool = False) -> None:
        self._about: dict[str, Any] = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        address = f"{(folder / 'shop.sqlite').resolve().as_uri()}?mode=ro&immutable=1"
        self._database = sqlite3.connect(address, uri=True, check_same_thread=False)
        if in_memory:
            on_disk, self._database = self._database, sqlite3.connect(":memory:", check_same_thread=False)
            on_disk.backup(self._database)
            on_disk.close()
        mode = None if in_memory else "r"
        self._goal_products: np.ndarray = np.load(folder / "goal_products.npy", mmap_mode=mode)
        self._goal_starts: np.ndarray = np.load(folder / "goal_starts.npy", mmap_mode=mode)
        self._goal_order: np.ndarray = np.load(folder / "goal_order.npy", mmap_mode=mode)
        self.search = Search(folder, lru_cache(maxsize=100_000)(self._term), mmap=not in_memory)
        self.product = lru_cache(maxsize=4096)(self._product)

    def __len__(self) -> int:
        return int(self._about["products"])

    @property
    def goals(self) -> int:
        return len(self._goal_order)

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(self._about["categories"])

    def goal(self, number: int) -> Goal:
        """Goal `number` after the shuffle."""
        place = int(self._goal_order[number])
        row = int(np.searchsorted(self._goal_starts, place, side="right")) - 1
        return goal_of(self.product(int(self._goal_products[row])), place - int(self._goal_starts[row]))

    def weight(self, goal: Goal) -> float:
        return weight(goal.attributes, self._about["attributes"])

    def _product(self, position: int) -> Product:
        row = self._database.execute("SELECT data FROM products WHERE position = ?", (position,)).fetchone()
        return from_plain(json.loads(zlib.decompress(row[0])))

    def _term(self, term: str) -> int | None:
        row = self._database.execute("SELECT number FROM terms WHERE term = ?", (term,)).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        self._database.close()


def build(folder: Path, products: Iterable[Product], finishing: Callable[[float], None] = lambda share: None) -> None:
    """Write a catalogue into a folder, which must exist."""
    database = sqlite3.connect(folder / "shop.sqlite")
    database.executescript(_TABLES)
    index = IndexBuilder(folder)
    owners, starts = array("i"), array("q", [0])
    categories, attributes = set[str](), Counter[str]()

    def rows() -> Iterator[tuple[int, str, bytes]]:
        for position, product in enumerate(products):
            index.add(product.document())
            categories.add(product.category)
            count_attributes(product, attributes)
            if many := goal_count(product):
                owners.append(position)
                starts.append(starts[-1] + many)
            yield position, product.asin, zlib.compress(json.dumps(product.plain()).encode(), 1)

    database.executemany("INSERT INTO products VALUES (?, ?, ?)", rows())
    index.finish(finishing)
    database.executemany("INSERT INTO terms VALUES (?, ?)", index.vocabulary.items())
    database.commit()
    (many,) = database.execute("SELECT COUNT(*) FROM products").fetchone()
    database.close()
    np.save(folder / "goal_products.npy", np.array(owners, dtype=np.int32))
    np.save(folder / "goal_starts.npy", np.array(starts, dtype=np.int64))
    np.save(folder / "goal_order.npy", np.array(shuffled(starts[-1]), dtype=np.uint32))
    about = {"products": many, "categories": sorted(categories), "attributes": attributes}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


def cached(key: str, write: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache; `write` fills it if it is not there."""
    folder = cache_folder("webshop") / key
    try:
        return built(folder, write)
    except OSError as error:
        raise TaskError(
            f"could not write the shop's catalogue to {folder}: {error}; choose another place with ISENTROPE_CACHE"
        ) from error


def file_mark(path: Path) -> str:
    """Tells files apart: by their size, and by a megabyte from their beginning, middle and end."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for begin in (0, size // 2, max(0, size - 1_000_000)):
            file.seek(begin)
            digest.update(file.read(1_000_000))
    return digest.hexdigest()


def open_generated() -> Catalogue:
    """The catalogue that comes with the package. It is made in a moment, so nothing is left behind."""
    with tempfile.TemporaryDirectory(prefix="isentrope-webshop-") as folder:
        build(Path(folder), generated_products())
        return Catalogue(Path(folder), in_memory=True)


def open_official(products: str, attributes: str = "", human: str = "", to_play: bool = True) -> Catalogue:
    """The catalogue of the official files; built when they are first seen. Searching alone takes no instructions."""
    source = _existing("products", products)
    paths = [source, _beside(source, attributes, to_play and not human), _existing("human", human) if human else None]
    marks = "".join(f"{file_mark(path)} " if path else "none " for path in paths)
    key = f"v{VERSION}-{hashlib.sha256(marks.encode()).hexdigest()[:20]}"
    return Catalogue(cached(key, lambda folder: _write(folder, source, *paths[1:])))


def _write(folder: Path, source: Path, attributes: Path | None, human: Path | None) -> None:
    from rich.progress import BarColumn, TextColumn

    with progress(TextColumn("{task.description}", markup=False), BarColumn()) as shown, opened(source) as file:
        bar, size = shown.add_task(f"reading {source.name}", total=1.0), source.stat().st_size
        notes = Notes(folder / "notes.sqlite", attributes, human)

        def counted() -> Iterator[Product]:
            for number, product in enumerate(read_products(source, notes, file)):
                if number % 500 == 0:
                    share = file.tell() / size if source.suffix != ".zst" else 0.0
                    shown.update(bar, description=f"reading {source.name}: {number:,} products", completed=share)
                yield product

        build(
            folder, counted(), lambda share: shown.update(bar, description="writing the search index", completed=share)
        )
        notes.close()
        (folder / "notes.sqlite").unlink()


def _existing(option: str, path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise TaskError(
            f"task.options.{option} = {path!r}: there is no such file; {page('tasks/webshop')} says where the "
            "official files are, or leave all of them out to play the generated shop"
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


DEPTH = 10
_ASIN = re.compile(r"\w{1,10}")


@dataclass(frozen=True)
class Ranking:
    """What the shop's search finds for a query, beside what another engine was recorded to find."""

    query: str
    recorded: tuple[str, ...]  # ASINs, best first, at most DEPTH
    ours: tuple[str, ...]

    @property
    def same_first(self) -> bool:
        return self.recorded[:1] == self.ours[:1]

    @property
    def overlap(self) -> float:
        """Share of the longer ranking that stands in the other one too, in whatever order."""
        longer = max(len(self.recorded), len(self.ours))
        return len(set(self.recorded) & set(self.ours)) / longer if longer else 1.0


def compare(catalogue: Catalogue, rankings: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[Ranking]:
    """As many results as were recorded, up to DEPTH; a recording without results means that there are none."""
    for query, recorded in rankings:
        depth = min(DEPTH, len(recorded)) or DEPTH
        ours = tuple(catalogue.product(position).asin for position in catalogue.search(query, depth))
        yield Ranking(query, recorded[:DEPTH], ours)


def read_rankings(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """One query a line: the query, a tab, then ASINs in order, with blanks or tabs between them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read the rankings {path}: {error}") from error
    found: list[tuple[str, tuple[str, ...]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        query, tab, rest = line.partition("\t")
        asins = tuple(rest.split())
        wrong = next((asin for asin in asins if not _ASIN.fullmatch(asin)), None)
        if not tab or wrong is not None:
            what = "there is no tab in it" if not tab else f"{wrong!r:.40} is no ASIN"
            raise TaskError(
                f"{path}, line {number}: {what}; expected a query, a tab and ASINs separated by blanks or tabs"
            )
        found.append((query, asins))
    if not found:
        raise TaskError(f"{path} holds no ranking; expected lines of a query, a tab and ASINs")
    return found
