"""Claims and findings in words: what `--explain` prints and what tables show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from isentrope.claims.record import Claim, Finding, Part, PartFinding, Verdict
from isentrope.claims.registry import Entry

SAME = ", if effect and spread stay"  # as judge.py says it of every number of seeds
MARKS = {Verdict.holds: "✓", Verdict.fails: "✗", Verdict.open: "?"}


def signed(value: float) -> str:
    """Three significant digits, with a sign and a real minus. What is left of a zero by rounding is zero."""
    value = value if abs(value) >= 1e-12 else 0.0
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


def brief(finding: Finding) -> list[str]:
    """The parts with a voice in the setting that tells most, a line each, and marks of the parts elsewhere."""
    told = [part for part in telling(finding) if part.value is not None]
    if not told:
        return [comment(finding).split(". ")[0].rstrip(".")]
    lines = [f"{MARKS[one.verdict]} {one.part}: {effect(one)}" for one in told]
    others = [one for one in finding.parts if one.counts and one.value is not None and one.setting != told[0].setting]
    if others:
        marks, settings = Counter(one.verdict for one in others), len({one.setting for one in others})
        counts = ", ".join(f"{marks[verdict]} {MARKS[verdict]}" for verdict in Verdict if marks[verdict])
        lines.append(f"in {settings} other setting{'s' if settings > 1 else ''}: {counts}")
    if finding.verdict == Verdict.open:
        decides = finding.decides.replace(SAME, "")
        lines.append(f"would decide: {decides}" if decides else finding.reason.split(" (")[0])
    return lines + [re.sub(r" \(.*\)", "", f"MIND: {note}") for note in finding.rule_notes]  # without the reason


def telling(finding: Finding) -> list[PartFinding]:
    """The parts with a voice in the setting that decides; of those that decide alike, the one with most seeds."""
    settings: dict[str, list[PartFinding]] = {}
    for part in finding.parts:
        if part.counts:
            settings.setdefault(part.setting, []).append(part)

    def weight(parts: Sequence[PartFinding]) -> tuple[int, int]:
        agreeing = sum(part.verdict == finding.verdict for part in parts) if finding.verdict != Verdict.open else 0
        return agreeing, sum(len(part.seeds) for part in parts)

    return max(settings.values(), key=weight) if settings else []


def shown_parts(finding: Finding) -> list[PartFinding]:
    """Parts of the settings that tell most: those in which something was measured; else those with a finished run that
    is long enough; else all."""
    measured = {part.setting for part in finding.parts if part.value is not None}
    fit = {part.setting for part in finding.parts if not part.reason.startswith(("no finished run", "no runs of"))}
    wanted = measured or fit
    return [part for part in finding.parts if not wanted or part.setting in wanted]


def comment(finding: Finding) -> str:
    """Why the verdict is what it is, what would decide it, and what a reader must know."""
    shown = shown_parts(finding)
    reason, decides = finding.reason, finding.decides
    if shown and all(part.value is None for part in shown):  # the setting that came nearest, not the first one
        near = [part for part in shown if part.counts and part.setting == shown[0].setting]
        reason = _by_part((part.reason, part.part) for part in near)
        decides = _by_part((part.decides, part.part) for part in near)
    parts = [reason]
    if finding.verdict == Verdict.open and decides:
        parts.append(f"would decide: {decides}")
    parts += [*_notes(finding, shown), *(f"MIND: {note}" for note in finding.rule_notes)]
    return ". ".join(part[:1].upper() + part[1:] for part in parts if part) + "."


def _notes(finding: Finding, shown: Sequence[PartFinding]) -> list[str]:
    """`2 not finished`; with the parts' names where they differ in how many. Runs that failed are always named."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for part in finding.parts:
        for note in part.notes:
            if part in shown or " failed: " in note:
                kinds.setdefault(note.lstrip("0123456789"), []).append((note, part.part))
    return [_by_part(said) for said in kinds.values()]


def _by_part(said: Iterable[tuple[str, str]]) -> str:
    """What is said of parts. What is said of all of them is said once, without their names."""
    names: dict[str, list[str]] = {}
    for text, part in said:
        if text and part not in names.setdefault(text, []):
            names[text].append(part)
    return next(iter(names)) if len(names) == 1 else "; ".join(f"{', '.join(of)}: {text}" for text, of in names.items())


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
