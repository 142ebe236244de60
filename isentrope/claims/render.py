"""The ledger as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from isentrope.analysis.tables import one_line
from isentrope.claims.computed import Computed
from isentrope.claims.ledger import Ledger, Line
from isentrope.claims.record import Finding, Verdict
from isentrope.claims.words import MARKS, comment, counts_of, effects


def counted(ledger: Ledger, model: str) -> str:
    """`4 hold, 3 do not hold, 9 are undecided, 8 are not testable here` and, where it is so, `2 have no runs`."""
    counts = ledger.counts(model)
    told = [
        f"{counts[Verdict.holds]} hold",
        f"{counts[Verdict.fails]} do not hold",
        f"{counts[Verdict.open]} are undecided",
        f"{counts[Verdict.untestable]} are not testable here",
    ]
    lacking = len(ledger.lines) - sum(counts.values())
    return ", ".join([*told, *([f"{lacking} have no runs"] if lacking else [])])


def summary(ledger: Ledger) -> str:
    found = "; ".join(f"{model or 'model not told'}: {counted(ledger, model)}" for model in ledger.models)
    claims = "1 claim" if len(ledger.lines) == 1 else f"{len(ledger.lines)} claims"
    if not ledger.studies:
        return f"{claims}; no study was given, so nothing is decided."
    count = f"{ledger.runs} run" if ledger.runs == 1 else f"{ledger.runs} runs"
    return f"{claims}, {count} of {', '.join(ledger.studies)}: {found or 'nothing is decided'}."


def to_markdown(ledger: Ledger, computed: Sequence[Computed] = ()) -> str:
    lines = [
        safe_cell(summary(ledger)),
        "",
        "| | claim | model | verdict | effect, 95 % interval | runs | why |",
        "|---|---|---|---|---|---|---|",
        *(_row(line, found) for line in ledger.lines for found in line.findings),
    ]
    if computed:
        lines += ["", "By computation, without runs:", "", computed_to_markdown(computed).rstrip()]
    return "\n".join(lines) + "\n"


def runs_to_markdown(ledger: Ledger, links: Mapping[str, str]) -> str:
    """Which runs each verdict stands on. `links`: where the numbers of a study are."""
    lines = [f"Numbers: {', '.join(f'[{safe_cell(name)}]({link})' for name, link in links.items())}.", ""]
    lines += ["| | runs and their seeds | against |", "|---|---|---|"]
    for line in ledger.lines:
        parts = [part for found in line.findings for part in found.parts]
        runs = sorted({run for part in parts for run in part.runs})
        controls = sorted({run for part in parts for run in part.controls})
        if runs:
            lines.append(f"| {line.claim.id} | {_short(runs)} | {_short(controls)} |")
    return "\n".join(lines) + "\n"


def to_json(ledger: Ledger, computed: Sequence[Computed] = ()) -> str:
    table = {
        "studies": list(ledger.studies),
        "counts": {model: {str(one): count for one, count in ledger.counts(model).items()} for model in ledger.models},
        "claims": [_entry(line) for line in ledger.lines],
        "computed": [asdict(one) for one in computed],
    }
    return json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(line: Line) -> dict[str, Any]:
    claim = line.claim
    told = {"id": claim.id, "paper": claim.paper, "says": claim.says, "needs": claim.needs, "caveat": claim.caveat}
    found = [{"runs": list(one.runs)} | asdict(one) for one in line.findings]
    return told | {"rule_since": line.since, "findings": found}


def _row(line: Line, finding: Finding) -> str:
    verdict = f"{MARKS[finding.verdict]} {finding.verdict}"
    if finding.verdict != Verdict.open:
        verdict = f"**{verdict}**"
    cells = [
        line.claim.id,
        safe_cell(line.claim.says),
        safe_cell(finding.model),
        verdict,
        "<br>".join(safe_cell(text) for text in effects(finding)),
        counts_of(finding),
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
