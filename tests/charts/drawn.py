"""What a picture shows, read back from its SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Drawn:
    texts: list[str]
    lines: int
    bands: int


def drawn_of(text: str) -> Drawn:
    root = ElementTree.fromstring(text)
    styles = [one.attrib.get("class", "").split() for one in root.iter() if one.tag in (f"{SVG}path", f"{SVG}line")]
    return Drawn(
        texts=["".join(one.itertext()) for one in root.iter(f"{SVG}text")],
        lines=sum("line" in style and "thin" not in style for style in styles),
        bands=sum("band" in style for style in styles),
    )
