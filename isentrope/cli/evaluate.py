"""`isentrope eval`: success overall and by type of task, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.completion import complete_model_or_run
from isentrope.cli.options import RecipeOption, SetOption, TrustOption, recipe_or_run, say_loading_by, terminal
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.table import Table

    from isentrope.analysis.measure import Evaluation
    from isentrope.analysis.record import Record
    from isentrope.core.stats import Share

CUT_BY = {"clock": "cut off by the clock", "context_limit": "out of context"}


class Order(StrEnum):
    think_act = "think_act"
    act_think = "act_think"
    plain = "plain"
    act = "act"


class Which(StrEnum):
    best = "best"
    last = "last"
    all = "all"


def evaluate(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL_OR_RUN",
            help="A model's name or folder, or the folder of a run. Not needed where the recipe or a server has one.",
            show_default=False,
            autocompletion=complete_model_or_run,
        ),
    ] = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
    trust: TrustOption = False,
    split: Annotated[list[str] | None, typer.Option("--split", help="A split; may be repeated.")] = None,
    games: Annotated[
        str | None, typer.Option("--games", metavar="N|all", help="Games per split; all: every game of the split.")
    ] = None,
    episodes: Annotated[int, typer.Option("--episodes", min=1, help="Episodes of each game.")] = 1,
    order: Annotated[Order | None, typer.Option("--order", help="Form of a response.", show_default=False)] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", "-t", help="Sampling temperature; 0: the most likely token.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the sampling.")] = None,
    first_game: Annotated[int | None, typer.Option("--first-game", help="Index of the first game.")] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="The checkpoint of this step of a run.")] = None,
    checkpoint: Annotated[
        Which | None, typer.Option("--checkpoint", help="Which checkpoint of a run: best, unless said otherwise.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the row in tables.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.json", help="Write the record here, for isentrope table."),
    ] = None,
    save_episodes: Annotated[
        Path | None, typer.Option("--save-episodes", metavar="DIR", help="Store the episodes here, as Parquet.")
    ] = None,
) -> None:
    """Evaluate a model or a run: success with 95 % intervals.

    A run folder brings its own settings unless --recipe gives others.
    """
    if model is None and recipe is None and not sets:
        raise typer.BadParameter("name a model or a run, or give a --recipe", param_hint="MODEL_OR_RUN")
    if step is not None and checkpoint is not None:
        raise typer.BadParameter("give one of --step and --checkpoint", param_hint="--step")
    run = Path(model) if model else None
    say_loading_by(recipe, run, sets, model)
    laid = {"eval.games": _number(games), "eval.first_game": first_game, "eval.temperature": temperature}
    laid |= {"run.seed": seed, "eval.splits": ",".join(split or ()) or None}
    config = recipe_or_run(recipe, run, [*(sets or []), *_as_settings(laid)], trust)
    from isentrope.analysis.record import write_record
    from isentrope.loop.evaluate import Exam, evaluate_model

    which = step if step is not None else checkpoint.value if checkpoint else None
    exam = Exam(games == "all", episodes, order.value if order else None, which, save_episodes)
    record = evaluate_model(config, model, exam, name)
    if out is not None:
        write_record(out, record)
        typer.echo(f"wrote {out}", err=True)
    show(record)


def _as_settings(laid: Mapping[str, object]) -> list[str]:
    """Options as --set has them, so that they are checked like any other setting."""
    return [f"{key}={value}" for key, value in laid.items() if value is not None]


def _number(games: str | None) -> str | None:
    if games is None or games == "all":
        return None
    if not games.isascii() or not games.isdigit() or int(games) == 0:
        raise typer.BadParameter(f"{games!r} is neither a number of games nor all", param_hint="--games")
    return games


def show(record: Record) -> None:
    """The tables, and what the engine has to say of its work."""
    console = terminal()
    for evaluation, notes in zip(record.evaluations, record.notes, strict=True):
        console.print(results_table(record.name, evaluation))
        for key, value in notes.items():
            console.print(shown(f"{key.replace('_', ' ')}: {value:,.6g}"))


def results_table(name: str, evaluation: Evaluation) -> Table:
    """One block of rows per split: all games, each type, the mean over types, then what else was measured."""
    from rich.table import Table

    title = name if evaluation.step is None else f"{name}, step {evaluation.step}"
    table = Table("split", "type", title=shown(title), title_justify="left")
    for heading in ("games", "episodes", "success", "95 % interval"):
        table.add_column(heading, justify="right")
    for split, result in evaluation.splits.items():
        table.add_row(shown(split, "bold"), "all", *_cells(result.success))
        for kind, share in result.kinds.items():
            table.add_row("", shown(kind), *_cells(share))
        if result.average is not None:
            table.add_row("", "mean of types", "", "", f"{100 * result.average:.1f} %", "")
        table.add_section()
        for kind, value in result.means.items():
            text = f"{100 * value:.1f} %" if kind in ("score", "valid_ratio") else f"{value:.2f}"
            table.add_row("", kind.replace("_", " "), "", "", text, "")
        if result.failures:
            table.add_row("", "lost to a fault", "", str(result.failures), "", "")
        for stop, count in result.cut.items():
            table.add_row("", CUT_BY[stop], "", str(count), "", "")
        table.add_section()
    return table


def _cells(share: Share) -> tuple[str, str, str, str]:
    interval = f"{100 * share.low:.1f} to {100 * share.high:.1f}"
    return str(share.games), str(share.episodes), f"{100 * share.value:.1f} %", interval
