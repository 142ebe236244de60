"""The first edition stays what it was: its rules, their history, and every number and verdict that it found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from isentrope.core.stats import Interval, bootstrap
from isentrope.papers.first.judge import (
    BOOK,
    RULES,
    decide,
    find,
    first_edition,
    half_width,
    mean_interval,
    seeds_needed,
    share_interval,
    t_quantile,
)
from isentrope.papers.measures import mean
from isentrope.papers.record import Claim, Finding, Measure, Part, PartFinding, Select, Verdict
from isentrope.papers.registry import CLAIMS, read_book
from isentrope.study.read import StudyData
from tests.papers.made import SEEDS, made_run, made_study
from tools.claims_docs import DOCS, FIRST_STUDIES

KEPT = DOCS / "claims" / "first-edition.json"
IDS = [claim.id for claim in CLAIMS]
UP = Part("", Select(), Measure(mean, "", ()), border=0.0, least=0.02)
CHANGED = {"S2", "S3", "S4", "S5", "S6"}  # after they were first written


def twelve(value: Any) -> Any:
    """Numbers to twelve significant digits, as they were kept."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict):
        return {key: twelve(one) for key, one in value.items()}
    return [twelve(one) for one in value] if isinstance(value, list | tuple) else value


def ends(around: Interval | None) -> list[float] | None:
    return None if around is None else [around.low, around.high]


def told(part: PartFinding) -> dict[str, Any]:
    return {
        "part": part.part, "setting": part.setting, "verdict": str(part.verdict), "reason": part.reason,
        "counts": part.counts, "value": part.value, "interval": ends(part.interval), "strict": ends(part.strict),
        "seeds": list(part.seeds), "runs": len(part.runs), "controls": len(part.controls), "decides": part.decides,
        "notes": list(part.notes), "unit": part.unit,
    }  # fmt: skip


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text(encoding="utf-8"))


def test_what_was_kept_is_of_all_claims_and_of_the_studies_of_then(kept: dict[str, Any]) -> None:
    assert tuple(kept["studies"]) == FIRST_STUDIES
    assert [entry["claim"] for entry in kept["claims"]] == IDS
    assert sum(len(entry["parts"]) for entry in kept["claims"]) > 200
    measured = [part for entry in kept["claims"] for part in entry["parts"] if part["value"] is not None]
    assert all(len(part["interval"]) == len(part["strict"]) == 2 for part in measured)
    assert len(measured) > 100
    assert Counter(entry["verdict"] for entry in kept["claims"]) == {"holds": 3, "does not hold": 6, "undecided": 15}


@pytest.mark.parametrize("name", IDS)
def test_every_number_and_word_is_found_again(
    name: str, kept: dict[str, Any], first_findings: dict[str, Finding]
) -> None:
    (was,) = [entry for entry in kept["claims"] if entry["claim"] == name]
    found = first_findings[name]
    assert (str(found.verdict), found.reason, found.decides) == (was["verdict"], was["reason"], was["decides"])
    now = [twelve(told(part)) for part in found.parts]
    assert now == [twelve(part) for part in was["parts"]]


def test_it_stands_on_as_many_runs(kept: dict[str, Any], first_findings: dict[str, Finding]) -> None:
    assert len({run for found in first_findings.values() for run in found.runs}) == kept["runs"]


def test_the_rules_are_those_that_the_history_tells_of() -> None:
    rules = [entry["id"] for entry in json.loads(RULES.read_text(encoding="utf-8"))["claims"]]
    history = read_book(BOOK)
    assert rules == [claim.id for claim in first_edition()] == IDS
    assert len(rules) == 24
    assert {*history} - {"decision"} == set(rules)
    assert all(entries for entries in history.values())
    assert {name for name, entries in history.items() if len(entries) == 2 and name in IDS} == CHANGED
    assert all(len(entries) <= 2 for name, entries in history.items() if name in IDS)
    for name, entries in history.items():
        assert [entry.date for entry in entries] == sorted(entry.date for entry in entries), name
        assert all(len(entry.digest) == 16 and entry.why for entry in entries), name


def test_no_rule_of_the_first_edition_knows_premises() -> None:
    parts = [part for claim in first_edition() for part in claim.parts]
    assert not any(part.premises or part.control_measure for part in parts)
    assert {part.compare for part in parts} == {"difference", "relative"}
    assert any(part.ground for part in parts)
    assert any(part.fit for part in parts)


def claim_of_first(name: str) -> Claim:
    return next(claim for claim in first_edition() if claim.id == name)


def test_its_verdicts_on_made_up_runs() -> None:
    """Paired by seed, without a word on the other runs of the setting: by hand on three seeds."""
    runs = [made_run(s, success=0.4) for s in range(3)]
    runs += [made_run(s, "grpo", "no_think", success=0.5 + 0.01 * s) for s in range(3)]
    part = find(claim_of_first("A5"), [made_study(runs)]).parts[0]
    assert (part.verdict, part.seeds) == (Verdict.holds, (0, 1, 2))
    assert part.value == pytest.approx(0.11)
    assert part.interval is not None
    assert part.interval.high - 0.11 == pytest.approx(4.302653 * 0.01 / 3**0.5, abs=1e-6)
    solved = [made_run(s, method=m, success=0.99) for s in SEEDS for m in ("epo", "ea")]
    assert "no room" in find(claim_of_first("E6"), [made_study(solved)]).reason


def test_order_of_studies_and_runs_changes_nothing(first_studies: list[StudyData]) -> None:
    """On the two small studies, for two rules."""
    small = [study for study in first_studies if study.name in ("alfworld", "quick")]
    turned = [replace(study, runs=study.runs[::-1]) for study in reversed(small)]
    for name in ("A1", "E7"):
        assert find(claim_of_first(name), small) == find(claim_of_first(name), turned)


@pytest.mark.parametrize(
    ("freedom", "level", "printed"),
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (4, 0.95, 2.776), (4, 0.99, 4.604), (9, 0.98, 2.821), (29, 0.95, 2.045)],
)
def test_its_student_as_in_printed_tables(freedom: int, level: float, printed: float) -> None:
    assert t_quantile(freedom, level) == pytest.approx(printed, abs=6e-4)


def test_its_intervals_are_the_studys_and_wider_when_stricter() -> None:
    values = [0.1, 0.3, 0.25, -0.1]
    usual, strict, theirs = mean_interval(values, 0.95), mean_interval(values, 0.99), bootstrap(values)
    assert (usual.low, usual.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
    assert strict.low < usual.low < usual.high < strict.high
    assert decide(UP, -0.02, Interval(-0.05, 0.015), Interval(-0.06, 0.025)) == Verdict.open
    assert decide(UP, -0.02, Interval(-0.05, 0.015), Interval(-0.05, 0.015)) == Verdict.fails
    count = seeds_needed(UP, 0.04, 0.08, 0.95, 0.95)
    assert count is not None
    assert half_width(0.08, count, 0.95) < 0.04 < half_width(0.08, count - 1, 0.95)
    assert share_interval(1.0, 5, 0.95).low > 0.5 > share_interval(0.8, 5, 0.95).low


def test_the_frozen_files_import_nothing_of_the_second_edition() -> None:
    """Else a change of the second would change the first. Records, measures and the choice of runs are shared."""
    second = {"inference", "decide", "registry", "judge", "pages", "words", "ledger"}
    forbidden = {f"isentrope.papers.{name}" for name in second}
    for path in RULES.parent.glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        imported = {line.split()[1] for line in lines if line.startswith(("from ", "import "))}
        assert not imported & forbidden, path.name
