"""Writes products in the layout of the official files, so that other programs can load a generated shop."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from isentrope.tasks.webshop.products import Product


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
