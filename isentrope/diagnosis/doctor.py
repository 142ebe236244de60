"""Diagnoses a run in words: `isentrope doctor RUN`.

    diagnosis = diagnose(Run.open("runs/first"))
    print(diagnosis.words())

A diagnosis is data first: findings with a claim, the numbers it rests on, the steps it is about, how serious it is and
what to try. A claim says what the numbers show and in which order it came, never that one thing caused another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from isentrope.diagnosis.alarms import replay
from isentrope.diagnosis.causes import answers, chain, change, compared, credit, reading, signal, updates
from isentrope.diagnosis.causes.suspect import NAMED, STRENGTH
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.findings import eruptions, imported, others, success
from isentrope.diagnosis.remedies import Finding, in_order, reconciled, slower_first
from isentrope.diagnosis.words import explained
from isentrope.runs.folder import Run

MOST_REMEDIES = 5  # that a paragraph names
MOST_CAUSES = 2
BESIDE = 0.15  # a second cause is named if it is borne nearly as well
SURE = 0.8  # a cause that is borne so well is called the most likely one

CAUSES: tuple[Callable[[Facts], Finding | None], ...] = (
    answers.failures, answers.responses_cut, answers.context_cut, answers.form, answers.invalid,
    answers.turn_limit,
    answers.impossible, answers.hot, answers.hot_evaluation, answers.cold, signal.odd_reward, signal.equal_groups,
    signal.small_group, signal.penalty, signal.scale, signal.same_games, signal.other_games,
    reading.observations_cut, reading.observations_late, change.world_changed, change.world_contradicts,
    compared.other_form, compared.cut_short, chain.broken, credit.advantages, credit.discount, updates.stale_sampler,
    updates.rounded,
    updates.critic, updates.standing, updates.held, updates.drift, updates.bonus, updates.narrow_clip, updates.reused,
    updates.left_out,
)  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    name: str
    kind: str
    findings: tuple[Finding, ...]

    @property
    def causes(self) -> list[Finding]:
        """What the numbers name as the cause of trouble, the likeliest first; none where nothing is wrong or nobody can
        tell."""
        return [finding for finding in self.findings if finding.name.startswith("cause/")]

    @property
    def remedies(self) -> list[str]:
        """What to try: against the cause first, then the most serious first, each once."""
        return list(dict.fromkeys(remedy for finding in in_order(self.findings) for remedy in finding.remedy))

    def words(self) -> str:
        """One paragraph, its technical words explained where they are first used."""
        told = [self._cause(place, finding) for place, finding in enumerate(self.causes)]
        told += [finding.claim for finding in self.findings if finding not in self.causes]
        advice = self._advice()
        tried = [f"Try: {'; '.join(advice[:MOST_REMEDIES])}."] if advice else []
        return " ".join([explained(" ".join(told)), *tried])

    def _advice(self) -> list[str]:
        """What the paragraph advises: where the cause is likely, what is against it, and nothing against symptoms."""
        if not any(finding.evidence.get(STRENGTH, 0.0) >= SURE for finding in self.causes):
            return self.remedies
        told = [*self.causes, *(finding for finding in self.findings if finding.name.startswith("state/"))]
        return list(dict.fromkeys(remedy for finding in told for remedy in finding.remedy))

    def _cause(self, place: int, finding: Finding) -> str:
        sure = finding.evidence.get(STRENGTH, 0.0) >= SURE
        lead = "It may also be this:" if place else "Most likely cause:" if sure else "A possible cause:"
        return f"{lead} {finding.claim[:1].lower()}{finding.claim[1:]}"

    def data(self) -> dict[str, Any]:
        """As JSON can hold it."""
        findings = [asdict(finding) for finding in self.findings]
        for finding in findings:  # JSON has no NaN
            finding["evidence"] = {key: value for key, value in finding["evidence"].items() if math.isfinite(value)}
        return {"run": self.name, "kind": self.kind, "words": self.words(), "findings": findings}


def suspects(facts: Facts) -> list[Finding]:
    """Whatever the numbers speak for, the best borne first."""
    found = [finding for cause in CAUSES if (finding := cause(facts)) is not None]
    return sorted(found, key=lambda finding: -finding.evidence[STRENGTH])


def named_causes(facts: Facts) -> list[Finding]:
    """Those that are named."""
    found = [finding for finding in suspects(facts) if finding.evidence[STRENGTH] >= NAMED]
    if not found:
        return []
    least = found[0].evidence[STRENGTH] - BESIDE
    return [finding for finding in found if finding.evidence[STRENGTH] >= least][:MOST_CAUSES]


def diagnose(course: Run) -> Diagnosis:
    """All findings about a run: causes first, the likeliest before the others, then what happened."""
    found = others.state_findings(course)
    if course.kind != "train":
        return Diagnosis(course.name, course.kind, (*found, *others.imitation_findings(course)))
    alarms, given = replay(course.records)
    facts = Facts(course, alarms.phases)
    named = named_causes(facts)
    if course.imported is not None:
        named = [finding for finding in named if imported.may_be_named(finding, facts)]
    known = [*eruptions.entropy_findings(course, alarms.phases), *others.alarm_findings(course, given)]
    known = [_harmless(finding) for finding in known] if facts.fine else known
    trouble = bool(named) or any(finding.severity in ("warning", "bad") for finding in known)
    found += [
        *success.success_findings(facts),
        *success.answer_findings(facts),
        *known,
        *others.switch_findings(course),
        *others.warning_findings(facts, named),
    ]
    found = [slower_first(course, finding, facts.times_rate) for finding in found]
    found += [*success.unexplained(facts, trouble), *others.length_findings(course), *others.episode_findings(course)]
    found += [] if any(finding.name == "cause/failures" for finding in named) else others.failure_findings(course)
    found += imported.imported_findings(facts)
    told = reconciled(course, (*named, *found), facts.stands)
    told = told if course.imported is None else imported.in_their_words(told, course.imported)
    return Diagnosis(course.name, course.kind, told)


HARMLESS = ("alarm/gradient_spike", "alarm/no_signal", "eruption")  # where success rose or was there from the start


def _harmless(finding: Finding) -> Finding:
    """An alarm that did no harm is told, but nothing is to be done about it."""
    return replace(finding, severity="note", remedy=()) if finding.name in HARMLESS else finding
