"""What the doctor says about a run, as a page: one paragraph, then each finding with its numbers and what to try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isentrope.charts.text import clipped, safe, short, unbroken
from isentrope.diagnosis.doctor import diagnose
from isentrope.report.shell import document, nav, section
from isentrope.report.started import STARTED, started
from isentrope.runs.folder import Run

_FOOT = "Written by Isentrope from the files in this run's folder, as isentrope doctor does."
_MOST_FINDINGS, _MOST_LETTERS, _MOST_NUMBERS = 100, 2000, 24
_SIGNS = {"good": "✓", "note": "·", "warning": "!", "bad": "✗"}


def page(run: Run) -> str:
    diagnosis = diagnose(run)
    findings: list[Mapping[str, Any]] = diagnosis.data()["findings"][:_MOST_FINDINGS]
    words = unbroken(safe(clipped(diagnosis.words(), 2 * _MOST_LETTERS)))
    told = f"<p>{words}</p>" if words else "<p>Nothing was measured yet. Ask again after the first steps.</p>"
    sections = {
        "Findings": "".join(map(_finding, findings)),
        STARTED: started(run.about),
    }
    head = f'<header><h1>{safe(run.name)}</h1></header><div class="card said"><h3>The doctor says</h3>{told}</div>'
    body = "".join(section(title, inside) for title, inside in sections.items() if inside)
    titles = [title for title, inside in sections.items() if inside]
    return document(f"{run.name}: diagnosis", nav(titles) + head + body, _FOOT)


def _finding(found: Mapping[str, Any]) -> str:
    severity = str(found.get("severity", "note"))
    kind = severity if severity in _SIGNS else "note"
    sign = _SIGNS[kind]
    numbers = list(dict(found.get("evidence") or {}).items())[:_MOST_NUMBERS]
    rows = "".join(f"<div><dt>{safe(key)}</dt><dd>{short(float(value))}</dd></div>" for key, value in numbers)
    tries = "".join(f"<li>{safe(clipped(str(one), _MOST_LETTERS))}</li>" for one in found.get("remedy") or ())
    evidence = f'<dl class="facts-row evidence">{rows}</dl>' if rows else ""
    remedy = f'<h4>Try</h4><ul class="tries">{tries}</ul>' if tries else ""
    claim = unbroken(safe(clipped(str(found.get("claim", "")), _MOST_LETTERS)))
    name = safe(str(found.get("name", "")))
    return (
        f'<div class="card finding finding-{kind}"><h3><span class="sign">{sign}</span> {safe(severity)}'
        f"<small>{name}</small></h3><p>{claim}</p>{evidence}{remedy}</div>"
    )
