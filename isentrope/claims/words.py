"""Claims and findings in words: what `--explain` prints and what tables show."""

from __future__ import annotations

from isentrope.claims.record import Claim, Finding, Part, PartFinding, Verdict
from isentrope.claims.registry import Entry

MARKS = {Verdict.holds: "✓", Verdict.fails: "✗", Verdict.open: "?"}


def signed(value: float) -> str:
    """Three significant digits, with a sign and a real minus."""
    text = f"{value:+.3g}" if abs(value) >= 1e-4 or value == 0 else f"{value:+.1e}"
    return text.replace("-", "−")


def effect(part: PartFinding) -> str:
    """`+0.031 [+0.004, +0.058] success`; empty if nothing was measured."""
    if part.value is None or part.interval is None:
        return ""
    return f"{signed(part.value)} [{signed(part.interval.low)}, {signed(part.interval.high)}] {part.unit}".rstrip()


def effects(finding: Finding) -> list[str]:
    """A line for each part that was measured, with its name and setting where there are several."""
    told = [part for part in finding.parts if part.value is not None]
    settings, names = {part.setting for part in finding.parts}, {part.part for part in finding.parts}
    lines: list[str] = []
    for part in told:
        where = [part.setting] if len(settings) > 1 else []
        name = [part.part if part.counts else f"({part.part})"] if len(names) > 1 else []
        lines.append(": ".join([*where, *name, f"{effect(part)} {MARKS[part.verdict]}"]))
    return lines


def comment(finding: Finding) -> str:
    """Why the verdict is what it is, what would decide it, and what a reader must know."""
    parts = [finding.reason]
    if finding.verdict == Verdict.open and finding.decides:
        parts.append(f"would decide: {finding.decides}")
    notes = dict.fromkeys(note for part in finding.parts for note in part.notes)
    parts += [*notes, *(f"MIND: {note}" for note in finding.rule_notes)]
    return ". ".join(part[:1].upper() + part[1:] for part in parts if part) + "."


def seeds_of(finding: Finding) -> str:
    """The number of seeds of each voice, or the range."""
    counts = sorted({len(part.seeds) for part in finding.parts if part.counts and part.value is not None})
    if not counts:
        return "0"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"


def rule(part: Part, claim: Claim) -> str:
    """The decision rule of a part, in a sentence."""
    beyond, least, reach = ("above", "at least", "below") if part.upwards else ("below", "at most", "above")
    interval = "Wilson's interval" if part.shares else "the interval"
    same = part.border == part.least
    size = "" if same else f" and the mean is {least} {part.least:g}"
    strict = 1 - (1 - claim.confidence) / max(1, claim.voices)
    return (
        f"holds if {interval} ({claim.confidence:.0%}) lies {beyond} {part.border:g}{size}; "
        f"does not hold if {interval} ({strict:.1%}) lies {reach} {part.least:g}"
    )


def compared(part: Part) -> str:
    """Which runs, and with which."""
    if not part.against:
        return part.runs.words()
    others = ", or else ".join(select.words() for select in part.against)
    how = "difference, seed by seed" if part.compare == "difference" else "relative difference, seed by seed"
    return f"{part.runs.words()} against {others} ({how})"


def explain(claim: Claim, entries: list[Entry]) -> str:
    """Everything about a claim but what the runs say."""
    lines = [f"{claim.id} ({claim.paper})", "", claim.says, ""]
    for part in claim.parts:
        voice = "" if part.counts else " (shown, without a voice in the verdict)"
        lines += [
            f"- {part.name}{voice}",
            f"    runs      {compared(part)}",
            f"    measured  {part.measure.words}",
            f"    metrics   {', '.join(part.measure.keys)}",
            f"    rule      {rule(part, claim)}",
        ]
    several = "All parts with a voice must hold; one that does not hold refutes the claim. "
    together = several if claim.voices > 1 else ""
    lines += [
        "",
        f"{together}At least {claim.least_seeds} seeds, runs of at least {claim.least_steps} steps.",
        f"A study needs: {claim.needs}.",
    ]
    if claim.caveat:
        lines.append(f"Mind: {claim.caveat}")
    lines += ["", "The rule's history:", *(f"  {entry.date}  {entry.digest}  {entry.why}" for entry in entries)]
    return "\n".join(lines) + "\n"
