"""`isentrope check-task webshop --products FILE --rankings FILE`: does the shop find what another engine found?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

BAR = 0.98  # of top-1 agreement and of top-10 overlap
_SHOWN = 5  # queries that differ most


def check_rankings(products: Path | None, rankings: Path | None, world: str, console: Console) -> bool:
    """Print top-1 agreement and top-10 overlap; False if either is below the bar."""
    from isentrope.cli.safe import shown
    from isentrope.errors import TaskError
    from isentrope.tasks.webshop.rankings import compare, read_rankings
    from isentrope.tasks.webshop.stock import open_official

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
