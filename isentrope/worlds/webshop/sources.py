"""Where the shop's products come from: the official files, read piece by piece, or a small generated shop."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.worlds.files import open_bytes
from isentrope.worlds.webshop.products import Product, Record, Wish, draw_price, read_product

# Generates a small shop of invented products, always the same one, so that nothing has to be downloaded.

_BRANDS = """
Norvale Tamberly Quillow Brackenfold Osterby Lumenhart Pellica Varnay Ridgemoor Calderan Fenwick&Sol Ostrava Merribel
Tallowby Kestrelin Duneward Marlowick Solbrae Havenlea Orrinson
"""
BRANDS = tuple(_BRANDS.split())
APPAREL_SIZES = ("x-small", "small", "medium", "large", "x-large", "xx-large")
SHOE_SIZES = ("6", "7", "8", "9", "10", "11", "12")
COLOURS = ("black", "white", "navy", "olive", "burgundy", "light grey", "teal", "mustard", "dusty rose", "sand")
WOODS = ("walnut", "white oak", "espresso", "natural pine", "black")
PACKS = ("pack of 1", "pack of 2", "pack of 4", "pack of 6", "pack of 12")


@dataclass(frozen=True)
class Shelf:
    """One type of product."""

    category: str
    place: str  # below the category, in the shop's tree
    noun: str
    extras: tuple[str, ...]  # one of them goes into a title
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    price: tuple[float, float]
    use: str  # what it is for, in the description


SHELVES = (
    Shelf("fashion", "Clothing › Women › Dresses", "summer dress", ("with Pockets", "Knee Length", "for Parties"),
          ("machine wash", "short sleeve", "elastic waist", "loose fit", "soft cotton", "v neck"),
          {"color": COLOURS, "size": APPAREL_SIZES}, (18, 65), "warm afternoons and holidays"),
    Shelf("fashion", "Clothing › Men › Shirts", "flannel shirt", ("with Chest Pocket", "Plaid", "Button Down"),
          ("long sleeve", "slim fit", "machine wash", "brushed cotton", "wrinkle free", "classic fit"),
          {"color": COLOURS, "size": APPAREL_SIZES}, (16, 55), "cool mornings outdoors"),
    Shelf("fashion", "Clothing › Men › Trousers", "hiking trousers", ("with Zip Pockets", "Convertible", "Stretch"),
          ("quick drying", "water resistant", "elastic waist", "straight leg", "sun protection", "reinforced knee"),
          {"color": COLOURS, "size": APPAREL_SIZES}, (25, 90), "long days on the trail"),
    Shelf("fashion", "Shoes › Women › Boots", "ankle boots", ("with Side Zip", "Block Heel", "for Autumn"),
          ("rubber sole", "faux leather", "non slip", "arch support", "memory foam", "water resistant"),
          {"color": COLOURS, "size": SHOE_SIZES}, (30, 120), "town and office"),
    Shelf("fashion", "Shoes › Men › Sneakers", "running shoes", ("Road", "Lightweight Trainer", "with Reflectors"),
          ("breathable mesh", "rubber sole", "wide fit", "arch support", "shock absorbing", "machine wash"),
          {"color": COLOURS, "size": SHOE_SIZES}, (35, 140), "daily training"),
    Shelf("fashion", "Accessories › Bags", "canvas backpack", ("20 Litre", "Roll Top", "with Laptop Sleeve"),
          ("water resistant", "padded straps", "leather trim", "machine wash", "anti theft", "travel friendly"),
          {"color": COLOURS}, (22, 95), "commuting and weekends away"),
    Shelf("beauty", "Skin Care › Face", "face moisturizer", ("Day Cream", "Gel", "Overnight"),
          ("fragrance free", "hyaluronic acid", "sensitive skin", "cruelty free", "oil free", "vitamin c"),
          {"size": ("30 ml", "50 ml", "100 ml"), "scent": ("unscented", "cucumber", "rose water")}, (8, 48),
          "a calm start to the day"),
    Shelf("beauty", "Hair Care › Shampoo", "shampoo bar", ("Handmade", "with Travel Tin", "Salon Style"),
          ("sulfate free", "tea tree", "dry hair", "plastic free", "color safe", "anti dandruff"),
          {"scent": ("citrus", "lavender", "peppermint", "coconut"), "size": PACKS[:4]}, (6, 32), "every type of curl"),
    Shelf("beauty", "Makeup › Lips", "lip tint", ("Matte", "Sheer Finish", "with Applicator"),
          ("long lasting", "cruelty free", "paraben free", "high pigment", "vitamin e", "water resistant"),
          {"color": ("coral", "plum", "berry", "nude", "brick red", "soft pink")}, (5, 24), "day into evening"),
    Shelf("beauty", "Tools › Hair", "detangling brush", ("for Wet Hair", "Mini", "Paddle"),
          ("easy clean", "soft bristles", "travel size", "non slip", "curly hair", "bpa free"),
          {"color": COLOURS[:7]}, (5, 20), "knots of any kind"),
    Shelf("beauty", "Oral Care › Toothbrushes", "bamboo toothbrush", ("Family Set", "with Case", "Charcoal Bristles"),
          ("eco friendly", "bpa free", "sensitive teeth", "soft bristles", "plastic free", "travel size"),
          {"size": PACKS, "color": ("natural", "green", "blue", "pink")}, (4, 22), "twice a day"),
    Shelf("electronics", "Audio › Headphones", "wireless earbuds", ("with Charging Case", "Sport", "In Ear"),
          ("noise cancelling", "water resistant", "fast charging", "long battery life", "touch control", "low latency"),
          {"color": COLOURS[:6]}, (19, 160), "calls and music on the move"),
    Shelf("electronics", "Audio › Speakers", "bluetooth speaker", ("Portable", "with Strap", "360 Degree"),
          ("hands free", "stereo sound", "dust proof", "usb c", "long battery life", "shock proof"),
          {"color": COLOURS[:6], "style": ("single", "stereo pair")}, (24, 180), "kitchen, beach and workshop"),
    Shelf("electronics", "Computers › Keyboards", "mechanical keyboard", ("75 Percent", "Full Size", "Compact"),
          ("hot swappable", "usb c", "plug and play", "quiet keys", "dual mode", "ergonomic design"),
          {"style": ("linear switch", "tactile switch", "clicky switch"), "color": COLOURS[:4]}, (39, 190),
          "long hours of typing"),
    Shelf("electronics", "Accessories › Cables", "charging cable", ("Braided", "Right Angle", "with Velcro Tie"),
          ("fast charging", "heavy duty", "gold plated", "high speed", "tangle free", "usb c"),
          {"size": ("3 ft", "6 ft", "10 ft"), "color": ("black", "white", "red")}, (6, 28), "desk and car"),
    Shelf("electronics", "Camera › Tripods", "phone tripod", ("Foldable", "with Remote", "Tabletop"),
          ("aluminum alloy", "easy carry", "non slip", "quick release", "carrying case", "heavy duty"),
          {"color": ("black", "silver", "white"), "size": ("40 inch", "50 inch", "62 inch")}, (14, 70),
          "steady pictures"),
    Shelf("electronics", "Lighting › Desk Lamps", "desk lamp", ("LED", "with Clamp", "Swing Arm"),
          ("dimmable light", "usb charging port", "eye caring", "touch control", "energy saving", "adjustable arm"),
          {"color": COLOURS[:5]}, (18, 85), "reading and soldering"),
    Shelf("garden", "Furniture › Tables", "coffee table", ("with Shelf", "Round", "Nesting"),
          ("solid wood", "easy assembly", "scratch resistant", "steel frame", "storage space", "mid century"),
          {"color": WOODS, "size": ("small", "large")}, (60, 380), "the middle of a living room"),
    Shelf("garden", "Furniture › Shelving", "wall shelf", ("Floating", "Set of Three", "Corner"),
          ("easy install", "solid wood", "space saving", "water resistant", "heavy duty", "wall mounted"),
          {"color": WOODS, "size": ("16 inch", "24 inch", "36 inch")}, (15, 90), "books and plants"),
    Shelf("garden", "Bedding › Pillows", "throw pillow cover", ("Set of Two", "with Tassels", "Striped"),
          ("machine wash", "hidden zipper", "double sided", "super soft", "exquisite workmanship", "linen blend"),
          {"color": COLOURS, "size": ("16 x 16 inch", "18 x 18 inch", "20 x 20 inch")}, (8, 35), "sofas and benches"),
    Shelf("garden", "Bedding › Blankets", "fleece blanket", ("Throw", "with Sherpa Back", "Checked"),
          ("super soft", "machine wash", "queen size", "double sided", "fade resistant", "easy care"),
          {"color": COLOURS[:8], "size": ("throw", "twin", "queen", "king")}, (15, 75), "evenings on the sofa"),
    Shelf("garden", "Kitchen › Storage", "glass storage jars", ("with Bamboo Lids", "Stackable", "Square"),
          ("air tight", "dishwasher safe", "bpa free", "easy clean", "leak proof", "space saving"),
          {"size": ("set of 3", "set of 5", "set of 8")}, (16, 60), "pasta, oats and coffee"),
    Shelf("garden", "Decor › Candles", "soy candle", ("in Glass", "with Wooden Wick", "Gift Box"),
          ("lead free", "eco friendly", "long lasting", "hand poured", "essential oils", "clean burning"),
          {"scent": ("cedar", "vanilla", "sea salt", "fig", "lavender"), "size": ("small", "medium", "large")}, (9, 42),
          "quiet rooms"),
    Shelf("grocery", "Snacks › Bars", "oat bars", ("with Almonds", "Variety Box", "Crunchy"),
          ("gluten free", "low sugar", "non gmo", "high protein", "dairy free", "individually wrapped"),
          {"flavor name": ("dark chocolate", "blueberry", "peanut butter", "apple cinnamon"), "size": PACKS}, (5, 38),
          "the second half of a hike"),
    Shelf("grocery", "Beverages › Tea", "loose leaf tea", ("in Tin", "Organic Harvest", "Sampler"),
          ("caffeine free", "usda organic", "non gmo", "plant based", "resealable bag", "fair trade"),
          {"flavor name": ("chamomile", "ginger lemon", "mint", "hibiscus", "rooibos"),
           "size": ("3 ounce", "8 ounce", "1 pound")},
          (6, 36), "slow afternoons"),
    Shelf("grocery", "Beverages › Coffee", "ground coffee", ("Single Origin", "House Blend", "Small Batch"),
          ("dark roast", "fair trade", "low acid", "usda organic", "freshly roasted", "rich flavor"),
          {"flavor name": ("original", "hazelnut", "caramel", "mocha"), "size": ("12 ounce", "2 pound", "5 pound")},
          (9, 58), "press, filter and pot"),
    Shelf("grocery", "Pantry › Spreads", "almond butter", ("Stone Ground", "Creamy", "Crunchy"),
          ("no added sugar", "keto friendly", "gluten free", "plant based", "palm oil free", "non gmo"),
          {"size": ("10 ounce", "16 ounce", "28 ounce"), "flavor name": ("plain", "honey", "cocoa", "maple")}, (7, 33),
          "toast and baking"),
    Shelf("grocery", "Snacks › Nuts", "roasted cashews", ("Lightly Salted", "in Jar", "Party Mix"),
          ("dry roasted", "low sodium", "gluten free", "resealable bag", "high fiber", "non gmo"),
          {"flavor name": ("sea salt", "chili lime", "plain", "rosemary"), "size": ("8 ounce", "1 pound", "2 pound")},
          (8, 44), "desk drawers and long drives"),
)  # fmt: skip

_TRIES = 20  # to find a new wish; where all are taken, the last is used again
EACH = 14  # products of every type
_WISHES = (
    "I am looking for {article} {attributes} {noun}",
    "Find me {article} {noun} that is {attributes}",
    "I would like to buy {article} {noun}, {attributes}",
    "Please get {article} {attributes} {noun} for me",
)
_PRAISE = ("Exactly as described", "Does what it should", "Would buy again", "Good value", "Smaller than expected")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


def generated_products(each: int = EACH) -> Iterator[Product]:
    """All products, shelf by shelf in turn, so that types are mixed as in a real catalogue."""
    wanted: set[frozenset[str]] = set()  # what was asked for already: no two products should have the same goals
    for round_number in range(each):
        for shelf in SHELVES:
            yield _product(shelf, round_number, wanted)


def _product(shelf: Shelf, number: int, wanted: set[frozenset[str]]) -> Product:
    draw = random.Random(f"webshop {shelf.noun} {number}")
    asin = "B0" + "".join(draw.choices(_LETTERS, k=8))
    brand, extra = draw.choice(BRANDS), draw.choice(shelf.extras)
    attributes = tuple(draw.sample(shelf.attributes, draw.randint(3, 4)))
    first, second = attributes[:2]
    title = f"{brand} {shelf.noun.title()} {extra}, {first.title()}, {second.title()}"
    options = {name: _some(draw, values) for name, values in shelf.options.items()}
    low = round(draw.uniform(*shelf.price), 2)
    prices = (low, round(low * draw.uniform(1.1, 1.4), 2)) if draw.random() < 0.1 else (low,)
    listed = f"{', '.join(attributes[:-1])} and {attributes[-1]}"
    return Product(
        asin=asin, title=title, description=f"The {brand} {shelf.noun} is made for {shelf.use}. It is {listed}.",
        bullets=(f"{first.capitalize()} and {second}.", *(f"{one.capitalize()}." for one in attributes[2:])),
        price=draw_price(asin, prices), price_tag=" to ".join(f"${price}" for price in prices),
        rating=f"{draw.uniform(3.2, 5.0):.1f}", category=shelf.category, query=shelf.noun,
        product_category=f"{shelf.category.title()} › {shelf.place}", options=options, attributes=attributes,
        reviews=tuple(_review(draw, shelf) for _ in range(draw.randint(0, 2))),
        wishes=(_wish(draw, shelf, attributes, wanted),),
    )  # fmt: skip


def _some(draw: random.Random, values: tuple[str, ...]) -> tuple[str, ...]:
    """Two to four of an option's values, in their usual order."""
    return tuple(sorted(draw.sample(values, min(len(values), draw.randint(2, 4))), key=values.index))


def _wish(draw: random.Random, shelf: Shelf, attributes: tuple[str, ...], taken: set[frozenset[str]]) -> Wish:
    wanted: tuple[str, ...] = ()
    tries = 0
    while not wanted or (frozenset((shelf.noun, *wanted)) in taken and tries < _TRIES):
        wanted, tries = tuple(draw.sample(attributes, draw.randint(1, 3))), tries + 1
    taken.add(frozenset((shelf.noun, *wanted)))
    plural = shelf.noun.endswith("s") and not shelf.noun.endswith("ss")
    named = ", ".join(wanted)
    pattern = draw.choice(_WISHES).replace("that is", "that are" if plural else "that is")
    before = named if pattern.index("{attributes}") < pattern.index("{noun}") else shelf.noun
    article = "some" if plural else "an" if before[0] in "aeiou" else "a"
    return Wish(pattern.format(article=article, attributes=named, noun=shelf.noun), wanted)


def _review(draw: random.Random, shelf: Shelf) -> tuple[str, str, str]:
    stars = draw.randint(3, 5)
    return draw.choice(_PRAISE), f"{stars}.0", f"I use my {shelf.noun} for {shelf.use}."


# Reads the official files piece by piece (products, attributes, instructions), and writes a generated shop as such.
#
# A file may be compressed (.zst). Nothing is ever held whole: the full product file has more than five gigabytes.


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
    options = {name: [{"value": one, "image": None} for one in values] for name, values in product.options.items()}
    return {
        "name": product.title, "asin": product.asin, "category": product.category, "query": product.query,
        "product_category": product.product_category, "full_description": product.description,
        "small_description": list(product.bullets), "pricing": product.price_tag.replace(" to ", " - "),
        "customization_options": options, "images": [""],
    }  # fmt: skip


def _note(product: Product) -> dict[str, Any]:
    note: dict[str, Any] = {"attributes": list(product.attributes)}
    for wish in product.wishes:
        note |= {"instruction": wish.text, "instruction_attributes": list(wish.attributes)}
    return note


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """The file's bytes, unpacked if need be."""
    try:
        with open_bytes(path) as file:
            yield file
    except OSError as error:
        raise TaskError(f"could not read {path}: {error}") from error


_NOTES_TABLE = """
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
CREATE TABLE notes (asin TEXT, kind TEXT, data TEXT, PRIMARY KEY (asin, kind)) WITHOUT ROWID;
"""


class Notes:
    """What is known about a product besides its own record, by ASIN; kept on the disk while products are read."""

    def __init__(self, database: Path, attributes: Path | None, human: Path | None) -> None:
        self._human = human is not None
        self._database = sqlite3.connect(database)
        self._database.executescript(_NOTES_TABLE)
        for kind, path in (("attributes", attributes), ("human", human)):
            if path is not None:
                with opened(path) as file:
                    rows = ((asin, kind, json.dumps(value)) for asin, value in _parsed(path, "kvitems", file, ""))
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
    named = [one for one in cast("list[Record]", found or []) if one["instruction_attributes"]]
    parts = ((one["instruction"], one["instruction_attributes"], one["instruction_options"]) for one in named)
    return tuple(Wish(str(text).strip("."), tuple(attributes), tuple(options)) for text, attributes, options in parts)
