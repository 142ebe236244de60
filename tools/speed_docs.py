"""Writes the tables of speed at a glance and a picture from docs/speed.toml: `python -m tools.speed_docs`.

Tables stand between `<!-- speed -->` and `<!-- /speed -->`: a short one in the README, all in docs/performance.md.
The picture has sampling by model size, ours and vLLM's, as a share of the rate that the card's limits allow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from isentrope.analysis.tables import markdown_table
from isentrope.bench.floor import CARDS, Sizes, least_seconds
from isentrope.bench.sampling import PROMPTS, SHAPES, TALK
from isentrope.charts.chart import Chart, Panel, Series
from isentrope.charts.svg import picture
from isentrope.charts.text import filled
from isentrope.runs.atomic import write_atomically

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "speed.toml"
PAGES = {ROOT / "README.md": True, ROOT / "docs" / "performance.md": False}  # whether the page has the short table
PICTURE = ROOT / "docs" / "images" / "sampling.svg"
WORKS = {"prompts": PROMPTS, "conversations": TALK}
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


def drawn() -> str:
    """Shares of the limit over billions of weights."""
    panels: list[Panel] = []
    for name, work in WORKS.items():
        rows: list[tuple[float, float, float]] = []
        for figure in (one for one in figures() if one["name"] == name):
            sizes = Sizes.of(SHAPES[figure["shape"]].config())
            limit = work.tokens / least_seconds(sizes, work, CARDS["H200"])
            rows.append(((sizes.layers + sizes.head) / 1e9, figure["ours"] / limit, figure["peer"] / limit))
        billions, *sides = ([*column] for column in zip(*sorted(rows), strict=True))
        lines = [
            Series(side, billions, [*shares], color=place, markers=True)
            for place, (side, shares) in enumerate(zip(("Isentrope", "vLLM 0.23.0"), sides, strict=True))
        ]
        panels.append(Panel(lines, "billion weights", title=work.name))
    chart = Chart("", panels, shares=True, full=True)
    title = "Sampling on one H200: share of what bandwidth and arithmetic allow"
    return picture(chart, title=title, width=900, height=330, inches=9.4)


def rendered() -> dict[Path, str]:
    return {**{page: render(page) for page in PAGES}, PICTURE: drawn()}


def main() -> None:
    for path, text in rendered().items():
        write_atomically(path, text.encode())
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
