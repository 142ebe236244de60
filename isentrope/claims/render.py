"""The ledger as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from isentrope.claims.computed import Computed
from isentrope.claims.ledger import Ledger, Line
from isentrope.claims.record import Verdict
from isentrope.claims.words import MARKS, comment, effects, seeds_of
from isentrope.results.render import one_line


def summary(ledger: Ledger) -> str:
    counts = ledger.counts
    found = f"{counts[Verdict.holds]} hold, {counts[Verdict.fails]} do not hold, {counts[Verdict.open]} are undecided"
    claims = "1 claim" if len(ledger.lines) == 1 else f"{len(ledger.lines)} claims"
    if not ledger.studies:
        return f"{claims}; no study was given, so nothing is decided."
    count = f"{ledger.runs} run" if ledger.runs == 1 else f"{ledger.runs} runs"
    return f"{claims}, {count} of {', '.join(ledger.studies)}: {found}."


def to_markdown(ledger: Ledger, computed: Sequence[Computed] = ()) -> str:
    lines = [
        safe_cell(summary(ledger)),
        "",
        "| | claim | verdict | effect, 95 % interval | seeds | why |",
        "|---|---|---|---|---|---|",
        *(_row(line) for line in ledger.lines),
    ]
    if computed:
        lines += ["", "By computation, without runs:", "", computed_to_markdown(computed).rstrip()]
    return "\n".join(lines) + "\n"


def runs_to_markdown(ledger: Ledger, links: Mapping[str, str]) -> str:
    """Which runs each verdict stands on. `links`: where the numbers of a study are."""
    lines = [f"Numbers: {', '.join(f'[{safe_cell(name)}]({link})' for name, link in links.items())}.", ""]
    lines += ["| | runs and their seeds | against |", "|---|---|---|"]
    for line in ledger.lines:
        runs = sorted({run for part in line.finding.parts for run in part.runs})
        controls = sorted({run for part in line.finding.parts for run in part.controls})
        if runs:
            lines.append(f"| {line.claim.id} | {_short(runs)} | {_short(controls)} |")
    return "\n".join(lines) + "\n"


def to_json(ledger: Ledger, computed: Sequence[Computed] = ()) -> str:
    table = {
        "studies": list(ledger.studies),
        "counts": {str(verdict): count for verdict, count in ledger.counts.items()},
        "claims": [_entry(line) for line in ledger.lines],
        "computed": [asdict(one) for one in computed],
    }
    return json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(line: Line) -> dict[str, Any]:
    claim, finding = line.claim, line.finding
    told = {"id": claim.id, "paper": claim.paper, "says": claim.says, "needs": claim.needs, "caveat": claim.caveat}
    told |= {"rule_since": line.since, "runs": list(finding.runs)}
    return told | {key: value for key, value in asdict(finding).items() if key != "claim"}


def _row(line: Line) -> str:
    finding = line.finding
    verdict = f"{MARKS[finding.verdict]} {finding.verdict}"
    if finding.verdict != Verdict.open:
        verdict = f"**{verdict}**"
    cells = [
        line.claim.id,
        safe_cell(line.claim.says),
        verdict,
        "<br>".join(safe_cell(text) for text in effects(finding)),
        seeds_of(finding),
        safe_cell(comment(finding)),
    ]
    return f"| {' | '.join(cells)} |"


def computed_to_markdown(computed: Sequence[Computed]) -> str:
    lines = ["| | statement | verdict | sides differ by |", "|---|---|---|---|"]
    for one in computed:
        lines.append(f"| {one.id} | {safe_cell(one.says)} | {MARKS[one.verdict]} {one.verdict} | {one.apart} |")
    return "\n".join(lines) + "\n"


def _short(runs: Sequence[str]) -> str:
    """`study/cell: seeds 0, 1, 2; …`"""
    cells: dict[str, list[str]] = {}
    for run in runs:
        cell, _, seed = run.rpartition("/seed-")
        cells.setdefault(cell, []).append(seed)
    return "; ".join(f"`{safe_cell(cell)}` {', '.join(sorted(seeds, key=int))}" for cell, seeds in cells.items())


def safe_cell(text: str) -> str:
    """Text of others in a line or in a cell of a table: no HTML, no link, no other cell."""
    text = one_line(text).replace("\\", "\\\\").replace("|", "\\|")
    return text.replace("<", "&lt;").replace("`", "'").replace("](", "]\\(")
