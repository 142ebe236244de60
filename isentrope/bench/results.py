"""Results of a benchmark: a table for the reader, a JSON file for programs.

    {"name", "machine", "date", "rows": [{"what", "value", "unit", "ratio", "peer", "bar", "note"}]}

`ratio` is how much better than `peer` (2: twice as fast, a quarter: four times as slow); `bar` is the least it should
be. Rows without a ratio are plain figures.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError, writing
from isentrope.core.process import processor, usable_cores


@dataclass(frozen=True)
class Row:
    what: str
    value: float
    unit: str
    ratio: float | None = None
    peer: str = ""
    bar: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None where nothing was to be met."""
        return None if self.bar is None or self.ratio is None else self.ratio >= self.bar


@dataclass(frozen=True)
class Result:
    name: str
    machine: str
    date: str
    rows: list[Row] = field(default_factory=list[Row])

    @property
    def met(self) -> bool:
        return all(row.met is not False for row in self.rows)

    def write(self, path: Path) -> None:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")


def read_result(path: Path) -> Result:
    """A result as `Result.write` or any script that keeps to the form wrote it."""
    try:
        found = json.loads(path.read_text("utf-8"))
        names = {item.name for item in fields(Row)}
        given = cast("list[Mapping[str, Any]]", found["rows"])
        rows = [Row(**{key: value for key, value in row.items() if key in names}) for row in given]
        return Result(str(found["name"]), str(found["machine"]), str(found["date"]), rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(f"{path} is no result of a bench: {reason}; run the bench again") from error


def machine() -> str:
    """In words: the GPU if there is one, the cores this process may use, torch."""
    import torch

    parts = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    parts += [
        f"{usable_cores()} cores ({processor()})",
        f"torch {torch.__version__}",
        f"Python {platform.python_version()}",
    ]
    return ", ".join(parts)


def finish(name: str, rows: Sequence[Row], json_file: Path | None = None) -> Result:
    """Print the table of a bench, and write it where it was asked for."""
    from rich.console import Console

    result = Result(name, machine(), time.strftime("%Y-%m-%d"), list(rows))
    if json_file is not None:
        result.write(json_file)
    console = Console()
    if not console.is_terminal:  # a log has no width: sentences stay in one piece
        console = Console(width=160)
    console.print(table_of(result))
    console.print(f"[dim]{result.machine}, {result.date}[/dim]")
    return result


def table_of(result: Result) -> Any:
    """A rich table: figure, ratio, bar and verdict of each row."""
    from rich.text import Text

    from isentrope.analysis.tables import rich_table

    rows: list[list[str | Text]] = []
    for row in result.rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
        verdict = {True: ("met", "green"), False: ("MISSED", "bold red"), None: ("", "")}[row.met]
        bar = Text("" if row.bar is None else f"{row.bar:g} × {verdict[0]}", style=verdict[1])
        rows.append([row.what, _number(row.value), row.unit, ratio, row.peer, bar, row.note])
    head = ("what", "value", "unit", "ratio", "against", "bar", "note")
    return rich_table(head, rows, right=("value", "ratio", "bar"), title=result.name)


def _number(value: float) -> str:
    if value == 0 or 0.001 <= abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1e}"
