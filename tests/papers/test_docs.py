"""The claims' pages under docs are what the command makes of the studies kept there, and figures show their numbers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from isentrope.charts.text import signed
from isentrope.papers.ledger import Ledger, make_ledger, page_of, summary
from isentrope.papers.record import Finding, Verdict
from isentrope.papers.registry import CLAIMS, PAPERS
from isentrope.papers.words import MARKS, power_in_words, premise_in_words, rule
from isentrope.study.read import StudyData, write_compact
from tests.builders.kept_studies import kept_study
from tests.charts.drawn import drawn_of
from tests.papers.cells import run_of, study_of
from tests.papers.made import POCKET, made_study, of_model
from tests.papers.scenarios import FAILS, HOLDS, OPEN, SCENARIOS
from tools import claims_docs
from tools.claims_figure_list import FIGURES
from tools.claims_figures import effects_of, panels_of
from tools.study_docs import kept_studies as every_study

AGAIN = "write it anew with python -m tools.claims_docs"


@dataclass(frozen=True)
class Made:
    """What the command makes of the kept studies, and the ledger that it makes it of."""

    files: dict[Path, str]
    ledger: Ledger


@pytest.fixture(scope="module")
def made() -> Made:
    ledgers: list[Ledger] = []

    def remembered(studies: Sequence[StudyData]) -> Ledger:
        ledgers.append(make_ledger(studies))
        return ledgers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims_docs, "make_ledger", remembered)
        files = claims_docs.made()
    (ledger,) = ledgers
    return Made(files, ledger)


@pytest.fixture(scope="module")
def files(made: Made) -> dict[Path, str]:
    return made.files


def test_the_readme_counts_the_verdicts_as_the_ledger_does(made: Made) -> None:
    """For each model by itself, over the studies that are kept under docs/runs."""
    ledger = made.ledger
    pocket, small = ({one.split(",")[0]: ledger.counts(one) for one in ledger.models}[m] for m in ("pocket", "smollm2"))
    text = " ".join((claims_docs.DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"With the pocket model {pocket[Verdict.holds]} claims hold, {pocket[Verdict.fails]} do not, "
        f"{pocket[Verdict.open]} are undecided and {pocket[Verdict.untestable]} not testable there; "
        f"with SmolLM2 {small[Verdict.holds]} hold, {small[Verdict.fails]} does not."
    ) in text
    assert len(ledger.lines) == sum(pocket.values()) == 24


def three() -> StudyData:
    parts = [SCENARIOS[name](kind).runs for name, kind in (("E6", HOLDS), ("A1", FAILS), ("M4", OPEN))]
    return made_study(of_model([run for runs in parts for run in runs], "pocket"))


@pytest.mark.slow(20)
def test_pages_are_as_the_command_makes_them(files: dict[Path, str]) -> None:
    for path, text in files.items():
        assert path.exists(), f"{path.name}: {AGAIN}"
        if path.suffix != ".svg":
            assert path.read_bytes() == text.encode(), f"{path.name}: {AGAIN}"
    assert set((claims_docs.DOCS / "claims").glob("*.svg")) == {path for path in files if path.suffix == ".svg"}, AGAIN


def test_figures_have_the_lines_and_names_of_their_cells(files: dict[Path, str]) -> None:
    """Built, not compared: how a picture looks may change, what it shows may not."""
    studies = {data.name: data for data in (kept_study(folder.name) for folder in every_study())}
    for figure in (one for several in FIGURES.values() for one in several):
        panels = panels_of(studies[figure.study], figure)
        drawn = drawn_of(files[claims_docs.DOCS / "claims" / f"{figure.name}.svg"])
        names = {line.name for panel in panels for line in panel.series}
        assert names | {panel.title for panel in panels if panel.title} <= set(drawn.texts), figure.name
        assert drawn.texts[0].startswith(figure.title)
        assert drawn.lines >= sum(len(panel.series) for panel in panels) + len(names)  # and those of the legend
        assert drawn.bands == sum(line.low is not None for panel in panels for line in panel.series)


def test_the_overview_has_the_numbers_of_every_effect(files: dict[Path, str]) -> None:
    drawn = drawn_of(files[claims_docs.DOCS / "claims" / claims_docs.OVERVIEW])
    effects = effects_of(list(claims_docs.kept_studies().values()))
    assert effects
    for effect in effects:
        assert any(text.startswith(f"{effect.cell} − {effect.against}") for text in drawn.texts)
        assert any(text.startswith(f"{signed(effect.points.value)} [") for text in drawn.texts)


def test_every_figure_is_shown_and_every_page_has_the_command_s_tables(files: dict[Path, str]) -> None:
    pages = {path: text for path, text in files.items() if path.suffix == ".md"}
    assert {path.name for path in pages} == {"claims.md", "rules.md", *(page_of(paper) for paper in PAPERS)}
    shown = {
        (path.parent / link).resolve()
        for path, text in pages.items()
        for link in re.findall(r"\]\(([^)]+\.svg)\)", text)
    }
    ours = {path for path in shown if path.parent == claims_docs.DOCS / "claims"}  # others belong to a study
    assert ours == {path for path in files if path.suffix == ".svg"}


def test_studies_that_concern_no_claim_are_left_out() -> None:
    kept = claims_docs.kept_studies()
    assert "setting" not in kept
    assert (claims_docs.DOCS / "runs" / "setting").is_dir()
    assert (claims_docs.NOT_YET in (claims_docs.DOCS / "claims.md").read_text()) == (not kept)


def test_the_tables_of_a_kept_study(tmp_path: Path) -> None:
    write_compact(three(), tmp_path / "runs" / "kept")
    other = replace(run_of("wide", 0, [0.1, 0.2]), tags={"rooms": "wide"})
    write_compact(study_of([other], {"wide": ""}, "other"), tmp_path / "runs" / "other")
    kept = claims_docs.kept_studies(tmp_path)
    assert list(kept) == ["kept"]
    texts = claims_docs.tables(kept)
    ledger = texts["claims.md"]["ledger"]
    assert claims_docs.NOT_YET not in ledger
    assert ledger.startswith("Finished so far: 30 of 30 runs of made.")
    assert summary(make_ledger([three()])) in ledger
    assert "(runs/kept)" in texts["claims.md"]["runs"]
    editions = texts["claims.md"]["editions"]
    assert editions.startswith(f"| | claim | first edition | second, {POCKET} |")
    assert (
        "| [E6](claims/epo.md#e6) | EPO beats entropy in the advantage (EA) | ? undecided | **✓ holds** |" in editions
    )
    assert all(f"### {claim.id}\n" in texts["claims/rules.md"]["rules"] for claim in CLAIMS)
    with pytest.raises(ValueError, match="0 places"):
        claims_docs.filled("nothing", texts["claims.md"])


def test_the_first_edition_is_that_of_its_own_studies(
    files: dict[Path, str], first_findings: dict[str, Finding]
) -> None:
    """Side by side with the second: the verdicts that are kept, not those on studies that came later."""
    text = next(text for path, text in files.items() if path.name == "claims.md")
    table = text.partition("<!-- editions -->")[2].partition("<!-- /editions -->")[0]
    for name, found in first_findings.items():
        (row,) = [row for row in table.splitlines() if row.startswith(f"| [{name}]")]
        assert row.split(" | ")[2].strip("*") == f"{MARKS[found.verdict]} {found.verdict}"


def test_rules_tell_every_part_premise_and_power() -> None:
    text = claims_docs.rules()
    for claim in CLAIMS:
        block = text.partition(f"### {claim.id}\n")[2].partition("\n### ")[0]
        assert claim.says in block
        assert f"At least {claim.least_seeds} seeds and {claim.least_steps} steps." in block
        for part in claim.parts:
            assert f"- *{part.name}{'' if part.counts else ' (no voice)'}*: " in block
            assert f"It {rule(part, claim)}." in block
            assert all(f"  - Premise: {premise_in_words(one)}." in block for one in part.premises)
            assert all(f"  - Power: {told}." in block for told in power_in_words(part, claim))
            if part.control_measure:
                assert f"(of the controls: {part.control_measure.words})" in block


def test_without_a_study_nothing_is_decided(tmp_path: Path) -> None:
    texts = claims_docs.tables(claims_docs.kept_studies(tmp_path))
    assert texts["claims.md"]["ledger"].startswith(claims_docs.NOT_YET)
    assert texts["claims.md"]["editions"] == claims_docs.NOT_YET
    assert texts["claims/epo.md"]["numbers"] == claims_docs.NOT_YET
    assert claims_docs.figures([]) == {}


def test_writing_keeps_what_is_written_by_hand_and_drops_old_figures(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    for page in ("claims.md", "claims/rules.md", *(f"claims/{page_of(paper)}" for paper in PAPERS)):
        shutil.copy(claims_docs.DOCS / page, tmp_path / page)
    runs = [run_of(cell, seed, [0.3, 0.4, 0.5]) for cell in ("grpo", "grpo-epo") for seed in range(3)]
    write_compact(study_of(runs, {"grpo": "", "grpo-epo": "grpo"}), tmp_path / "runs" / "household")
    (tmp_path / "claims" / "old.svg").write_text("<svg/>")
    written = claims_docs.write(tmp_path)
    assert tmp_path / "claims" / "epo-success.svg" in written
    assert not (tmp_path / "claims" / "old.svg").exists()
    epo = (tmp_path / "claims" / "epo.md").read_text()
    assert "| grpo-epo | 3 | 30.0 [30.0, 30.0] |" in epo
    by_hand = re.compile(r"<!-- (\w+) -->.*?<!-- /\1 -->", re.DOTALL)
    assert by_hand.sub("", epo) == by_hand.sub("", (claims_docs.DOCS / "claims" / "epo.md").read_text())
