"""`isentrope check-method`: checks a method, a loss or an advantage estimator on made-up episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from isentrope.cli.completion import complete_part
from isentrope.cli.options import terminal
from isentrope.config.load import read_overrides
from isentrope.core.errors import ConfigError
from isentrope.core.text import shown

_STATES = {"ok": "green", "BROKEN": "bold red", "skip": "yellow", "note": "cyan"}


def check_method(
    part: Annotated[
        str,
        typer.Argument(
            metavar="PART",
            help="A method, loss or advantage estimator by name, or module:Class.",
            autocompletion=complete_part,
        ),
    ],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="OPTION=VALUE", help="Change one option of the part; may be repeated."),
    ] = None,
) -> None:
    """Check a method, a loss or an advantage estimator.

    Checked are hooks, gradients, off, restart, packing, metrics and time. Exit code 1 if something does not hold, 2 if
    it cannot be loaded.
    """
    table = options_of(sets or ())
    from isentrope.methods.conformance.suite import find_part, iter_findings

    kind, console, fine = find_part(part, table), terminal(), True
    with console.status("checking"):  # shown in a terminal alone
        for finding in iter_findings(kind, table):
            state, name = shown(f"{finding.state:<6}", _STATES[finding.state]), shown(f"{finding.name:<22}", "bold")
            console.print(state, name, shown(finding.detail))
            fine = fine and finding.state != "BROKEN"
    if not fine:
        raise typer.Exit(1)


def options_of(sets: Sequence[str]) -> dict[str, Any]:
    """The options of the part, by their names alone."""
    wrong = [text for text in sets if not text.partition("=")[0].strip().isidentifier() or "=" not in text]
    if wrong:
        raise ConfigError(f"--set {wrong[0]}: expected option=value, an option of the part itself, such as alpha=0.5")
    return read_overrides([f"method.part.{text}" for text in sets], []).get("method", {}).get("part", {})
