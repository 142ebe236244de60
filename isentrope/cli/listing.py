"""Settings and metrics with their meanings: a table where the terminal is wide, else a list of which nothing is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from isentrope.config.describe import SettingInfo

WIDE = 110  # columns from which a table is easier to read than a list


def show_settings(console: Console, rows: Iterable[tuple[SettingInfo, str]], headings: Sequence[str]) -> None:
    """Settings, each with its value here. `headings` are those of the value, or of the value and the default."""
    from rich.text import Text

    from isentrope.cli.options import table_of_names

    if console.width < WIDE:
        for info, value in rows:
            changed = value != info.default
            first = Text.assemble(shown(info.path, "cyan"), " = ", shown(value, "bold green" if changed else ""))
            if changed:
                first.append_text(shown(f"  (default: {info.default or 'none'})", "dim"))
            _show_entry(console, first, f"{info.doc} ({info.allowed})")
        return
    table, section = table_of_names("setting", *headings, "allowed", "meaning"), None
    for info, value in rows:
        if section not in (None, info.path.rpartition(".")[0]):
            table.add_section()
        section = info.path.rpartition(".")[0]
        values = [shown(value, "bold green" if value != info.default else ""), shown(info.default)][: len(headings)]
        table.add_row(shown(info.path, "cyan"), *values, shown(info.allowed), shown(info.doc))
    console.print(table)


def show_metrics(console: Console, rows: Iterable[tuple[str, str, str]]) -> None:
    """Each with its unit and its meaning."""
    from rich.text import Text

    from isentrope.cli.options import table_of_names

    if console.width < WIDE:
        for key, unit, meaning in rows:
            _show_entry(console, Text.assemble(shown(key, "cyan"), "  ", shown(unit, "dim")), meaning)
        return
    table = table_of_names("metric", "unit", "meaning")
    for key, unit, meaning in rows:
        table.add_row(shown(key, "cyan"), shown(unit), shown(meaning))
    console.print(table)


def _show_entry(console: Console, head: Text, meaning: str) -> None:
    """A name with what belongs to it, and its meaning below, set in."""
    from rich.padding import Padding

    console.print(head, overflow="fold")
    console.print(Padding(shown(meaning), (0, 0, 0, 4)))
