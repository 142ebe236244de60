"""The ledger: every claim with its verdicts, one for each language model, and the age of its rule; as Markdown, JSON
and what stands between the marks on the claims' pages: the short table of all claims, a paper's verdicts in full."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from isentrope.analysis.tables import markdown_table, one_line
from isentrope.core.errors import RunError
from isentrope.papers.computed import Computed
from isentrope.papers.decide import FACTOR
from isentrope.papers.judge import find
from isentrope.papers.record import Claim, Finding, PartFinding, Verdict
from isentrope.papers.registry import CLAIMS, Book, notes_on, present, read_book
from isentrope.papers.select import place
from isentrope.papers.words import MARKS, comment, counts_of, effect, effects, in_words, runs_of, shown_parts, telling
from isentrope.study.read import StudyData, read_study


@dataclass(frozen=True)
class Line:
    claim: Claim
    findings: tuple[Finding, ...]  # by model; one without a model, if there are no runs
    since: str  # when the rule last changed; empty: never recorded


@dataclass(frozen=True)
class Ledger:
    studies: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def findings(self) -> list[Finding]:
        return [found for line in self.lines for found in line.findings]

    @property
    def models(self) -> list[str]:
        return sorted({found.model for found in self.findings if found.model or found.parts})

    def counts(self, model: str) -> dict[Verdict, int]:
        counted = Counter(found.verdict for found in self.findings if found.model == model)
        return {verdict: counted[verdict] for verdict in Verdict}

    @property
    def runs(self) -> int:
        return len({run for found in self.findings for run in found.runs})


def make_ledger(studies: Sequence[StudyData], claims: Sequence[Claim] = CLAIMS, book: Book | None = None) -> Ledger:
    book, now = read_book() if book is None else book, present()
    begun = {f"{study.name}/{run.name}": run.begun for study in studies for run in study.runs}
    placed, lines = place(studies), list[Line]()
    for claim in claims:
        noted = [
            replace(found, rule_notes=notes_on(claim, book, now, [begun[run] for run in found.runs]))
            for found in find(claim, placed)
        ]
        entries = book.get(claim.id, ())
        lines.append(Line(claim, tuple(noted), entries[-1].date if entries else ""))
    return Ledger(tuple(study.name for study in studies), tuple(lines))


def read_studies(paths: Sequence[Path]) -> list[StudyData]:
    """Studies by their folders or compact files. Two of one name cannot be told apart."""
    studies = [read_study(path) for path in paths]
    twice = [name for name, count in Counter(study.name for study in studies).items() if count > 1]
    if twice:
        raise RunError(f"two of the studies are called {twice[0]}; give each of them once")
    return studies


# -- the pages of the claims


# each claim in few words; in full it stands on its paper's page
SHORT = {
    "A1": "thinking lowers the entropy of the action after it",
    "A2": "acting first has a higher action entropy than thinking first",
    "A3": "ActRe beats GRPO, higher temperature and an entropy bonus",
    "A4": "each part of ActRe matters",
    "A5": "without thinking, GRPO does no worse",
    "E1": "EPO raises success on PPO and GRPO",
    "E2": "EPO lowers the variance of entropy",
    "E3": "EPO's smoothing matters",
    "E4": "EPO's changing β learns faster early",
    "E5": "a bonus that decays ends with less success",
    "E6": "EPO beats entropy in the advantage (EA)",
    "E7": "EPO costs no time",
    "S1": "at first valid actions surge and entropy falls",
    "S2": "entropy erupts and subsides, more than once",
    "S3": "before an eruption, negative episodes interfere more",
    "S4": "the likelihood of valid episodes falls into an eruption",
    "S5": "sentences are repeated more in an eruption, and after it",
    "S6": "SEAL makes eruptions smaller",
    "S7": "SEAL raises success on GRPO and GiGPO",
    "S8": "SEAL raises success over a wide range of α",
    "M1": "entropy follows the sign of A · (S - H)",
    "M2": "with AEM entropy is higher early, lower late",
    "M3": "AEM raises success on GRPO, GSPO and DAPO",
    "M4": "AEM costs about 1 % of a step",
}


def page_of(paper: str) -> str:
    return f"{paper.lower()}.md"


def ledger_table(ledger: Ledger) -> str:
    """A row for each claim and model, with a link to where the reasons stand."""
    head = ("", "claim", "model", "verdict", "effect [95 % interval]", "runs", "of")
    rows = [_short_row(line, found) for line in ledger.lines for found in line.findings]
    return f"{safe_cell(summary(ledger))}\n\n{markdown_table(head, rows)}\n"


def _short_row(line: Line, finding: Finding) -> list[str]:
    claim, parts = line.claim, telling(finding)
    told = [part for part in parts if part.value is not None]
    named = len([part for part in claim.parts if part.counts]) > 1
    sizes = [f"{part.part}: {brief(part)}" if named else brief(part) for part in told]
    failed = dict.fromkeys(one.name for part in parts for one in part.premises if one.met is False)
    if finding.verdict == Verdict.untestable:
        sizes = [f"premise not met: {'; '.join(failed)}", *sizes]
    shown, setting = "<br>".join(safe_cell(text) for text in sizes), parts[0].setting if told or failed else ""
    cells = [_link(claim), SHORT[claim.id], safe_cell(finding.model), _mark(finding.verdict)]
    return [*cells, shown, counts_of(finding), safe_cell(setting)]


def _link(claim: Claim) -> str:
    return f"[{claim.id}](claims/{page_of(claim.paper)}#{claim.id.lower()})"


def editions_table(ledger: Ledger, first: Mapping[str, Verdict]) -> str:
    """Both editions side by side: `first` has the first one's verdicts by claim."""
    models = ledger.models
    rows: list[list[str]] = []
    for line in ledger.lines:
        by_model = {found.model: _mark(found.verdict) for found in line.findings}
        before = first.get(line.claim.id)
        cells = [_link(line.claim), SHORT[line.claim.id], _mark(before) if before else ""]
        rows.append([*cells, *(by_model.get(model, "no runs") for model in models)])
    head = ["", "claim", "first edition", *(f"second, {safe_cell(model)}" for model in models)]
    return markdown_table(head, rows) + "\n"


def brief(part: PartFinding) -> str:
    """`+2.7 [−0.9, +6.2] points`, `−20.8 [−25.5, −16.2] % of its start`, `+0.36 [+0.098, +0.63] nats`."""
    if part.value is None or part.interval is None:
        return ""
    if part.unit.startswith(FACTOR):
        return effect(part) + in_words(part)
    percent = part.unit == "success" or part.unit.startswith("of ")
    numbers = [part.value, part.interval.low, part.interval.high]
    value, low, high = (_signed(100 * number, True) if percent else _signed(number, False) for number in numbers)
    unit = "points" if part.unit == "success" else f"% {part.unit}" if percent else part.unit
    return f"{value} [{low}, {high}] {unit}{in_words(part)}"


def _signed(value: float, percent: bool) -> str:
    """Points and percent to one place, other numbers and very small ones to two digits."""
    text = f"{value:+.1f}" if percent and abs(value) >= 0.05 else f"{value:+.2g}" if abs(value) >= 1e-6 else "0"
    return text.replace("-", "−")


def verdicts(ledger: Ledger, paper: str) -> str:
    """Every claim of a paper with what was found in each setting, why, and what would decide it."""
    return "\n".join(_claim(line) for line in ledger.lines if line.claim.paper == paper)


def _claim(line: Line) -> str:
    claim = line.claim
    lines = [f"### {claim.id}", "", f"{safe_cell(claim.says)} ([rule](rules.md#{claim.id.lower()}))", ""]
    for finding in line.findings:
        lines += [": ".join(text for text in (safe_cell(finding.model), _mark(finding.verdict)) if text), ""]
        rows = _rows(finding)
        if rows:
            lines += [markdown_table(("setting", "part", "effect [95 % interval]", "runs", "", "why"), rows), ""]
        else:
            lines += [f"{_sentence(finding.reason)} {_sentence(f'would decide: {finding.decides}')}", ""]
    notes = dict.fromkeys(note for finding in line.findings for note in finding.rule_notes)
    lines += [text for note in notes for text in (f"**Mind:** {safe_cell(note)}.", "")]
    return "\n".join(lines)


def _rows(finding: Finding) -> list[list[str]]:
    """A row for each part and setting; parts of which the same is told, without a number, share one."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for part in shown_parts(finding):
        would = "would make it testable" if part.verdict == Verdict.untestable else "would decide"
        why = [part.reason, f"{would}: {part.decides}" if part.decides else "", part.how, *part.notes]
        told = " ".join(_sentence(text) for text in why if text)
        alone = part.part if part.value is not None else ""
        found = (alone, part.setting, brief(part), runs_of(part), MARKS[part.verdict], told)
        rows.setdefault(found, []).append(part.part if part.counts else f"({part.part})")
    told = [(setting, "; ".join(names), *rest) for (_, setting, *rest), names in rows.items()]
    return [[safe_cell(cell) for cell in cells] for cells in told]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _mark(verdict: Verdict) -> str:
    told = f"{MARKS[verdict]} {verdict}"
    return f"**{told}**" if verdict in (Verdict.holds, Verdict.fails) else told


def state(done: Mapping[str, tuple[int, int]]) -> str:
    """How far the studies are. `done`: of each, its finished runs and all that are planned."""
    told = [f"{finished} of {planned} runs of {safe_cell(name)}" for name, (finished, planned) in done.items()]
    return f"Finished so far: {', '.join(told)}."


# -- the whole ledger


def counted(ledger: Ledger, model: str) -> str:
    """`4 hold, 3 do not hold, 9 are undecided, 8 are not testable here` and, where it is so, `2 have no runs`."""
    counts = ledger.counts(model)
    told = f"{counts[Verdict.holds]} hold, {counts[Verdict.fails]} do not hold, {counts[Verdict.open]} are undecided"
    told += f", {counts[Verdict.untestable]} are not testable here"
    lacking = len(ledger.lines) - sum(counts.values())
    return f"{told}, {lacking} have no runs" if lacking else told


def summary(ledger: Ledger) -> str:
    found = "; ".join(f"{model or 'model not told'}: {counted(ledger, model)}" for model in ledger.models)
    claims = "1 claim" if len(ledger.lines) == 1 else f"{len(ledger.lines)} claims"
    if not ledger.studies:
        return f"{claims}; no study was given, so nothing is decided."
    count = f"{ledger.runs} run" if ledger.runs == 1 else f"{ledger.runs} runs"
    return f"{claims}, {count} of {', '.join(ledger.studies)}: {found or 'nothing is decided'}."


def to_markdown(ledger: Ledger, computed: Sequence[Computed] = ()) -> str:
    head = ("", "claim", "model", "verdict", "effect, 95 % interval", "runs", "why")
    rows = [_row(line, found) for line in ledger.lines for found in line.findings]
    blocks = [safe_cell(summary(ledger)), markdown_table(head, rows)]
    if computed:
        blocks += ["By computation, without runs:", computed_to_markdown(computed).rstrip()]
    return "\n\n".join(blocks) + "\n"


def runs_to_markdown(ledger: Ledger, links: Mapping[str, str]) -> str:
    """Which runs each verdict stands on. `links`: where the numbers of a study are."""
    rows: list[tuple[str, str, str]] = []
    for line in ledger.lines:
        parts = [part for found in line.findings for part in found.parts]
        runs = sorted({run for part in parts for run in part.runs})
        controls = sorted({run for part in parts for run in part.controls})
        if runs:
            rows.append((line.claim.id, _short(runs), _short(controls)))
    numbers = ", ".join(f"[{safe_cell(name)}]({link})" for name, link in links.items())
    return f"Numbers: {numbers}.\n\n{markdown_table(('', 'runs and their seeds', 'against'), rows)}\n"


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


def _row(line: Line, finding: Finding) -> list[str]:
    verdict = f"{MARKS[finding.verdict]} {finding.verdict}"
    verdict = verdict if finding.verdict == Verdict.open else f"**{verdict}**"
    found = "<br>".join(safe_cell(text) for text in effects(finding))
    cells = [line.claim.id, safe_cell(line.claim.says), safe_cell(finding.model), verdict]
    return [*cells, found, counts_of(finding), safe_cell(comment(finding))]


def computed_to_markdown(computed: Sequence[Computed]) -> str:
    rows = [(one.id, safe_cell(one.says), f"{MARKS[one.verdict]} {one.verdict}", one.apart) for one in computed]
    return markdown_table(("", "statement", "verdict", "sides differ by"), rows) + "\n"


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
