"""Reads the official files piece by piece (products, attributes, instructions), and writes a generated shop as such.

A file may be compressed (.zst). Nothing is ever held whole: the full product file has more than five gigabytes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from isentrope.core.errors import TaskError
from isentrope.worlds.registry import require
from isentrope.worlds.webshop.products import Product, Record, Wish, read_product


def write_official(folder: Path, products: Iterable[Product]) -> tuple[Path, Path]:
    """items_shuffle.json and items_ins_v2.json in the folder, written product by product."""
    items, notes = folder / "items_shuffle.json", folder / "items_ins_v2.json"
    with items.open("w", encoding="utf-8") as item_file, notes.open("w", encoding="utf-8") as note_file:
        item_file.write("[")
        note_file.write("{")
        for number, product in enumerate(products):
            comma = ",\n" if number else ""
            item_file.write(comma + json.dumps(_record(product)))
            note_file.write(f"{comma}{json.dumps(product.asin)}: {json.dumps(_note(product))}")
        item_file.write("]")
        note_file.write("}")
    return items, notes


def _record(product: Product) -> dict[str, Any]:
    return {
        "name": product.title,
        "asin": product.asin,
        "category": product.category,
        "query": product.query,
        "product_category": product.product_category,
        "full_description": product.description,
        "small_description": list(product.bullets),
        "pricing": product.price_tag.replace(" to ", " - "),
        "customization_options": {
            name: [{"value": value, "image": None} for value in values] for name, values in product.options.items()
        },
        "images": [""],
    }


def _note(product: Product) -> dict[str, Any]:
    note: dict[str, Any] = {"attributes": list(product.attributes)}
    for wish in product.wishes:
        note |= {"instruction": wish.text, "instruction_attributes": list(wish.attributes)}
    return note


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """The file's bytes, unpacked if need be."""
    try:
        if path.suffix == ".zst":
            import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

            with cast(Any, pa).input_stream(str(path), compression="zstd") as stream:
                yield stream
        else:
            with path.open("rb") as file:
                yield file
    except OSError as error:
        raise TaskError(f"could not read {path}: {error}") from error


class Notes:
    """What is known about a product besides its own record, by ASIN; kept on the disk while products are read."""

    def __init__(self, database: Path, attributes: Path | None, human: Path | None) -> None:
        self._human = human is not None
        self._database = sqlite3.connect(database)
        self._database.execute("PRAGMA journal_mode=OFF")
        self._database.execute("PRAGMA synchronous=OFF")
        self._database.execute(
            "CREATE TABLE notes (asin TEXT, kind TEXT, data TEXT, PRIMARY KEY (asin, kind)) WITHOUT ROWID"
        )
        for kind, path in (("attributes", attributes), ("human", human)):
            if path is not None:
                rows = ((asin, kind, json.dumps(value)) for asin, value in _entries(path))
                self._database.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", rows)
        self._database.commit()

    def read(self, record: Record) -> Product | None:
        asin = str(record.get("asin", ""))
        known: Any = self._find(asin, "attributes") or {}
        attributes = known.get("attributes")
        wishes = _human_wishes(self._find(asin, "human")) if self._human else _synthetic_wishes(known)
        return read_product(record, wishes, None if attributes is None else tuple(attributes))

    def _find(self, asin: str, kind: str) -> Any:
        query = "SELECT data FROM notes WHERE asin = ? AND kind = ?"
        row = self._database.execute(query, (asin, kind)).fetchone()
        return json.loads(row[0]) if row else None

    def close(self) -> None:
        self._database.close()


def read_products(path: Path, notes: Notes, file: IO[bytes]) -> Iterator[Product]:
    """The products of an open file, in order; of several with the same ASIN the first."""
    seen: set[str] = set()
    for record in _parsed(path, "items", file, "item"):
        if not isinstance(record, dict):
            raise TaskError(f"{path}: a list of products is expected, found a {type(record).__name__} in it")
        try:
            product = notes.read(cast(Record, record))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TaskError(f"{path}: product {record.get('asin')!r:.40} cannot be read: {error!r:.200}") from error
        if product is not None and product.asin not in seen:
            seen.add(product.asin)
            yield product


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The entries of a file that holds one JSON object."""
    with opened(path) as file:
        yield from _parsed(path, "kvitems", file, "")


def _parsed(path: Path, how: str, file: IO[bytes], prefix: str) -> Iterator[Any]:
    ijson: Any = require("ijson", "webshop", "reading the official files of the webshop")
    entry = None
    try:
        for entry in getattr(ijson, how)(file, prefix, use_float=True):
            yield entry
    except (ijson.JSONError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} is not the JSON that was expected: {error!s:.200}") from error
    if entry is None:
        expected = "a list of products" if how == "items" else "an object with an entry for each product"
        raise TaskError(f"{path} holds nothing that can be used; {expected} was expected")


def _synthetic_wishes(known: Record) -> tuple[Wish, ...]:
    text, attributes = known.get("instruction"), known.get("instruction_attributes")
    return (Wish(str(text), tuple(str(one) for one in attributes)),) if text is not None and attributes else ()


def _human_wishes(found: Any) -> tuple[Wish, ...]:
    """People's instructions; those that name no attribute are left out."""
    wishes = cast("list[Record]", found or [])
    return tuple(
        Wish(
            str(one["instruction"]).strip("."), tuple(one["instruction_attributes"]), tuple(one["instruction_options"])
        )
        for one in wishes
        if one["instruction_attributes"]
    )
