"""Rules cannot be changed unseen: their texts, their numbers, and what their functions compute."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from isentrope.core import stats
from isentrope.diagnosis import phases
from isentrope.diagnosis.phases import find_phases
from isentrope.papers import inference, judge, measures, registry
from isentrope.papers import measures as eruptions
from isentrope.papers import registry as fingerprints
from isentrope.papers.ledger import make_ledger
from isentrope.papers.record import Claim, Measure, Part, Premise, Select, Verdict
from isentrope.papers.registry import (
    CLAIMS,
    DECISION,
    SEEDS,
    Entry,
    battery,
    claim_of,
    digest_of,
    digest_of_decision,
    notes_on,
    present,
    read_book,
    unrecorded,
    with_changes,
    write_book,
)
from isentrope.papers.select import Placed, matches, place
from isentrope.study.read import StudyRun
from tests.papers.scenarios import HOLDS, SCENARIOS

HISTORY = Path(registry.__file__).parent / "first" / "book.json"


_KNOWN = dict[Any, tuple[StudyRun, float | None]]()  # with the run, so that no other gets its id


@pytest.fixture
def computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many digests of nearly the same rule ask for the same numbers."""
    real = Measure.__call__

    def call(measure: Measure, run: StudyRun) -> float | None:
        key = (measure.function, measure.options, id(run))
        if key not in _KNOWN:
            _KNOWN[key] = (run, real(measure, run))
        return _KNOWN[key][1]

    monkeypatch.setattr(Measure, "__call__", call)


def test_every_rule_is_as_it_was_last_recorded() -> None:
    changed = unrecorded(read_book(), present())
    assert not changed, f'{changed} changed: say why with python -m isentrope.papers.registry "why"'


def test_entries_are_in_order_and_say_why() -> None:
    for book in (read_book(), read_book(HISTORY)):
        for name, entries in book.items():
            dates = [entry.date for entry in entries]
            assert dates == sorted(dates), name
            assert all(entry.why and len(entry.date) == 20 for entry in entries), name


# -- any number or word of a rule


def other(value: Any) -> Any:
    """The same kind of thing, and not the same."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return (
            value + 1
            if isinstance(value, int)
            else 0.123456
            if value in (float("inf"), -float("inf"))
            else value + 1e-6
        )
    return f"{value} " if isinstance(value, str) else value


def changed_options(measure: Measure) -> list[Measure]:
    return [
        replace(measure, options=(*measure.options[:n], (key, other(value)), *measure.options[n + 1 :]))
        for n, (key, value) in enumerate(measure.options)
        if not isinstance(value, str)
    ]


def changed_measures(measure: Measure) -> list[Measure]:
    """One word or number of a measure each."""
    several = [
        replace(measure, **{name: other(getattr(measure, name))})
        for name in ("words", "spread", "spread_lm", "by_kind")
    ]
    several.append(replace(measure, keys=(*measure.keys, "another")))
    several.append(replace(measure, alike=(measure.alike[0], 0.123)))
    several.append(replace(measure, function=lambda run, **_: 0.5))
    return [*several, *changed_options(measure)]


def changed_premises(premise: Premise) -> list[Premise]:
    several = [
        replace(premise, **{name: other(getattr(premise, name))})
        for name in ("name", "border", "remedy", "upwards", "clear", "counted")
    ]
    several.append(replace(premise, runs="treated" if premise.runs != "treated" else "control"))
    several.append(replace(premise, against=replace(claim_of("E1").parts[0].runs, variant="another")))
    return [*several, *(replace(premise, measure=one) for one in changed_measures(premise.measure))]


def changed_parts(part: Part) -> list[Part]:
    names = ("name", "border", "least", "compare", "shares", "upwards", "counts", "unit", "expect")
    several = [replace(part, **{name: other(getattr(part, name))}) for name in names]
    several += [
        replace(part, runs=replace(part.runs, **{name: "other"}))
        for name in ("algorithm", "method", "variant", "alpha")
    ]
    several += [replace(part, means=(f"{part.means[0]} ", part.means[1])), replace(part, means=(part.means[0], "less"))]
    several.append(replace(part, against=(*part.against, part.runs)))
    several.append(replace(part, fit=lambda run: "never"))
    several.append(replace(part, control_measure=changed_measures(part.measure)[0]))
    several.append(
        replace(part, premises=part.premises[:-1] if part.premises else (claim_of("E1").parts[0].premises[0],))
    )
    return [*several, *(replace(part, measure=one) for one in changed_measures(part.measure))]


def changed_claims(claim: Claim) -> list[Claim]:
    names = ("id", "paper", "says", "least_steps", "needs", "caveat", "least_seeds", "confidence")
    several = [replace(claim, **{name: other(getattr(claim, name))}) for name in names]
    return [*several, replace(claim, parts=claim.parts[:-1])]


@pytest.mark.usefixtures("computed_once")
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_any_number_or_word_of_a_rule_changes_its_digest(claim: Claim) -> None:
    """Every field of the claim; of its last part, its measure, and its last premise. The others are digested alike."""
    *rest, last = claim.parts
    short = replace(claim, parts=(last,))
    several = [*changed_claims(short), *(replace(short, parts=(one,)) for one in changed_parts(last))]
    several += [replace(short, parts=(one, last)) for one in rest]
    if last.premises:
        *before, premise = last.premises
        several += [
            replace(short, parts=(replace(last, premises=(*before, one)),)) for one in changed_premises(premise)
        ]
    fingerprints = [digest_of(one) for one in (short, *several)]
    same = [one for one, digest in zip(several, fingerprints[1:], strict=True) if digest == fingerprints[0]]
    assert not same


def test_no_field_is_forgotten_by_the_test_above() -> None:
    covered = {"function", "words", "keys", "options", "spread", "spread_lm", "alike", "by_kind"}
    assert {one.name for one in fields(Measure)} == covered
    assert {one.name for one in fields(Premise)} == {
        "name", "runs", "measure", "border", "remedy", "upwards", "against", "clear", "counted"
    }  # fmt: skip
    assert {one.name for one in fields(Part)} == {
        "name", "runs", "measure", "border", "least", "against", "compare", "shares", "upwards", "counts", "unit",
        "fit", "ground", "premises", "means", "control_measure", "expect",
    }  # fmt: skip
    assert {one.name for one in fields(Claim)} == {
        "id", "paper", "says", "parts", "least_steps", "needs", "caveat", "least_seeds", "confidence"
    }  # fmt: skip


# -- what stands behind a rule


def measures_of(claim: Claim) -> list[Measure]:
    told = [
        one for part in claim.parts for one in (part.measure, part.control_measure, *(p.measure for p in part.premises))
    ]
    return [one for one in told if one is not None]


@pytest.mark.parametrize(
    ("module", "name", "value", "claim"),
    [
        (phases, "IN_LEVEL", 0.45, "S2"),
        (eruptions, "REPEATED", 3, "S2"),
        (eruptions, "BEFORE", 9, "S4"),
        (eruptions, "START", 9, "S6"),
        (eruptions, "AFTER", 3, "S5"),
        (measures, "CONVERGED", 0.4, "E1"),
        (measures, "NOT_TRAINING_BY_CLAIMS", ("seconds/rollout",), "M4"),
    ],
)
def test_constants_behind_a_measure_change_its_digest(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any, claim: str
) -> None:
    few = tuple(replace(study, runs=study.runs[: len(SEEDS)]) for study in battery())  # each curve takes its time
    monkeypatch.setattr(fingerprints, "battery", lambda: few)
    before = {one: digest_of(claim_of(one)) for one in (claim, "A1")}
    if module is phases:  # what was found of a curve is kept; here it must neither be seen nor left to others
        monkeypatch.setattr(eruptions, "_rises", lru_cache(maxsize=None)(eruptions._rises.__wrapped__))
        monkeypatch.setattr(eruptions, "find_phases", find_phases)
    monkeypatch.setattr(module, name, value)
    assert digest_of(claim_of(claim)) != before[claim]
    assert digest_of(claim_of("A1")) == before["A1"]


@pytest.mark.usefixtures("computed_once")
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_measure_says_something_of_the_made_up_runs(claim: Claim) -> None:
    """Else a change of its function could not be seen: runs differ in what it tells of them."""
    runs = [run for study in battery() for run in study.runs]
    for measure in measures_of(claim):
        told = {value for run in runs if (value := measure(run)) is not None}
        assert len(told) > 1, measure.words


def test_a_condition_on_runs_is_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claim_of("S3")
    part = replace(claim.parts[0], fit=lambda run: "entropy never erupted" if run.seed == 3 else None)
    runs = [run for study in battery() for run in study.runs]
    assert {eruptions.erupted(run) for run in runs} == {None, "entropy never erupted"}
    assert digest_of(replace(claim, parts=(part, *claim.parts[1:]))) != present()["S3"]


@pytest.mark.parametrize("claim", [claim_of(name) for name in ("A3", "A5", "S3", "M4")], ids=lambda claim: claim.id)
def test_code_that_computes_the_same_has_the_same_digest(claim: Claim) -> None:
    """A function moved, renamed or wrapped: the digest looks at numbers. Rules with and without premises, conditions on
    runs, and another measure of controls."""

    def wrapped(measure: Measure) -> Measure:
        def moved(run: StudyRun, **options: Any) -> float | None:
            return measure.function(run, **options)

        return replace(measure, function=moved)

    def again(part: Part) -> Part:
        fit = part.fit
        return replace(
            part,
            measure=wrapped(part.measure),
            control_measure=wrapped(part.control_measure) if part.control_measure else None,
            premises=tuple(replace(one, measure=wrapped(one.measure)) for one in part.premises),
            fit=(lambda run: fit(run)) if fit else None,
        )

    assert digest_of(replace(claim, parts=tuple(again(part) for part in claim.parts))) == present()[claim.id]


def test_the_made_up_runs_are_always_the_same() -> None:
    first = [measure(run) for measure in measures_of(claim_of("E1")) for study in battery() for run in study.runs]
    battery.cache_clear()
    assert first == [
        measure(run) for measure in measures_of(claim_of("E1")) for study in battery() for run in study.runs
    ]


# -- how verdicts are made


def wider(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    def changed(*given: Any) -> Any:
        found = function(*given)
        return replace(found, freedom=found.freedom * factor)

    return changed


def bare_alone(wanted: Select, here: Sequence[Placed]) -> list[Placed]:
    return [one for one in here if matches(wanted, one)]


@pytest.mark.usefixtures("computed_once")
@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (inference, "GAIN", 0.0),
        (inference, "GAIN", 99.0),
        (inference, "TELLING", 999),
        (inference, "FEWEST_CELLS", 99),
        (inference, "BORROWED", 2.0),
        (inference, "by_unit", lambda runs: {run.unit: run.value for run in runs}),
        (inference, "fit_prior", wider(inference.fit_prior, 1.01)),
        (inference, "over_games", lambda treated, control: inference.Part()),
        (inference, "between_starts", lambda runs: inference.Part()),
        (judge, "decide", lambda *_: Verdict.open),
        (judge, "clopper_pearson", lambda share, count, level: stats.clopper_pearson(share, count + 1, level)),
        (judge, "seeds_needed", lambda *_: 7),
        (judge, "check", lambda *given, check=judge.check: replace(check(*given), met=True)),
        (judge, "of_setting", lambda parts: Verdict.open),
        (judge, "pooled", bare_alone),
        (judge, "usable", lambda runs, claim: [one for one in runs if one.run.seed]),
        (judge, "LEVEL", 0.5),
        (judge, "CLEAR", 0.5),
    ],
)
def test_the_way_to_a_verdict_has_a_digest_of_its_own(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, value: Any
) -> None:
    before = present()[DECISION]
    monkeypatch.setattr(module, name, value)
    assert digest_of_decision() != before, f"the made-up runs do not show what {name} does"


@pytest.mark.usefixtures("computed_once")
@pytest.mark.parametrize(
    "change",
    [lambda held, strict: (0.95, strict), lambda held, strict: (held, held), lambda held, strict: (strict, strict)],
    ids=["not over settings", "not over parts", "over parts for both"],
)
def test_the_correction_over_settings_and_parts_is_in_it(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[float, float], tuple[float, float]]
) -> None:
    before, real = present()[DECISION], judge._decided
    monkeypatch.setattr(judge, "_decided", lambda claim, one, held, strict: real(claim, one, *change(held, strict)))
    assert digest_of_decision() != before


@pytest.mark.usefixtures("computed_once")
def test_a_pure_rewrite_of_the_decision_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = present()[DECISION]
    real = (judge.decide, inference.fit_prior, judge.check)
    monkeypatch.setattr(judge, "decide", lambda *given: real[0](*given))
    monkeypatch.setattr(inference, "fit_prior", lambda *given: real[1](*given))
    monkeypatch.setattr(judge, "check", lambda *given: real[2](*given))
    assert digest_of_decision() == before


@pytest.mark.usefixtures("computed_once")
def test_the_trials_of_the_decision_come_to_every_verdict() -> None:
    found = [one for claim in fingerprints._trials() for one in judge.find(claim, place(battery()))]
    parts = [part for one in found for part in one.parts]
    assert {part.verdict for part in parts} == set(Verdict)
    assert {"paired by seed", inference.TWO_SAMPLES, "share of seeds"} <= {part.how for part in parts}
    assert {one.met for part in parts for one in part.premises} >= {True, False}
    assert {len(part.seeds) for part in parts if part.runs} == {len(SEEDS)}  # starts are not models


# -- the book


def test_a_change_is_added_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    assert read_book(path) == {}
    book = with_changes({}, {"A1": "aa", DECISION: "dd"}, "2030-01-01T00:00:00Z", "first")
    again = with_changes(book, {"A1": "bb", DECISION: "dd"}, "2030-02-01T00:00:00Z", "a smaller border")
    write_book(again, path)
    assert read_book(path) == again
    assert [entry.why for entry in again["A1"]] == ["first", "a smaller border"]
    assert len(again[DECISION]) == 1
    assert json.loads(path.read_text())["A1"][1]["digest"] == "bb"


def test_both_editions_have_books_of_their_own() -> None:
    assert registry.FILE.parent == HISTORY.parent.parent
    assert registry.FILE.name == "rules.json"
    assert set(present()) == {*(claim.id for claim in CLAIMS), DECISION}
    old = {entry.digest for entries in read_book(HISTORY).values() for entry in entries}
    assert not old & set(present().values())


def test_rules_younger_than_their_runs_are_marked() -> None:
    claim, now = claim_of("A1"), {"A1": "bb", DECISION: "dd"}
    entries = [Entry("aa", "2030-01-01T00:00:00Z", "first"), Entry("bb", "2030-03-01T00:00:00Z", "smaller border")]
    book = {"A1": entries, DECISION: [Entry("dd", "2030-01-01T00:00:00Z", "first")]}
    assert notes_on(claim, book, now, ["2030-04-01T00:00:00Z"]) == ()
    (note,) = notes_on(claim, book, now, ["2030-04-01T00:00:00Z", "2030-02-01T00:00:00Z"])
    assert note == ("the rule was changed on 2030-03-01T00:00:00Z (smaller border), after runs of 2030-02-01T00:00:00Z")
    assert notes_on(claim, book, now, ["2029-12-01T00:00:00Z"]) == (
        "the rule was made on 2030-01-01T00:00:00Z (first) and was changed on 2030-03-01T00:00:00Z (smaller border), "
        "after runs of 2029-12-01T00:00:00Z",
        "the way all verdicts are made was made on 2030-01-01T00:00:00Z (first), after runs of 2029-12-01T00:00:00Z",
    )
    assert notes_on(claim, book, now, [""]) == ("it is not known when some of the runs were made",)
    unsaid = notes_on(claim, book, {**now, "A1": "cc"}, [])
    assert unsaid == ("the rule differs from its last entry in rules.json",)


def test_the_ledger_shows_it() -> None:
    study = SCENARIOS["E6"](HOLDS)  # its runs are of 2030
    late = {name: [Entry(digest, "2031-01-01T00:00:00Z", "moved the border")] for name, digest in present().items()}
    (line,) = make_ledger([study], [claim_of("E6")], late).lines
    assert any("moved the border" in note for note in line.findings[0].rule_notes)
    early = {name: [replace(entries[0], date="2029-01-01T00:00:00Z")] for name, entries in late.items()}
    (line,) = make_ledger([study], [claim_of("E6")], early).lines
    assert line.findings[0].rule_notes == ()
    assert line.since == "2029-01-01T00:00:00Z"


def test_recording_needs_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert registry.main([]) == 2
    assert registry.main([" "]) == 2
    assert "say why" in capsys.readouterr().out
