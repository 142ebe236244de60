"""The ledger on the terminal, as Markdown and as JSON; what is mathematics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from isentrope.claims import computed
from isentrope.claims.book import CLAIMS, claim_of
from isentrope.claims.computed import compute
from isentrope.claims.ledger import make_ledger, read_studies
from isentrope.claims.record import Finding, Interval, PartFinding, Verdict
from isentrope.claims.registry import read_book
from isentrope.claims.render import runs_to_markdown, to_json, to_markdown
from isentrope.claims.words import brief, comment, effect, effects, explain, seeds_of, signed
from isentrope.cli.main import app
from isentrope.errors import ConfigError, RunError
from isentrope.study.compact import write_compact
from isentrope.study.read import FAILED, StudyData
from isentrope.train.probes.interference import Spoken
from tests.claims.made import made_run, made_study
from tests.claims.scenarios import FAILS, HOLDS, OPEN, SCENARIOS


def three() -> StudyData:
    """One study in which E6 holds, A1 does not, and M4 is undecided; none of their runs concerns the others."""
    parts = [SCENARIOS[name](kind).runs for name, kind in (("E6", HOLDS), ("A1", FAILS), ("M4", OPEN))]
    return made_study([run for runs in parts for run in runs])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_compact(three(), tmp_path / "kept")
    return tmp_path / "kept"


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["claims", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_compact_form_gives_the_same_verdicts(folder: Path) -> None:
    ours, theirs = make_ledger([three()]), make_ledger(read_studies([folder]))
    verdicts = [line.finding.verdict for line in ours.lines]
    assert verdicts == [line.finding.verdict for line in theirs.lines]
    assert [line.finding.runs for line in ours.lines] == [line.finding.runs for line in theirs.lines]
    assert ours.counts[Verdict.holds] == ours.counts[Verdict.fails] == 1
    assert all(not line.finding.rule_notes for line in theirs.lines)  # the runs are of 2030, the rules are older


def test_json_has_everything(folder: Path) -> None:
    table = json.loads(invoke(str(folder), "--format", "json"))
    by_name = {entry["id"]: entry for entry in table["claims"]}
    assert list(by_name) == [claim.id for claim in CLAIMS]
    assert by_name["E6"]["verdict"] == "holds"
    part = by_name["E6"]["parts"][0]
    assert part["value"] == pytest.approx(0.15, abs=1e-4)
    assert part["interval"]["low"] < part["value"] < part["interval"]["high"]
    assert part["seeds"] == [0, 1, 2, 3, 4]
    assert part["runs"][0] == "made/grpo-epo/seed-0"
    assert by_name["M4"]["decides"]
    assert {one["id"]: one["verdict"] for one in table["computed"]}["EPO 0/α"] == "does not hold"


def test_markdown_has_a_row_for_each_claim(folder: Path) -> None:
    text = invoke(str(folder), "--format", "md")
    rows = [line for line in text.splitlines() if line.startswith(("| A", "| E", "| S", "| M"))]
    claims = [row for row in rows if row.split("|")[1].strip() in {claim.id for claim in CLAIMS}]
    assert len(claims) == len(CLAIMS)
    assert all(row.replace("\\|", "").count("|") == 7 for row in claims)
    assert "**✓ holds**" in text
    assert "**✗ does not hold**" in text


def test_terminal_and_only(folder: Path) -> None:
    text = invoke(str(folder), "--only", "e6", "--only", "A1")
    assert "✓ holds" in text
    assert "✗ does not hold" in text
    assert "2 claims, 15 runs of made: 1 hold, 1 do not hold, 0 are undecided." in " ".join(text.split())


def test_the_whole_ledger_is_brief_unless_asked(folder: Path) -> None:
    short, long = invoke(str(folder), "--no-computed"), invoke(str(folder), "--no-computed", "--details")
    only = invoke(str(folder), "--only", "M4")
    assert "would decide: about " in short
    assert "Would decide" not in short
    assert "Would decide: about " in long
    assert "Would decide: about " in only
    assert len(short.splitlines()) < len(long.splitlines())


def test_brief_tells_the_deciding_setting_and_counts_the_others() -> None:
    def of(kind: str, name: str) -> StudyData:
        return made_study(SCENARIOS["A4"](kind).runs, name)

    together = [of(OPEN, "a"), of(FAILS, "b"), of(OPEN, "c")]
    found = make_ledger(together, [claim_of("A4")]).lines[0].finding
    assert found.verdict == Verdict.fails
    told = [part for part in found.parts if part.setting.startswith("b") and part.counts]
    *parts, elsewhere = brief(found)
    marks = {Verdict.holds: "✓", Verdict.fails: "✗", Verdict.open: "?"}
    assert parts == [f"{marks[part.verdict]} {part.part}: {effect(part)}" for part in told]
    assert elsewhere.startswith("in 2 other settings: ")
    counted = [int(count) for count in elsewhere.removeprefix("in 2 other settings: ").split()[::2]]
    assert sum(counted) == len([part for part in found.parts if part.counts and part.value is not None]) - len(told)
    apart = make_ledger([of(HOLDS, "a"), of(FAILS, "b")], [claim_of("A4")]).lines[0].finding
    assert brief(apart)[-1] == "settings disagree"
    changed = replace(apart, rule_notes=("the rule was changed on 2031 (why (and where)), after runs of 2030",))
    assert brief(changed)[-1] == "MIND: the rule was changed on 2031, after runs of 2030"
    assert brief(make_ledger([], [claim_of("A4")]).lines[0].finding) == ["No runs"]


def test_one_part_is_enough_to_refute() -> None:
    verdicts = {"a": (Verdict.open, Verdict.open), "b": (Verdict.holds, Verdict.fails)}
    parts = tuple(
        PartFinding(part, setting, verdict, "", value=1.0, interval=Interval(0.0, 2.0))
        for setting, found in verdicts.items()
        for part, verdict in zip(("one", "two"), found, strict=True)
    )
    told = brief(Finding("A4", Verdict.fails, "", parts))
    assert told == ["✓ one: +1 [+0, +2]", "✗ two: +1 [+0, +2]", "in 1 other setting: 2 ?"]


def test_explain_prints_claim_rule_and_metrics() -> None:
    text = invoke("--explain", "s3")
    claim = claim_of("S3")
    assert claim.says in text
    assert "probe/interference/negative" in text
    assert "GRPO or GiGPO" in text
    assert "holds if the interval (95%) lies above 0 and the mean is at least 0.05" in text
    assert read_book()["S3"][0].digest in text


def test_without_a_study_it_says_what_is_needed() -> None:
    text = " ".join(invoke("--no-computed").split())
    assert "24 claims; no study was given, so nothing is decided." in text
    assert "Would decide: 3 seeds of each of: GRPO." in text


def test_kind_errors(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean S3"):
        claim_of("S33")
    with pytest.raises(RunError, match="holds no study"):
        read_studies([tmp_path])
    with pytest.raises(RunError, match="are called made"):
        read_studies([folder, folder])
    (tmp_path / "quick.toml").write_text("")
    with pytest.raises(RunError, match="is a study file; give the study's folder, runs/quick"):
        read_studies([tmp_path / "quick.toml"])
    done = CliRunner().invoke(app, ["claims", "--no-computed", "--out", "."])
    assert done.exit_code == 2
    assert "name a file in it" in done.output


def test_foreign_names_cannot_break_the_table() -> None:
    study = SCENARIOS["E6"](HOLDS)
    runs = tuple(replace(run, tags={**run.tags, "model": "a|b<script>\n| x |"}) for run in study.runs)
    hostile = replace(study, runs=(*runs, *study.runs))
    text = to_markdown(make_ledger([hostile], [claim_of("E6")]))
    assert "<script>" not in text
    assert [line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")] == [7, 7, 7]
    assert json.loads(to_json(make_ledger([hostile], [claim_of("E6")])))


def test_words() -> None:
    assert [signed(value) for value in (0.0312, -0.5, 0.0, -1.23e-5)] == ["+0.0312", "−0.5", "+0", "−1.2e−05"]
    assert signed(3.1e-17) == "+0"
    line = make_ledger([SCENARIOS["E1"](OPEN)], [claim_of("E1")]).lines[0]
    first, second = effects(line.finding)
    assert first.startswith("on GRPO: +0.04 [")
    assert second.startswith("on PPO: +0.04 [")
    assert first.endswith("success ?")
    assert seeds_of(line.finding) == "5"
    for kind, mark in ((HOLDS, "✓"), (FAILS, "✗")):
        found = make_ledger([SCENARIOS["E6"](kind)], [claim_of("E6")]).lines[0].finding
        assert effects(found) == [f"on GRPO: {effect(found.parts[0])} {mark}"]
    assert comment(line.finding).startswith("The interval includes 0. Would decide: about ")
    assert all(claim.says in explain(claim, []) for claim in CLAIMS)


def test_the_reason_is_that_of_the_runs_that_came_nearest() -> None:
    """Runs that are too short say nothing of eruptions; long ones without an eruption do. Failed ones are named."""
    short = [made_run(seed, train={"entropy/token": 0.5}) for seed in range(3)]
    long = [made_run(seed, steps=400, train={"entropy/token": 0.5}, length="long") for seed in range(3)]
    failed = replace(made_run(3, train={"entropy/token": 0.5}), status=FAILED)
    line = make_ledger([made_study([*short, failed, *long])], [claim_of("S3")]).lines[0]
    told = comment(line.finding)
    assert told.startswith("Entropy never erupted. Would decide: 3 seeds of GRPO or GiGPO where this is not so.")
    assert "shorter than" not in told
    assert f"1 failed: made/{failed.name}" in told


def test_runs_table_names_cells_and_seeds() -> None:
    text = runs_to_markdown(make_ledger([SCENARIOS["E6"](HOLDS)]), {"made": "runs/made"})
    assert "| E6 | `made/grpo-epo` 0, 1, 2, 3, 4 | `made/grpo-ea` 0, 1, 2, 3, 4 |" in text
    assert "[made](runs/made)" in text


def test_mathematics_by_computation() -> None:
    found = {one.id: one for one in compute()}
    fails = {"AEM sign", "EPO 0/α"}
    assert {name for name, one in found.items() if one.verdict == Verdict.fails} == fails
    assert all(one.off < 1e-5 for name, one in found.items() if name not in fails)


def test_a_broken_kernel_or_head_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real_kernel, real_head, real_penalty = computed.kernel, computed.token_head, computed.penalty

    def louder(episodes: list[Spoken], weight: torch.Tensor) -> object:
        return 1.01 * real_kernel(episodes, weight)

    def vaguer(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logp, entropy = real_head(given[0], given[1], given[2], given[3])
        return logp, 1.01 * entropy

    def harder(h: torch.Tensor, history: float, alpha: float, low: float, high: float, flat: bool) -> torch.Tensor:
        return real_penalty(h, history, 1.01 * alpha, low, high, flat)

    monkeypatch.setattr(computed, "kernel", louder)
    assert computed.interference_of_the_output_matrix() > computed.TOLERANCE
    assert computed.likelihood_of_the_group() > computed.TOLERANCE
    monkeypatch.setattr(computed, "token_head", vaguer)
    assert computed.drift_on_the_simplex() > computed.TOLERANCE
    assert computed.entropy_against_covariance() > computed.TOLERANCE
    monkeypatch.setattr(computed, "penalty", harder)
    assert computed.hinge_gradient() > computed.TOLERANCE
