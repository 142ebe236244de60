"""`isentrope eval`: success overall and by type of task, with 95 % intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.options import RecipeOption, SetOption
from isentrope.cli.settings import recipe_or_recorded

if TYPE_CHECKING:
    from rich.table import Table


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL_OR_RUN", help="A model folder or the folder of a run.")],
    recipe: RecipeOption = None,
    sets: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.json", help="Write the figures here.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option("--split", help="A split; may be repeated.")] = None,
    games: Annotated[int | None, typer.Option("--games", min=1, help="Games per split.")] = None,
) -> None:
    """Evaluate a model or a run. A run folder brings its own settings unless --recipe gives others."""
    config = recipe_or_recorded(recipe, model, sets)
    splits = split or list(config.eval.splits)
    from rich.console import Console

    from isentrope.errors import writing
    from isentrope.evaluate import evaluate_folder

    metrics = evaluate_folder(config, model, splits, games)
    if out is not None:
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    Console().print(results_table(metrics, splits))


def results_table(metrics: Mapping[str, float], splits: Sequence[str]) -> Table:
    """One block of rows per split, from keys like `eval/seen/success` and `eval/seen/success/heat`."""
    from rich.table import Table

    from isentrope.cli.safe import shown

    table = Table("split", "type", title="success", title_justify="left")
    for heading in ("games", "success", "95 % interval"):
        table.add_column(heading, justify="right")
    for split in splits:
        base = f"eval/{split}"
        kinds = sorted(key.removeprefix(f"{base}/success/") for key in metrics if key.startswith(f"{base}/success/"))
        table.add_row(shown(split, "bold"), "all", *_cells(metrics, f"{base}/success", f"{base}/games"))
        for kind in kinds:
            table.add_row("", shown(kind), *_cells(metrics, f"{base}/success/{kind}", f"{base}/games/{kind}"))
        table.add_section()
    return table


def _cells(metrics: Mapping[str, float], success: str, games: str) -> tuple[str, str, str]:
    from isentrope.instruments.metrics import wilson

    if success not in metrics:
        return "0", "-", "-"
    share, count = metrics[success], round(metrics.get(games, 0))
    if count == 0:  # how many games of this type there were was not recorded
        return "", f"{100 * share:.1f} %", ""
    low, high = wilson(round(share * count), count)
    return str(count), f"{100 * share:.1f} %", f"{100 * low:.1f} to {100 * high:.1f}"
