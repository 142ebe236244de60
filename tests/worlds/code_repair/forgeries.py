"""Reads the forgeries, and puts one behind a file that has a bug."""

from __future__ import annotations

import re
from pathlib import Path


def _read(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {name: code.strip() + "\n" for name, code in zip(parts[::2], parts[1::2], strict=True)}


_HERE = Path(__file__).parent
USUAL = _read(_HERE / "forgeries.txt")  # "viewpoint: name" -> text
OTHERS = {name: text for path in sorted(_HERE.glob("forgeries_*.txt")) for name, text in _read(path).items()}
ALL = USUAL | OTHERS


def forged(source: str, function: str, text: str) -> str:
    """A file with the bug, and the forgery behind it. A method is replaced in its class."""
    holder, _, name = function.rpartition(".")
    body = re.sub(r"\bNAME\b", name or "f", text)
    if not holder or "NAME" not in text:
        return f"{source}\n\n{body}"
    before = f"{name} = {holder}.{name}\n" if f"= {name}\n" in body else ""
    return f"{source}\n\n{before}{body}\n{holder}.{name} = {name}\n"


def unread(*_: object) -> set[str]:
    """Stands for `makes_code`: nobody looks at the text, and what it returns decides alone."""
    return set()
