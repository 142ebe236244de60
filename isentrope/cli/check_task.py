"""`isentrope check-task`: checks a world against the contract, recorded games or recorded search rankings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isentrope.cli.options import RecipeOption, SetOption, WorldArgument, for_world, terminal
from isentrope.core.errors import TaskError
from isentrope.core.text import shown
from isentrope.worlds.registry import world_needs

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.worlds.contract import World

BAR = 0.98  # of top-1 agreement and of top-10 overlap
_SHOWN = 5  # queries that differ most


def check_rankings(products: Path | None, rankings: Path | None, world: str, console: Console) -> bool:
    """Compare the shop's search with recorded rankings: print top-1 agreement and top-10 overlap; False if either is
    below the bar."""
    from isentrope.worlds.webshop.catalogue import compare, open_official, read_rankings

    if world != "webshop":
        raise TaskError(f"rankings can be compared for the world webshop only, not for {world}")
    if products is None or rankings is None:
        raise TaskError("comparing rankings takes both files: --products FILE and --rankings FILE")
    recorded = read_rankings(rankings)
    catalogue = open_official(str(products), to_play=False)
    found = list(compare(catalogue, recorded))
    first = sum(one.same_first for one in found) / len(found)
    overlap = sum(one.overlap for one in found) / len(found)
    fine = first >= BAR and overlap >= BAR
    for one in sorted(found, key=lambda one: (one.overlap, one.same_first))[:_SHOWN]:
        if one.overlap < 1 or not one.same_first:
            console.print(shown(f"{one.overlap:4.0%}  {one.query[:90]}", "dim"))
    style = "bold green" if fine else "bold red"
    console.print(shown(f"{len(found)} queries over {len(catalogue):,} products"))
    console.print(shown(f"top-1 agreement  {first:7.2%}", style))
    console.print(shown(f"top-10 overlap   {overlap:7.2%}", style))
    console.print(shown(f"{'as close as' if fine else 'not as close as'} it should be: at least {BAR:.0%} each"))
    catalogue.close()
    return fine


def check_task(
    world: WorldArgument = None,
    games: Annotated[int, typer.Option("--games", min=1, help="Games per split; fewer for a slow world.")] = 5,
    max_turns: Annotated[
        int | None, typer.Option("--max-turns", min=1, help="Turns of an episode; 100 or task.max_turns if not given.")
    ] = None,
    transcripts: Annotated[
        Path | None, typer.Option("--transcripts", help="Replay these recorded games (household) instead.")
    ] = None,
    products: Annotated[
        Path | None, typer.Option("--products", help="Official product file (webshop), for --rankings.")
    ] = None,
    rankings: Annotated[
        Path | None,
        typer.Option("--rankings", help="Compare the search (webshop) with this TSV instead: query, tab, ASINs."),
    ] = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
) -> None:
    """Check that a world keeps the contract.

    Checked are determinism, hostile actions, new starts, rewards, splits and the expert. Exit code 1 if something does
    not hold.
    """
    config, console = for_world(recipe, world, sets), terminal()
    world_needs(config.task.world, config.task.options).check(f"the world {config.task.world}", TaskError)
    if transcripts is not None:
        fine = _replay(transcripts, config.task.world, console)
    elif products is not None or rankings is not None:
        fine = check_rankings(products, rankings, config.task.world, console)
    else:
        from isentrope.worlds.pool.open import open_world

        made = open_world(config.task)
        turns = max_turns or max(100, config.task.max_turns)
        fine = _conformance(made, games, turns, (config.task.world, config.task.options), console)
        if close := getattr(made, "close", None):
            close()
    if not fine:
        raise typer.Exit(1)


def _conformance(
    world: World, games: int, max_turns: int, remake: tuple[str, Mapping[str, Any]], console: Console
) -> bool:
    from isentrope.worlds.conformance.suite import iter_findings

    fine = True
    with console.status("checking") as status:  # shown in a terminal alone

        def watch(name: str, done: int, total: int) -> None:
            status.update(shown(f"{name}: game {done + 1} of {total}" if total else name))

        for finding in iter_findings(world, games, max_turns, remake=remake, watch=watch):
            state, style = ("ok", "green") if finding.ok else ("BROKEN", "bold red")
            if finding.skipped or finding.limited:
                state, style = "skip" if finding.skipped else "limit", "yellow"
            console.print(shown(f"{state:<6}", style), shown(f"{finding.name:<28}", "bold"), shown(finding.detail))
            fine = fine and finding.ok
    return fine


def _replay(transcripts: Path, world: str, console: Console) -> bool:
    """Replay recorded games; each game's first difference is shown as it is found."""
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from isentrope.worlds.household.transcripts import check_transcripts

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
