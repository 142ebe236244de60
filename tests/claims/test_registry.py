"""Rules cannot be changed unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.claims import intervals, registry, seal
from isentrope.claims.book import CLAIMS, claim_of
from isentrope.claims.digests import DECISION, bare_source, digest_of, digest_of_decision, sources_of
from isentrope.claims.eruptions import erupts_repeatedly
from isentrope.claims.judge import find
from isentrope.claims.ledger import make_ledger
from isentrope.claims.registry import Entry, notes_on, present, read_book, unrecorded, with_changes, write_book
from isentrope.instruments import rises
from isentrope.study import statistics
from tests.claims.scenarios import HOLDS, SCENARIOS


def test_every_rule_is_as_it_was_last_recorded() -> None:
    changed = unrecorded(read_book(), present())
    assert not changed, f'{changed} changed: say why with python -m isentrope.claims.registry "why"'


def test_entries_are_in_order_and_say_why() -> None:
    for name, entries in read_book().items():
        dates = [entry.date for entry in entries]
        assert dates == sorted(dates), name
        assert all(entry.why and len(entry.date) == 20 for entry in entries), name


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_any_number_or_word_of_a_rule_changes_its_digest(claim: registry.Claim) -> None:
    first, *rest = claim.parts
    others = [
        replace(claim, says=claim.says + " "),
        replace(claim, least_seeds=claim.least_seeds + 1),
        replace(claim, confidence=0.9),
        replace(claim, parts=(replace(first, border=first.border + 1e-6), *rest)),
        replace(claim, parts=(replace(first, least=first.least + 1e-6), *rest)),
        replace(claim, parts=(replace(first, runs=replace(first.runs, variant="other")), *rest)),
        replace(claim, parts=(replace(first, measure=replace(first.measure, options=(("key", "other"),))), *rest)),
    ]
    digests = [digest_of(one) for one in (claim, *others)]
    assert len(set(digests)) == len(digests)


def test_constants_and_functions_behind_a_rule_are_in_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: digest_of(claim_of(name)) for name in ("S1", "S2", "E1")}
    monkeypatch.setattr(rises, "IN_LEVEL", 0.31)
    assert digest_of(claim_of("S2")) != before["S2"]
    assert digest_of(claim_of("E1")) == before["E1"]
    monkeypatch.setattr(seal, "VALID_AT_FIRST", 0.91)
    assert digest_of(claim_of("S1")) != before["S1"]


def test_the_decision_has_a_digest_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of_decision()
    assert {"isentrope.study.statistics.bootstrap", "isentrope.claims.intervals.decide"} <= set(sources_of(find))
    monkeypatch.setattr(intervals, "USUAL", 0.94)
    again = digest_of_decision()
    assert again != before
    monkeypatch.setattr(statistics, "DRAWS", 9_999)  # used behind @cache alone
    assert digest_of_decision() != again


def test_comments_and_layout_do_not_count() -> None:
    one = 'def f(x):\n    """Words."""\n    return g(x,  1)  # why\n'
    other = "def f(x):\n    # no words\n    return g(\n        x,\n        1,\n    )\n"
    assert bare_source(one) == bare_source(other) != bare_source(other.replace("1", "2"))
    assert "isentrope.instruments.rises.RiseDetector" in sources_of(erupts_repeatedly)


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


def test_rules_younger_than_their_runs_are_marked() -> None:
    claim, now = claim_of("A1"), {"A1": "bb", DECISION: "dd"}
    entries = [Entry("aa", "2030-01-01T00:00:00Z", "first"), Entry("bb", "2030-03-01T00:00:00Z", "smaller border")]
    book = {"A1": entries, DECISION: [Entry("dd", "2030-01-01T00:00:00Z", "first")]}
    assert notes_on(claim, book, now, ["2030-04-01T00:00:00Z"]) == ()
    (note,) = notes_on(claim, book, now, ["2030-04-01T00:00:00Z", "2030-02-01T00:00:00Z"])
    assert note == ("the rule was changed on 2030-03-01T00:00:00Z (smaller border), after runs of 2030-02-01T00:00:00Z")
    early = notes_on(claim, book, now, ["2029-12-01T00:00:00Z"])
    assert ["was made on" in text for text in early] == [True, False, True]
    assert notes_on(claim, book, now, [""]) == ("it is not known when some of the runs were made",)
    unsaid = notes_on(claim, book, {**now, "A1": "cc"}, [])
    assert unsaid == ("the rule differs from its last entry in rules.json",)


def test_the_ledger_shows_it() -> None:
    study = SCENARIOS["E6"](HOLDS)  # its runs are of 2030
    late = {name: [Entry(digest, "2031-01-01T00:00:00Z", "moved the border")] for name, digest in present().items()}
    (line,) = make_ledger([study], [claim_of("E6")], late).lines
    assert any("moved the border" in note for note in line.finding.rule_notes)
    early = {name: [replace(entries[0], date="2029-01-01T00:00:00Z")] for name, entries in late.items()}
    (line,) = make_ledger([study], [claim_of("E6")], early).lines
    assert line.finding.rule_notes == ()
    assert line.since == "2029-01-01T00:00:00Z"


def test_recording_needs_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert registry.main([]) == 2
    assert registry.main([" "]) == 2
    assert "say why" in capsys.readouterr().out
