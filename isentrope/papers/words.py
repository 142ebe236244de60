"""Claims and findings in words: what `--explain` prints and what tables show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from isentrope.papers.decide import FACTOR, SEEDS, WANTED, factor, number, power, seeds_for
from isentrope.papers.record import Arm, Claim, Finding, Part, PartFinding, Premise, Select, Verdict, by_part
from isentrope.papers.registry import Entry

SAME = ", if effect and spread stay"  # as judge.py says it of every number of seeds
MARKS = {Verdict.holds: "✓", Verdict.fails: "✗", Verdict.open: "?", Verdict.untestable: "–"}


def signed(value: float) -> str:
    """Three significant digits, with a sign and a real minus. What is left of a zero by rounding is zero."""
    value = value if abs(value) >= 1e-12 else 0.0
    text = f"{value:+.3g}" if abs(value) >= 1e-4 or value == 0 else f"{value:+.1e}"
    return text.replace("-", "−")


def effect(part: PartFinding) -> str:
    """`+0.031 [+0.004, +0.058] success`, `× 1.13 [× 0.96, × 1.3] the control`; empty if nothing was measured."""
    if part.value is None or part.interval is None:
        return ""
    told = factor if part.unit.startswith(FACTOR) else signed
    ends = f"[{told(part.interval.low)}, {told(part.interval.high)}]"
    return f"{told(part.value)} {ends} {part.unit.removeprefix(FACTOR)}".rstrip()


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
    lines = [f"{MARKS[one.verdict]} {one.part}: {effect(one)}{in_words(one)}" for one in told]
    others = [one for one in finding.parts if one.counts and one.value is not None and one.setting != told[0].setting]
    if others:
        marks, settings = Counter(one.verdict for one in others), len({one.setting for one in others})
        counts = ", ".join(f"{marks[verdict]} {MARKS[verdict]}" for verdict in Verdict if marks[verdict])
        lines.append(f"in {settings} other setting{'s' if settings > 1 else ''}: {counts}")
    if finding.verdict == Verdict.open:
        decides = finding.decides.replace(SAME, "")
        lines.append(f"would decide: {decides}" if decides else finding.reason.split(" (")[0])
    if finding.verdict == Verdict.untestable:
        lines.append(comment(finding))
    return lines + [re.sub(r" \(.*\)", "", f"MIND: {note}") for note in finding.rule_notes]  # without the reason


def in_words(part: PartFinding) -> str:
    """What the sign of an effect means, where the rule says it."""
    return f" ({part.direction})" if part.direction else ""


def runs_of(part: PartFinding) -> str:
    """Runs and seeds told apart: `10 runs of 5 seeds against 8`."""
    against = f" against {len(part.controls)}" if part.controls else ""
    return f"{len(part.runs)} runs of {len(part.seeds)} seeds{against}" if part.runs else "0"


def telling(finding: Finding) -> list[PartFinding]:
    """The parts with a voice in the setting that decides; of those that decide alike, the one with most seeds."""
    settings: dict[str, list[PartFinding]] = {}
    for part in finding.parts:
        if part.counts:
            settings.setdefault(part.setting, []).append(part)

    def weight(parts: Sequence[PartFinding]) -> tuple[int, int]:
        alike = [part for part in parts if part.verdict == finding.verdict]
        measured = sum(part.value is not None for part in alike)
        return measured if finding.verdict == Verdict.open else len(alike), sum(len(part.runs) for part in parts)

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
        reason = by_part((part.reason, part.part) for part in near)
        decides = by_part((part.decides, part.part) for part in near)
    parts = [reason]
    would = {Verdict.open: "would decide", Verdict.untestable: "would make it testable"}
    if finding.verdict in would and decides:
        parts.append(f"{would[finding.verdict]}: {decides}")
    # `2 not finished`; with the parts' names where they differ in how many
    notes: dict[str, list[tuple[str, str]]] = {}
    for part in finding.parts:
        for note in part.notes:
            if part in shown or " failed: " in note:  # runs that failed are always named
                notes.setdefault(note.lstrip("0123456789"), []).append((note, part.part))
    parts += [*map(by_part, notes.values()), *(f"MIND: {note}" for note in finding.rule_notes)]
    return ". ".join(part[:1].upper() + part[1:] for part in parts if part) + "."


def counts_of(finding: Finding) -> str:
    """How many runs the setting that tells most has, of how many seeds: the part with most of them."""
    told = [part for part in telling(finding) if part.runs]
    return runs_of(max(told, key=lambda part: len(part.runs))) if told else "0"


def rule(part: Part, claim: Claim) -> str:
    """The decision rule of a part, in a sentence."""
    beyond, least, reach = ("above", "at least", "below") if part.upwards else ("below", "at most", "above")
    interval = "Clopper and Pearson's interval" if part.shares else "the interval"
    border, size = number(part.border, part.unit), number(part.least, part.unit)
    size = "" if part.border == part.least else f" and the mean is {least} {size}"
    alpha, voices = f"{1 - claim.confidence:.0%}".replace("%", " %"), claim.voices
    share = f"{alpha}/K" if voices < 2 else f"{alpha}/({voices} K)"
    return (
        f"holds if {interval} at 1 - {alpha}/K lies {beyond} {border}{size}; "
        f"does not hold if {interval} at 1 - {share} lies {reach} {number(part.least, part.unit)}"
    )


def premise_in_words(premise: Premise) -> str:
    """`entropy erupts in the baseline: share of ... (of the control), at least 0.5`."""
    arms = {Arm.treated: "of the runs", Arm.control: "of the runs compared with"}
    arms |= {Arm.both: "of either arm", Arm.pooled: "of both arms"}
    whose = premise.runs.words() if isinstance(premise.runs, Select) else arms[premise.runs]
    if premise.clear:
        assert premise.against is not None
        wanted = f"less that of {premise.against.words()}: the 95 % interval leaves out 0"
    else:
        over = f"over that of {premise.against.words()}: " if premise.against else ""
        wanted = f"{over}{'at least' if premise.upwards else 'at most'} {premise.border:g}"
    return f"{premise.name}: {premise.measure.words} ({whose}), {wanted}"


def compared(part: Part) -> str:
    """Which runs, and with which."""
    if not part.against:
        return part.runs.words()
    others = ", or else ".join(select.words() for select in part.against)
    return f"{part.runs.words()} against {others}"


def power_in_words(part: Part, claim: Claim) -> list[str]:
    """How often the part finds the effect that is expected, for runs of either kind of model; empty if not known."""
    lines: list[str] = []
    for name, spread in (("pocket model", part.measure.spread), ("language model", part.measure.spread_lm)):
        found = {runs: power(part, claim, runs, spread) for runs in SEEDS}
        if spread <= 0 or any(one is None for one in found.values()):
            continue
        shares = ", ".join(f"{one.found:.0%} with {runs}" for runs, one in found.items() if one)
        needed = seeds_for(part, claim, spread)
        enough = f"{WANTED:.0%} with {needed}" if needed else f"{WANTED:.0%} with more than anyone would make"
        expected = signed(part.expect) if not part.unit.startswith(FACTOR) else factor(part.expect)
        lines.append(f"a true {expected} ({name}, spread {spread:g}) is found in {shares} seeds an arm; in {enough}")
    return lines


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
            *(f"    premise   {premise_in_words(premise)}" for premise in part.premises),
            f"    rule      {rule(part, claim)}",
            *(f"    power     {told}" for told in power_in_words(part, claim)),
        ]
    several = "All parts with a voice must hold; one that does not hold refutes the claim. "
    together = several if claim.voices > 1 else ""
    together += "K is the number of settings in which it can be tested. A premise that fails: not testable here. "
    together += f"At least {claim.least_seeds} seeds, runs of at least {claim.least_steps} steps."
    lines += ["", together, f"A study needs: {claim.needs}.", *([f"Mind: {claim.caveat}"] if claim.caveat else [])]
    lines += ["", "The rule's history:", *(f"  {entry.date}  {entry.digest}  {entry.why}" for entry in entries)]
    return "\n".join(lines) + "\n"
