"""What is generated on the claims' pages: the short table, a paper's verdicts, the numbers of its cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.core.stats import Interval
from isentrope.metrics.glossary import entry_of
from isentrope.papers.ledger import (
    SHORT,
    brief,
    editions_table,
    ledger_table,
    make_ledger,
    runs_to_markdown,
    safe_cell,
    state,
    to_markdown,
    verdicts,
)
from isentrope.papers.record import Finding, PartFinding, Verdict
from isentrope.papers.registry import CLAIMS, PAPERS, Entry, claim_of, present
from isentrope.papers.words import telling
from isentrope.study.plan import Plan, read_plan
from isentrope.study.read import StudyData
from tests.papers.cells import run_of, study_of
from tests.papers.made import POCKET, in_setting, made_run, made_study, of_model
from tests.papers.scenarios import FAILS, HOLDS, OPEN, SCENARIOS
from tools.claims_docs import cells_of, numbers, over_seeds
from tools.claims_figure_list import FIGURES
from tools.claims_figures import STUDY, SUCCESS

STUDIES = Path(__file__).parents[2] / "recipes" / "studies"


def test_every_claim_has_few_words_and_every_paper_figures() -> None:
    assert list(SHORT) == [claim.id for claim in CLAIMS]
    assert all(len(words) <= 60 for words in SHORT.values())
    assert list(FIGURES) == list(PAPERS)
    names = [figure.name for several in FIGURES.values() for figure in several]
    assert len(names) == len(set(names))


def test_figures_show_cells_and_metrics_that_there_are() -> None:
    """A cell that was renamed in the study would else drop out of its figure and table, and nobody would see it."""
    figures = [figure for several in FIGURES.values() for figure in several]
    studies = {name: read_plan(STUDIES / f"{name}.toml") for name in {STUDY, *(figure.study for figure in figures)}}
    for figure in figures:
        assert studies[figure.study].name == figure.study
        drawn = set(cells_of([figure]))
        assert drawn <= {cell.name for cell in studies[figure.study].cells}, figure.name
        assert {*figure.by_seed, *figure.banded} <= drawn, figure.name
        assert figure.key == SUCCESS or entry_of(figure.key) is not None, figure.name


def bars(row: str) -> int:
    return row.replace("\\|", "").count("|")


def test_a_row_has_verdict_effect_model_runs_and_a_link() -> None:
    study = made_study(of_model(SCENARIOS["E6"](HOLDS).runs, "pocket"))
    text = ledger_table(make_ledger([study]))
    assert "| | claim | model | verdict | effect [95 % interval] | runs | of |" in text
    rows = {row.split("]")[0].removeprefix("| ["): row for row in text.splitlines() if row.startswith("| [")}
    assert list(rows) == [claim.id for claim in CLAIMS]
    assert all(bars(row) == 8 for row in rows.values())
    assert rows["E6"].startswith(
        f"| [E6](claims/epo.md#e6) | EPO beats entropy in the advantage (EA) | {POCKET} | **✓ holds** | +15.0 ["
    )
    assert rows["E6"].endswith(
        " points (GRPO with epo ends above GRPO with ea) | 5 runs of 5 seeds against 5 | made, 100 steps |"
    )
    assert rows["A1"].endswith("|  | ? undecided |  | 0 |  |")


def test_a_row_for_each_model() -> None:
    large = of_model(in_setting(SCENARIOS["M4"](FAILS), size="large").runs, "large", 10**9)
    ledger = make_ledger([made_study([*of_model(SCENARIOS["M4"](HOLDS).runs, "pocket"), *large])])
    rows = [row for row in ledger_table(ledger).splitlines() if row.startswith("| [M4]")]
    assert [row.split(" | ")[2:4] for row in rows] == [
        ["large, 1 B", "**✗ does not hold**"],
        [POCKET, "**✓ holds**"],
    ]
    full = verdicts(ledger, "AEM").partition("### M4")[2]
    assert full.index("large, 1 B: **✗ does not hold**") < full.index(f"{POCKET}: **✓ holds**")


def untestable() -> StudyData:
    """S1, where actions are valid from the start."""
    return made_study(made_run(s, train={"valid_ratio": 0.98, "entropy/token": 0.5}) for s in range(3))


def test_what_cannot_be_tested_says_what_is_not_so() -> None:
    ledger = make_ledger([untestable()])
    (row,) = [row for row in ledger_table(ledger).splitlines() if row.startswith("| [S1]")]
    assert "| – not testable here | premise not met: actions are not valid from the start<br>validity: 0 [" in row
    assert row.endswith("| 3 runs of 3 seeds | made, 100 steps |")
    told = verdicts(ledger, "SEAL").partition("### S2")[0]
    assert "Would make it testable: a start with fewer valid actions: little or no warm-up." in told
    assert "Would decide" not in told
    assert "| – |" in told


def test_both_editions_side_by_side() -> None:
    large = of_model(in_setting(SCENARIOS["M4"](FAILS), size="large").runs, "a|b<i>", 10**9)
    ledger = make_ledger([made_study([*of_model(SCENARIOS["M4"](HOLDS).runs, "pocket"), *large])])
    text = editions_table(ledger, {"M4": Verdict.open, "A1": Verdict.holds, "S1": Verdict.fails})
    head, line, *rows = text.splitlines()
    assert head == f"| | claim | first edition | second, a\\|b&lt;i>, 1 B | second, {POCKET} |"
    assert line == "|---|---|---|---|---|"
    assert len(rows) == len(CLAIMS)
    assert all(bars(row) == 6 for row in (head, line, *rows))
    by_name = {row.split("]")[0].removeprefix("| ["): row for row in rows}
    assert by_name["M4"] == (
        "| [M4](claims/aem.md#m4) | AEM costs about 1 % of a step | ? undecided | **✗ does not hold** | **✓ holds** |"
    )
    assert by_name["A1"].endswith("| **✓ holds** | no runs | no runs |")
    assert by_name["S2"].endswith("|  | no runs | no runs |")  # the first edition said nothing of it
    assert by_name["M3"].endswith("| ? undecided | ? undecided |")  # one of its cells has runs


def part(
    value: float | None, unit: str = "success", setting: str = "here", seeds: int = 3, **more: object
) -> PartFinding:
    interval = None if value is None else Interval(value - 0.1, value + 0.1)
    found = PartFinding("it", setting, Verdict.open, "why", value=value, interval=interval, unit=unit)
    return replace(found, seeds=tuple(range(seeds)), runs=tuple(map(str, range(seeds))), **more)


def test_effects_in_short() -> None:
    assert brief(part(0.031)) == "+3.1 [−6.9, +13.1] points"
    assert brief(part(-0.2084, "of its start")) == "−20.8 [−30.8, −10.8] % of its start"
    assert brief(part(0.3618, "nats")) == "+0.36 [+0.26, +0.46] nats"
    assert brief(part(0.1, "share of runs")) == "+0.1 [0, +0.2] share of runs"
    assert brief(part(None)) == ""
    assert brief(part(0.0, "times the control")) == "× 1 [× 0.905, × 1.11] the control"
    assert brief(part(0.3618, "nats", direction="more")) == "+0.36 [+0.26, +0.46] nats (more)"
    assert brief(part(0.0, "times it", direction="less")) == "× 1 [× 0.905, × 1.11] it (less)"


def test_the_setting_that_decides_is_told() -> None:
    few, many = part(0.1, seeds=3, verdict=Verdict.holds), part(0.2, setting="there", seeds=9)
    assert telling(Finding("E1", Verdict.holds, "", (many, few))) == [few]
    assert telling(Finding("E1", Verdict.open, "", (few, many))) == [many]
    assert telling(Finding("E1", Verdict.open, "", (replace(few, counts=False),))) == []
    barred = part(None, setting="there", verdict=Verdict.untestable)
    assert telling(Finding("E1", Verdict.untestable, "", (replace(few, verdict=Verdict.open), barred))) == [barred]


@pytest.mark.parametrize("kind", [HOLDS, FAILS, OPEN])
def test_a_paper_has_all_its_claims_in_full(kind: str) -> None:
    text = verdicts(make_ledger([SCENARIOS["E1"](kind)]), "EPO")
    claims = [claim for claim in CLAIMS if claim.paper == "EPO"]
    assert [line for line in text.splitlines() if line.startswith("###")] == [f"### {claim.id}" for claim in claims]
    assert all(claim.says in text and f"(rules.md#{claim.id.lower()})" in text for claim in claims)
    first = text.partition("### E2")[0]
    assert ("would decide" in first.lower()) == (kind == OPEN)
    assert first.count("| made, 100 steps | on ") == 2
    assert first.count("Two samples of seeds.") == 2
    assert first.count("All runs begin from one start") == 2
    assert first.count("5 runs of 5 seeds against 5") == 2
    others = verdicts(make_ledger([SCENARIOS["E1"](kind)]), "ActRe")
    assert "No runs. Would decide: 3 seeds of each of: GRPO with no_think; GRPO." in others.partition("### A5")[2]


def test_settings_that_cannot_tell_are_left_out() -> None:
    """S3 is about eruptions: runs that are too short say nothing, a long one without an eruption does."""
    short = [made_run(seed, train={"entropy/token": 0.5}) for seed in range(3)]
    long = [made_run(seed, steps=400, train={"entropy/token": 0.5}, length="long") for seed in range(3)]
    told = verdicts(make_ledger([made_study([*short, *long])], [claim_of("S3")]), "SEAL")
    rows = [row for row in told.splitlines() if row.startswith("| made")]
    assert len(rows) == 1
    assert rows[0].startswith(
        "| made, length long, 400 steps | before; against afterwards; (before, a token) |  | 3 runs of 3 seeds | – |"
    )
    assert "Premise fails (entropy erupts)" in rows[0]
    told = verdicts(make_ledger([made_study(short)], [claim_of("S3")]), "SEAL")
    assert "No finished run of at least 300 steps." in told


def test_a_rule_younger_than_its_runs_is_marked() -> None:
    study = SCENARIOS["E6"](HOLDS)
    book = {name: [Entry(digest, "2025-01-01T00:00:00Z", "first")] for name, digest in present().items()}
    old = replace(study, runs=tuple(replace(run, begun="2020-01-01T00:00:00Z") for run in study.runs))
    told = verdicts(make_ledger([old], book=book), "EPO")
    assert "**Mind:** the rule was made on " in told
    assert "**Mind:**" not in verdicts(make_ledger([study], book=book), "EPO")


@pytest.mark.parametrize("where", ["rooms", "model"])
def test_foreign_names_cannot_break_a_table(where: str) -> None:
    study = SCENARIOS["E6"](HOLDS)
    evil = "a|b<i>\n| x |"
    hostile = replace(study, runs=tuple(replace(run, tags={**run.tags, where: evil}) for run in study.runs))
    ledger = make_ledger([hostile])
    for text, count in ((ledger_table(ledger), 8), (verdicts(ledger, "EPO"), 7), (to_markdown(ledger), 8)):
        rows = [row for row in text.splitlines() if row.startswith("|") and "a\\|b&lt;i>" in row]
        assert rows or (where, text) == ("rooms", to_markdown(ledger))  # a single setting is not told there
        assert all(bars(row) == count for row in rows)
        assert not any(line.startswith("| x") for line in text.splitlines())
        assert "<i>" not in text


def test_a_foreign_study_cannot_name_itself_out_of_its_line() -> None:
    evil = "x\n\n<!-- /ledger --><b>|[l](http://l)\ud800"
    ledger = make_ledger([made_study(of_model([made_run(0)], evil.replace("/", "-")), evil)])
    plan = Plan(name="household", split=evil)
    study = study_of([run_of("grpo", 0, [0.1])], {"grpo": ""})
    told = numbers(replace(study, study=replace(study.study, plan=plan)), ["grpo"])
    several = (ledger_table(ledger), to_markdown(ledger), state({evil: (1, 2)}), told, editions_table(ledger, {}))
    for text in (*several, verdicts(ledger, "ActRe"), runs_to_markdown(ledger, {evil: "runs/x"})):
        assert not any(line.startswith("<") for line in text.splitlines())
        assert not any(part in text for part in ("<b>", "<!--", "](http", "\ud800"))
        assert "&lt;b>" in text


def test_a_backslash_cannot_free_a_bar() -> None:
    assert safe_cell("a\\|b") == "a\\\\\\|b"


def test_numbers_of_cells_by_hand() -> None:
    runs = [run_of("grpo", seed, [0.3, 0.5, 0.6 + 0.1 * seed], entropy__token=[4, 3, 2, 1]) for seed in range(3)]
    runs += [run_of("epo", seed, [0.3, 0.5, 0.9], entropy__token=[4, 3, 2, 0.5 + seed]) for seed in range(2)]
    text = numbers(study_of(runs, {"grpo": "", "epo": "grpo", "none": "grpo"}), ["grpo", "epo", "none", "unknown"])
    rows = [line for line in text.splitlines() if line.startswith("| grpo") or line.startswith("| epo")]
    assert rows == [
        "| grpo | 3 | 30.0 [30.0, 30.0] | 50.0 [50.0, 50.0] | 70.0 [45.2, 94.8] |  | 1.000 [1.000, 1.000] | 0 of 3 |",
        "| epo | 2 | 30.0 and 30.0 | 50.0 and 50.0 | 90.0 and 90.0 | +30.0 and +20.0 | 0.500 and 1.500 | 0 of 2 |",
    ]
    assert "none" not in text


def test_a_difference_of_fewer_pairs_than_seeds_says_so() -> None:
    runs = [run_of("grpo", seed, [0.3, 0.5, 0.6]) for seed in range(3)]
    runs += [run_of("epo", seed, [0.3, 0.5, 0.7]) for seed in range(4)]
    (row,) = [
        line for line in numbers(study_of(runs, {"grpo": "", "epo": "grpo"}), ["epo"]).splitlines() if "epo" in line
    ]
    assert row.startswith("| epo | 4 |")
    assert "| +10.0 [+10.0, +10.0] (3 of them) |" in row


def test_over_seeds() -> None:
    assert over_seeds({}, 1) == ""
    assert over_seeds({0: -0.04}, 1, signed=True) == "0.0"
    assert over_seeds({2: 3.0, 0: -1.0}, 0, signed=True) == "−1 and +3"
    assert over_seeds({0: 0.0, 1: 1.0, 2: 2.0}, 2, 0.0, 3.0) == "1.00 [0.00, 3.00]"
    assert cells_of(FIGURES["EPO"])[:2] == ["grpo", "grpo-epo"]
