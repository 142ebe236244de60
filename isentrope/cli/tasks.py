"""`isentrope check-task`: does a world keep the contract, and does it play like the recordings?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.options import RecipeOption, SetOption, WorldArgument
from isentrope.cli.settings import for_world

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.tasks.contract import World


def check_task(
    world: WorldArgument = None,
    games: Annotated[int, typer.Option("--games", min=1, help="Games per split.")] = 5,
    transcripts: Annotated[
        Path | None, typer.Option("--transcripts", help="Replay these recorded games (household) instead.")
    ] = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
) -> None:
    """Check a world against the contract: determinism, hostile actions, order of calls, splits, expert.

    Exit code 1 if something does not hold.
    """
    config = for_world(recipe, world, sets)
    from rich.console import Console

    console = Console(highlight=False)
    if transcripts is not None:
        fine = _replay(transcripts, config.task.world, console)
    else:
        from isentrope.tasks.registry import make_world

        made = make_world(config.task.world, config.task.options)
        fine = _conformance(made, games, max(100, config.task.max_turns), console)
    if not fine:
        raise typer.Exit(1)


def _conformance(world: World, games: int, max_turns: int, console: Console) -> bool:
    from isentrope.cli.safe import shown
    from isentrope.tasks.conformance import iter_findings

    fine = True
    for finding in iter_findings(world, games, max_turns):
        mark = shown("ok    ", "green") if finding.ok else shown("BROKEN", "bold red")
        console.print(mark, shown(f"{finding.name:<28}", "bold"), shown(finding.detail))
        fine = fine and finding.ok
    return fine


def _replay(transcripts: Path, world: str, console: Console) -> bool:
    """Replay recorded games; each game's first difference is shown as it is found."""
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from isentrope.cli.safe import shown
    from isentrope.errors import TaskError
    from isentrope.tasks.household.transcripts import check_transcripts

    if world != "household":
        raise TaskError(f"recordings can be replayed for the household world only, not for {world}")
    games = steps = different = 0
    columns = (SpinnerColumn(), TextColumn("replaying"), MofNCompleteColumn(), TextColumn("games"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=None)
        for check in check_transcripts(transcripts):
            games, steps = games + 1, steps + check.steps
            if check.difference is not None:
                different += 1
                console.print(shown(f"line {check.line}, {check.game}", "bold red"))
                console.print(shown(f"  {check.difference}"))
            progress.advance(bar)
    if games == 0:
        raise TaskError(f"{transcripts} holds no recorded game")
    verdict = "all the same" if not different else f"{different} different"
    console.print(shown(f"{games} games, {steps} steps: {verdict}", "bold green" if not different else "bold red"))
    return different == 0
