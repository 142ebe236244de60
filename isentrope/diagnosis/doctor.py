"""Diagnoses a run in words: `isentrope doctor RUN`.

    diagnosis = diagnose(Run.open("runs/first"))
    print(diagnosis.words())

A diagnosis is data first: findings with a claim, the numbers it rests on, the steps it is about, how serious it is and
what to try. A claim says what the numbers show and in which order it came, never that one thing caused another.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from isentrope.diagnosis.alarms import replay
from isentrope.diagnosis.findings import eruptions, others, success
from isentrope.diagnosis.remedies import SEVERITIES, Finding
from isentrope.runs.folder import Run

MOST_REMEDIES = 5  # that a paragraph names


@dataclass(frozen=True)
class Diagnosis:
    name: str
    kind: str
    findings: tuple[Finding, ...]

    @property
    def remedies(self) -> list[str]:
        """What to try, the most serious first, each once."""
        ordered = sorted(self.findings, key=lambda finding: -SEVERITIES.index(finding.severity))
        return list(dict.fromkeys(remedy for finding in ordered for remedy in finding.remedy))

    def words(self) -> str:
        """One paragraph."""
        tried = f"Try: {'; '.join(self.remedies[:MOST_REMEDIES])}."
        return " ".join([*(finding.claim for finding in self.findings), *([tried] if self.remedies else [])])

    def data(self) -> dict[str, Any]:
        """As JSON can hold it."""
        findings = [asdict(finding) for finding in self.findings]
        for finding in findings:  # JSON has no NaN
            finding["evidence"] = {key: value for key, value in finding["evidence"].items() if math.isfinite(value)}
        return {"run": self.name, "kind": self.kind, "words": self.words(), "findings": findings}


def diagnose(course: Run) -> Diagnosis:
    """All findings about a run, in the order in which they are told."""
    found = others.state_findings(course)
    if course.kind != "train":
        return Diagnosis(course.name, course.kind, (*found, *others.imitation_findings(course)))
    alarms, given = replay(course.records)
    learnt = success.success_findings(course)
    known = [*eruptions.entropy_findings(course, alarms.phases), *others.alarm_findings(course, given)]
    found += [*learnt, *known, *others.switch_findings(course), *success.stalled_findings(course, learnt, known)]
    found += [*others.length_findings(course), *others.episode_findings(course), *others.failure_findings(course)]
    return Diagnosis(course.name, course.kind, tuple(found))
