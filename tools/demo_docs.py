"""Writes the demo's table and picture: `python -m tools.demo_docs [RUN ...]`.

RUNS are finished demos, one for each seed, each with its warm-up (RUN/warmup, or what its policy.model names). Their
evaluations are kept in docs/demo.json; without RUNS the pages are written again from what is kept. The table stands
between `<!-- demo -->` and `<!-- /demo -->` in the README and in docs/demo.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.analysis.tables import markdown_table
from isentrope.charts.chart import Chart, Panel, Series
from isentrope.charts.svg import picture
from isentrope.charts.text import filled
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import Run

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "demo.json"
PICTURE = ROOT / "docs" / "images" / "demo.svg"
PAGES = (ROOT / "README.md", ROOT / "docs" / "demo.md")
SPLIT = "unseen"
_PARTS = ("success", "low", "high")
_GREY, _BLACK = 7, 6

Row = dict[str, float]  # an evaluation: step, success, low, high, games


def kept_from(paths: Sequence[Path]) -> dict[str, Any]:
    seeds: dict[str, Any] = {}
    versions: set[str] = set()
    for path in paths:
        run = Run.open(path)
        warmup, train = run.warmup(), _evaluations(run)
        if warmup is None or not train or train[-1]["step"] != run.setting("run.steps"):
            raise SystemExit(f"{path}: expected a finished demo with its warm-up")
        versions.add(str(run.about.get("version", "")))
        seeds[str(run.setting("run.seed"))] = {"warmup": _evaluations(warmup), "train": train}
    if len(versions) != 1:
        raise SystemExit(f"expected runs of one version, got {', '.join(sorted(versions))}")
    return {"version": versions.pop(), "seeds": dict(sorted(seeds.items()))}


def _evaluations(run: Run) -> list[Row]:
    found: list[Row] = []
    for record in run.of_kind("eval"):
        key = f"eval/{SPLIT}/"
        if f"{key}success" in record:
            values = {part: float(record[key + part]) for part in (*_PARTS, "games")}
            found.append({"step": float(record["step"]), **values})
    return found


def table(kept: Mapping[str, Any]) -> str:
    head = ("seed", "end of warm-up", "before (kept checkpoint)", "after 30 steps of GRPO", "gain")
    rows: list[list[str]] = []
    for seed, found in kept["seeds"].items():
        before, after = found["train"][0], found["train"][-1]
        gain = 100 * (after["success"] - before["success"])
        cells = [_percent(found["warmup"][-1]), _percent(before), f"**{_percent(after)}**"]
        rows.append([seed, *cells, f"{gain:+.1f}"])
    return markdown_table(head, rows)


def _percent(row: Row) -> str:
    return f"{100 * row['success']:.1f} % [{100 * row['low']:.0f}, {100 * row['high']:.0f}]"


def drawn(kept: Mapping[str, Any]) -> str:
    before: list[Series] = []
    after: list[Series] = []
    for place, (seed, found) in enumerate(kept["seeds"].items()):
        before.append(_line("warm-up", found["warmup"], _GREY))
        after.append(_line(f"seed {seed}", found["train"], place))
    means = [sum(values) / len(values) for values in zip(*(line.y for line in after), strict=True)]  # pyright: ignore
    after.append(Series(f"mean of {len(after)}", after[0].x, [*means], color=_BLACK, markers=True))
    left = Panel(before, "warm-up step", 0.45, "warm-up (imitation) steps")
    chart = Chart("", [left, Panel(after, "step", 1.0, "reinforcement learning steps")], shares=True, full=True)
    return picture(
        chart, title="Success on unseen rooms: six expert games, then GRPO", width=900, height=330, inches=9.4
    )


def _line(name: str, rows: Sequence[Row], color: int) -> Series:
    steps, (middle, low, high) = [row["step"] for row in rows], ([row[part] for row in rows] for part in _PARTS)
    return Series(name, steps, [*middle], [*low], [*high], color=color, markers=True)


def rendered(kept: Mapping[str, Any]) -> dict[Path, str]:
    pages = {page: filled(page.read_text(encoding="utf-8"), {"demo": table(kept)}) for page in PAGES}
    return {**pages, PICTURE: drawn(kept)}


def main() -> None:
    if paths := [Path(name) for name in sys.argv[1:]]:
        write_atomically(KEPT, (json.dumps(kept_from(paths), indent=1) + "\n").encode())
    for path, text in rendered(json.loads(KEPT.read_text(encoding="utf-8"))).items():
        write_atomically(path, text.encode())
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
