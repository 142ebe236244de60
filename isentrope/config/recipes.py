"""The recipes that come with the package: found by name, grouped, and what each is for.

`isentrope train demo` and, in a recipe, `extends = "demo"` name a file beside the user first, then one of ours. So a
copy of a recipe of ours works wherever it lies: what it builds upon is named, not found by a path.
"""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).resolve().parents[1]

# Package data in a wheel; beside the package in a checkout.
RECIPES = next((folder for folder in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes") if folder.is_dir()), _PACKAGE)

ROWS = "papers/rows"  # a TOML file too: the numbers that the papers print
STUDIES, PAPERS = "studies", "papers"
_LINE = 110  # characters of what a recipe is for


class Known(NamedTuple):
    name: str
    meaning: str
    path: Path


def recipe_names() -> list[str]:
    """The recipes that come with the package, by name: `demo`, `studies/quick`."""
    names = sorted(path.relative_to(RECIPES).with_suffix("").as_posix() for path in RECIPES.rglob("*.toml"))
    return [name for name in names if name != ROWS]


def our_recipe(name: Path | str) -> Path | None:
    """The file of ours that a name means: `demo`, `demo.toml`, `papers/rows`, `alfworld.sh`."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.name:
        return None
    named = RECIPES / path
    return next((file for file in (named.with_name(f"{named.name}.toml"), named) if file.is_file()), None)


def find_recipe(recipe: Path | str) -> Path:
    """A file, or the name of a recipe that comes with the package."""
    path = Path(recipe)
    return path if path.is_file() else our_recipe(path) or path


def recipe_beside(file: Path, named: str) -> Path:
    """What a recipe or a study names as its base: a file beside it, or a recipe of ours, wherever it lies itself."""
    near = file.parent / named
    return near if near.is_file() else our_recipe(named) or near


def known_recipes(under: str = "") -> list[Known]:
    """Our recipes with what they are for; those in a folder (`studies`, `papers`), or those in none."""
    names = [name for name in recipe_names() if name.partition("/")[0] == under or not (under or "/" in name)]
    return [Known(name, meaning_of(path), path) for name in names if (path := our_recipe(name))]


def scripts() -> list[Path]:
    """Shell scripts beside the recipes: several commands in a row."""
    return sorted(RECIPES.glob("*.sh"))


def meaning_of(path: Path) -> str:
    """The first sentence of the comment that a recipe begins with, bounded; of a long one the part before a colon."""
    paragraph = " ".join(takewhile(bool, (line[1:].strip() for line in _comment(path))))
    sentence = re.split(r"(?<=[^.][.])\s+(?=[A-Z])", paragraph, maxsplit=1)[0].rstrip(".")
    if len(sentence) > _LINE:
        sentence = sentence.partition(": ")[0]
    return sentence if len(sentence) <= _LINE else sentence[: _LINE - 2].rsplit(" ", 1)[0] + " …"


def _comment(path: Path) -> list[str]:
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#!"):
            continue
        if not line.startswith("#"):
            break
        lines.append(line)
    return lines
