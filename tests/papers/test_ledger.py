"""The ledger on the terminal, as Markdown and as JSON; what is mathematics."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.core.errors import ConfigError, RunError
from isentrope.core.stats import Interval
from isentrope.metrics.probes.interference import EpisodeStates
from isentrope.papers import computed
from isentrope.papers.computed import compute
from isentrope.papers.ledger import counted, make_ledger, read_studies, runs_to_markdown, summary, to_json, to_markdown
from isentrope.papers.record import Claim, Finding, PartFinding, Verdict
from isentrope.papers.registry import CLAIMS, Entry, claim_of, present
from isentrope.papers.select import model_of
from isentrope.papers.words import (
    MARKS,
    brief,
    comment,
    counts_of,
    effect,
    effects,
    explain,
    in_words,
    premise_in_words,
    rule,
    runs_of,
    signed,
)
from isentrope.study.read import FAILED, StudyData, write_compact
from tests.papers.made import POCKET, in_setting, made_run, made_study, of_model, with_train
from tests.papers.scenarios import FAILS, HOLDS, OPEN, SCENARIOS


def four() -> StudyData:
    """One study in which E6 holds, A1 does not, M4 is undecided and S1 cannot be tested: actions are valid at once."""
    bare = [
        with_train(with_train(run, "valid_ratio", 0.98), "entropy/token", 0.5) for run in SCENARIOS["A1"](FAILS).runs
    ]
    others = [SCENARIOS[name](kind).runs for name, kind in (("E6", HOLDS), ("M4", OPEN))]
    return made_study(of_model([*bare, *(run for runs in others for run in runs)], "pocket"))


def found_in(study: StudyData | list[StudyData], name: str) -> Finding:
    (line,) = make_ledger(study if isinstance(study, list) else [study], [claim_of(name)]).lines
    (found,) = line.findings
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_compact(four(), tmp_path / "kept")
    return tmp_path / "kept"


def invoke(*arguments: str, columns: int = 2000) -> str:
    """So wide that no cell is broken into lines."""
    done = CliRunner().invoke(app, ["claims", *arguments], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_compact_form_gives_the_same_verdicts(folder: Path) -> None:
    ours, theirs = make_ledger([four()]), make_ledger(read_studies([folder]))
    assert [found.verdict for found in ours.findings] == [found.verdict for found in theirs.findings]
    assert [found.runs for found in ours.findings] == [found.runs for found in theirs.findings]
    assert ours.models == theirs.models == [POCKET]
    counts = ours.counts(POCKET)
    assert counts[Verdict.holds] == counts[Verdict.fails] == counts[Verdict.untestable] == 1
    rules = {name: [Entry(digest, "2029-01-01T00:00:00Z", "first")] for name, digest in present().items()}
    theirs = make_ledger(read_studies([folder]), book=rules)
    assert not any(found.rule_notes for found in theirs.findings)  # the runs are of 2030, the rules are older


def test_the_compact_form_keeps_model_and_start(tmp_path: Path) -> None:
    runs = of_model([made_run(0, version="x")], "Qwen3-0.6B", 596_049_920, "f00")
    write_compact(made_study([replace(run, version="1.2") for run in runs]), tmp_path / "kept")
    (study,) = read_studies([tmp_path / "kept"])
    (run,) = study.runs
    assert (run.parameters, run.start, run.version) == (596_049_920, "f00", "1.2")
    assert model_of(study, run) == "Qwen3-0.6B, 596 M"


def test_json_has_everything(folder: Path) -> None:
    table = json.loads(invoke(str(folder), "--format", "json"))
    by_name = {entry["id"]: entry for entry in table["claims"]}
    assert list(by_name) == [claim.id for claim in CLAIMS]
    told = {"id", "paper", "says", "needs", "caveat", "rule_since", "findings"}
    assert all(set(entry) == told for entry in by_name.values())
    (found,) = by_name["E6"]["findings"]
    assert set(found) == {one.name for one in fields(Finding)} | {"runs"}
    assert (found["verdict"], found["model"]) == ("holds", POCKET)
    assert len(found["runs"]) == 20
    part = found["parts"][0]
    assert set(part) == {one.name for one in fields(PartFinding)}
    assert part["value"] == pytest.approx(0.15, abs=1e-4)
    assert part["interval"]["low"] < part["value"] < part["interval"]["high"]
    assert part["held"] == pytest.approx(part["interval"])
    assert part["levels"] == pytest.approx([0.95, 0.95])
    assert part["error"] > 0
    assert part["freedom"] > 4
    assert part["how"] == "two samples of seeds"
    assert part["direction"] == "GRPO with epo ends above GRPO with ea"
    assert part["seeds"] == [0, 1, 2, 3, 4]
    assert part["runs"][0] == "made/grpo-epo/seed-0"
    assert part["controls"][0] == "made/grpo-ea/seed-0"
    assert [one["met"] for one in part["premises"]] == [True] * 3
    assert by_name["M4"]["findings"][0]["decides"]
    (barred,) = by_name["S1"]["findings"]
    assert barred["verdict"] == "not testable here"
    assert barred["parts"][0]["premises"][0]["met"] is False
    assert barred["parts"][0]["premises"][0]["remedy"] == barred["decides"]
    assert [one["model"] for one in by_name["A4"]["findings"]] == [""]
    counts = table["counts"][POCKET]
    assert {name: counts[name] for name in ("holds", "does not hold", "not testable here")} == {
        "holds": 1, "does not hold": 1, "not testable here": 1
    }  # fmt: skip
    assert {one["id"]: one["verdict"] for one in table["computed"]}["EPO 0/α"] == "does not hold"


def bars(row: str) -> int:
    return row.replace("\\|", "").count("|")


def test_markdown_has_a_row_for_each_claim_and_model(folder: Path) -> None:
    text = invoke(str(folder), "--format", "md")
    rows = [line for line in text.splitlines() if line.startswith(("| A", "| E", "| S", "| M"))]
    claims = [row for row in rows if row.split("|")[1].strip() in {claim.id for claim in CLAIMS}]
    assert len(claims) == len(CLAIMS)
    assert all(bars(row) == 8 for row in claims)
    assert "| | claim | model | verdict | effect, 95 % interval | runs | why |" in text
    for told in ("**✓ holds**", "**✗ does not hold**", "? undecided", "– not testable here"):
        assert told in text
    (row,) = [row for row in claims if row.startswith("| E6 |")]
    assert f"| {POCKET} |" in row
    assert "| 5 runs of 5 seeds against 5 |" in row
    twice = make_ledger([made_study([*four().runs, *of_model(in_setting(four(), size="l").runs, "large", 10**9)])])
    rows = [row for row in to_markdown(twice).splitlines() if row.startswith("| E6 |")]
    assert [row.split(" | ")[2] for row in rows] == ["large, 1 B", POCKET]


def test_terminal_and_only(folder: Path) -> None:
    text = invoke(str(folder), "--only", "e6", "--only", "A1", "--only", "s1")
    assert "✓ holds" in text
    assert "✗ does not hold" in text
    assert "– not testable here" in text
    assert POCKET in text
    told = " ".join(text.split())
    counts = "1 hold, 1 do not hold, 0 are undecided, 1 are not testable here"
    assert f"3 claims, 25 runs of made: {POCKET}: {counts}" in told
    assert "Would make it testable: a start with fewer valid actions" in told


def test_the_summary_counts_for_each_model() -> None:
    ledger = make_ledger([made_study([*of_model(SCENARIOS["M4"](HOLDS).runs, "a", 10**6),
                                      *of_model(in_setting(SCENARIOS["M4"](FAILS), size="l").runs, "b", 10**9)])],
                         [claim_of("M4"), claim_of("E6")])  # fmt: skip
    assert (
        counted(ledger, "a, 1 M") == "1 hold, 0 do not hold, 0 are undecided, 0 are not testable here, 1 have no runs"
    )
    assert ledger.models == ["a, 1 M", "b, 1 B"]
    assert summary(ledger).startswith("2 claims, 10 runs of made: a, 1 M: 1 hold, 0 do not hold")
    assert "; b, 1 B: 0 hold, 1 do not hold" in summary(ledger)


def test_the_summary_counts_runs_that_do_not_say_which_model_they_train() -> None:
    """They are judged, and their verdicts stand in the table: the line above must not say that nothing is decided."""
    ledger = make_ledger([SCENARIOS["E6"](HOLDS)], [claim_of("E6")])
    assert ledger.findings[0].verdict == Verdict.holds
    assert ledger.models == [""]
    assert summary(ledger).startswith("1 claim, 20 runs of made: model not told: 1 hold, 0 do not hold")
    assert "nothing is decided" not in summary(ledger).lower()
    assert make_ledger([made_study([made_run(0, "rloo")])], [claim_of("E6")]).models == []


def test_the_whole_ledger_is_brief_unless_asked(folder: Path) -> None:
    short, long = invoke(str(folder), "--no-computed"), invoke(str(folder), "--no-computed", "--details")
    only = invoke(str(folder), "--only", "M4")
    assert "would decide: about " in short
    assert "Would decide" not in short
    assert "Would decide: about " in long
    assert "Would decide: about " in only
    assert "Would make it testable: a start with fewer valid actions" in " ".join(short.split())
    narrow = [invoke(str(folder), "--no-computed", *more, columns=100) for more in ((), ("--details",))]
    assert len(narrow[0].splitlines()) < len(narrow[1].splitlines())


def test_brief_tells_the_deciding_setting_and_counts_the_others() -> None:
    def of(kind: str, name: str) -> StudyData:
        return made_study(SCENARIOS["A4"](kind).runs, name)

    found = found_in([of(OPEN, "a"), of(FAILS, "b"), of(OPEN, "c")], "A4")
    assert found.verdict == Verdict.fails
    told = [part for part in found.parts if part.setting.startswith("b") and part.counts]
    *parts, elsewhere = brief(replace(found, rule_notes=()))
    assert parts == [f"{MARKS[part.verdict]} {part.part}: {effect(part)} ({part.direction})" for part in told]
    assert all("ends below" in part for part in parts)
    assert elsewhere.startswith("in 2 other settings: ")
    counts = [int(count) for count in elsewhere.removeprefix("in 2 other settings: ").split()[::2]]
    assert sum(counts) == len([part for part in found.parts if part.counts and part.value is not None]) - len(told)
    apart = replace(found_in([of(HOLDS, "a"), of(FAILS, "b")], "A4"), rule_notes=())
    assert brief(apart)[-1] == "settings disagree"
    changed = replace(apart, rule_notes=("the rule was changed on 2031 (why (and where)), after runs of 2030",))
    assert brief(changed)[-1] == "MIND: the rule was changed on 2031, after runs of 2030"
    assert brief(replace(found_in([], "A4"), rule_notes=())) == ["No runs"]


def test_one_part_is_enough_to_refute() -> None:
    verdicts = {"a": (Verdict.open, Verdict.open), "b": (Verdict.holds, Verdict.fails)}
    parts = tuple(
        PartFinding(part, setting, verdict, "", value=1.0, interval=Interval(0.0, 2.0))
        for setting, found in verdicts.items()
        for part, verdict in zip(("one", "two"), found, strict=True)
    )
    told = brief(Finding("A4", Verdict.fails, "", parts))
    assert told == ["✓ one: +1 [+0, +2]", "✗ two: +1 [+0, +2]", "in 1 other setting: 2 ?"]


def test_explain_prints_claim_rule_premises_and_power() -> None:
    text = invoke("--explain", "s3")
    claim = claim_of("S3")
    assert claim.says in text
    assert "probe/interference/negative" in text
    assert "GRPO or GiGPO" in text
    assert "holds if the interval at 1 - 5 %/K lies above 0 and the mean is at least 0.05" in text
    assert "does not hold if the interval at 1 - 5 %/(2 K) lies below 0.05" in text
    erupts = "share of the runs in which entropy erupts (of the runs), at least 0.25"
    assert f"premise   entropy erupts: {erupts}" in text
    assert "power     a true +0.3 (pocket model, spread 0.2) is found in " in text
    assert "K is the number of settings in which it can be tested. A premise that fails: not testable here." in text
    assert "(shown, without a voice in the verdict)" in text


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_explain_tells_every_part_and_premise(claim: Claim) -> None:
    text = explain(claim, [Entry("0123456789abcdef", "2030-01-01T00:00:00Z", "first written")])
    assert claim.says in text
    assert "2030-01-01T00:00:00Z  0123456789abcdef  first written" in text
    for part in claim.parts:
        assert f"- {part.name}" in text
        assert part.measure.words in text
        assert all(f"premise   {premise_in_words(one)}" in text for one in part.premises)
        share = "5 %/K" if claim.voices == 1 else f"5 %/({claim.voices} K)"
        assert f"at 1 - {share} lies" in rule(part, claim)


def test_premises_in_words() -> None:
    told = {one.name: premise_in_words(one) for claim in CLAIMS for part in claim.parts for one in part.premises}
    assert told["the control leaves room"].endswith("(of the runs compared with), at most 0.95")
    assert told["both arms have stopped rising"].endswith("(of either arm), at most 0.02")
    assert told["the model can act without thoughts"].endswith("(GRPO with no_think), over that of GRPO: at least 0.3")
    assert ", less that of " in told["the bonus moves entropy measurably"]
    assert told["the bonus moves entropy measurably"].endswith("the 95 % interval leaves out 0")


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


EVIL = "a|b<script>\n| x |`](http://l)"


def test_foreign_names_cannot_break_the_table() -> None:
    """Neither as a setting nor as a model, whatever tells of it."""
    study = SCENARIOS["E6"](HOLDS)
    placed = tuple(replace(run, tags={**run.tags, "rooms": EVIL}) for run in study.runs)
    hostile = made_study([*placed, *of_model([replace(run, cell=f"{run.cell}-m") for run in study.runs], EVIL)])
    ledger = make_ledger([hostile], [claim_of("E6")])
    assert len(ledger.findings) == 2
    text = to_markdown(ledger)
    assert not any(part in text for part in ("<script>", "](http", "`"))
    assert [bars(line) for line in text.splitlines() if line.startswith("|")] == [8, 8, 8, 8]
    assert json.loads(to_json(ledger))


def test_a_foreign_model_cannot_paint_the_terminal(tmp_path: Path) -> None:
    study = made_study(of_model(SCENARIOS["E6"](HOLDS).runs, "[red]x\x1b[31m\x07"))
    write_compact(study, tmp_path / "kept")
    for options in ((), ("--details",), ("--format", "md"), ("--format", "json")):
        text = invoke(str(tmp_path / "kept"), "--only", "E6", *options)
        assert "\x1b[31m" not in text
        assert "\x07" not in text
        assert "[red]x" in text


def test_words() -> None:
    assert [signed(value) for value in (0.0312, -0.5, 0.0, -1.23e-5)] == ["+0.0312", "−0.5", "+0", "−1.2e−05"]
    assert signed(3.1e-17) == "+0"
    found = found_in(SCENARIOS["E1"](OPEN), "E1")
    first, second = effects(found)
    assert first.startswith("on GRPO: +0.04 [")
    assert second.startswith("on PPO: +0.04 [")
    assert first.endswith("success ?")
    assert counts_of(found) == "5 runs of 5 seeds against 5"
    for kind, mark in ((HOLDS, "✓"), (FAILS, "✗")):
        found = found_in(SCENARIOS["A5"](kind), "A5")
        assert effects(found) == [f"{effect(found.parts[0])} {mark}"]
    open_one = comment(found_in(SCENARIOS["E1"](OPEN), "E1"))
    assert open_one.startswith("The 95 % interval includes 0. Would decide: about ")
    assert all(claim.says in explain(claim, []) for claim in CLAIMS)


def test_logarithms_are_told_as_factors() -> None:
    part = found_in(SCENARIOS["A2"](HOLDS), "A2").parts[0]
    assert part.value == pytest.approx(math.log(1.3), abs=1e-3)
    assert effect(part).startswith("× 1.3 [× 1.2")
    assert effect(part).endswith("] the control")
    assert in_words(part) == " (acting first keeps actions more open)"
    assert in_words(replace(part, direction="")) == ""
    assert part.reason == "the 95 % interval lies above × 1, the mean is at least × 1.05"


def test_runs_and_seeds_are_told_apart() -> None:
    part = PartFinding("p", "s", Verdict.open, "", seeds=(0, 1), runs=("a", "b", "c"), controls=("d",))
    assert runs_of(part) == "3 runs of 2 seeds against 1"
    assert runs_of(replace(part, controls=())) == "3 runs of 2 seeds"
    assert runs_of(replace(part, runs=())) == "0"


def test_the_reason_is_that_of_the_runs_that_came_nearest() -> None:
    """Runs that are too short say nothing of eruptions; long ones without an eruption do. Failed ones are named."""
    short = [made_run(seed, train={"entropy/token": 0.5}) for seed in range(3)]
    long = [made_run(seed, steps=400, train={"entropy/token": 0.5}, length="long") for seed in range(3)]
    failed = replace(made_run(3, train={"entropy/token": 0.5}), status=FAILED)
    found = replace(found_in(made_study([*short, failed, *long]), "S3"), rule_notes=())
    assert found.verdict == Verdict.untestable
    told = comment(found)
    assert told.startswith("Premise fails (entropy erupts): share of the runs in which entropy erupts: 0, ")
    assert "Would make it testable: a setting in which at least half of the bare runs erupt." in told
    assert "shorter than" not in told
    assert f"1 failed: made/{failed.name}" in told


def test_runs_table_names_cells_and_seeds() -> None:
    text = runs_to_markdown(make_ledger([SCENARIOS["A5"](HOLDS)]), {"made": "runs/made"})
    assert "| A5 | `made/grpo-no_think` 0, 1, 2, 3, 4 | `made/grpo-none` 0, 1, 2, 3, 4 |" in text
    assert "[made](runs/made)" in text


def test_mathematics_by_computation() -> None:
    found = {one.id: one for one in compute()}
    fails = {"AEM sign", "EPO 0/α"}
    assert {name for name, one in found.items() if one.verdict == Verdict.fails} == fails
    assert all(one.off < 1e-5 for name, one in found.items() if name not in fails)


def test_a_broken_kernel_or_head_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real_kernel, real_head, real_penalty = computed.kernel, computed.token_head, computed.penalty

    def louder(episodes: list[EpisodeStates], weight: torch.Tensor) -> object:
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
    assert computed.penalty_gradient(indicator=False) > computed.TOLERANCE
