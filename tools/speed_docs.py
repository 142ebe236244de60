"""Writes the tables of speed at a glance from docs/speed.toml: `python -m tools.speed_docs`.

They stand between `<!-- speed -->` and `<!-- /speed -->`: a short one in the README, all of it in docs/performance.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from isentrope.analysis.tables import markdown_table
from isentrope.charts.text import filled
from isentrope.runs.atomic import write_atomically

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "speed.toml"
PAGES = {ROOT / "README.md": True, ROOT / "docs" / "performance.md": False}  # whether the page has the short table
_ROUNDING = 0.02  # a ratio is rounded, and so are its two sides


def figures(source: Path = SOURCE) -> list[dict[str, Any]]:
    found = tomllib.loads(source.read_text(encoding="utf-8"))["figure"]
    for figure in found:
        ours, peer, times = (float(figure[name]) for name in ("ours", "peer", "times"))
        ratio = peer / ours if figure["unit"] == "s" else ours / peer
        if abs(ratio / times - 1) > _ROUNDING:
            raise ValueError(
                f"{figure['work']}: {ours:g} against {peer:g} {figure['unit']} is {ratio:.3g} ×, not {times:g}"
            )
    return found


def table(chosen: Sequence[dict[str, Any]]) -> str:
    head = ("work", "Isentrope", "peer", "", "against, where, when")
    return markdown_table(head, [_row(one) for one in chosen], figures=True)


def _row(figure: dict[str, Any]) -> list[str]:
    sides = [f"{figure[side]:,} {figure['unit']}" for side in ("ours", "peer")]
    return [figure["work"], *sides, f"**{figure['times']:g} ×**", _where(figure)]


def _where(figure: dict[str, Any]) -> str:
    day: date = figure["date"]
    parts = [figure["against"], figure["machine"], f"{day.day} {day:%B %Y}"]
    parts += [f"`{figure['command']}`"] if "command" in figure else []
    return ", ".join(parts)


def render(page: Path) -> str:
    chosen = [one for one in figures() if one.get("readme") or not PAGES[page]]
    return filled(page.read_text(encoding="utf-8"), {"speed": table(chosen)})


def main() -> None:
    for page in PAGES:
        write_atomically(page, render(page).encode())
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
