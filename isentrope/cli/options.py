"""Arguments that several commands share."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

RecipeArgument = Annotated[
    Path | None, typer.Argument(metavar="[RECIPE]", help="A TOML recipe; all defaults without it.")
]
RecipeOption = Annotated[Path | None, typer.Option("--recipe", help="A TOML recipe.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting, e.g. learn.lr=1e-5; may be repeated."),
]
OutFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The run folder.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")]
WorldArgument = Annotated[
    str | None,
    typer.Argument(metavar="[WORLD]", help="A world's name, or module:Class for your own.", show_default=False),
]


def named_rows(entries: Sequence[str]) -> dict[str, list[Path]]:
    """Run folders by the name of their row, from `--row NAME=PATH`, where PATH may have * in it."""
    rows: dict[str, list[Path]] = {}
    for entry in entries:
        name, equals, pattern = entry.partition("=")
        if not equals or not name.strip() or not pattern:
            raise typer.BadParameter(f"{entry!r}: expected NAME=PATH, where PATH may have * in it", param_hint="--row")
        found = sorted(Path(path) for path in glob.glob(pattern)) or [Path(pattern)]
        rows.setdefault(name.strip(), []).extend(path for path in found if path.is_dir() or len(found) == 1)
    return rows
