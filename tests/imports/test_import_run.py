"""`isentrope import`: the run folder that it makes, its names, and what the other commands say of it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.diagnosis.doctor import Diagnosis, diagnose
from isentrope.imports.names import TRL, VERL
from isentrope.runs.folder import Run
from tests.imports.logs import DATA, trl_logs, verl_logs


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})


def imported(log: Path, out: Path, *arguments: str) -> Run:
    done = invoke("import", log, "--out", out, *arguments)
    assert done.exit_code == 0, done.output
    return Run.open(out)


def jsonl(path: Path, columns: Mapping[str, Sequence[float]], first: int = 1) -> Path:
    lines = [
        json.dumps({"step": first + n} | {key: column[n] for key, column in columns.items() if n < len(column)})
        for n in range(max(map(len, columns.values())))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


# -- the folder

SAME = {
    "entropy/token": "entropy", "return/mean": "reward", "kl/k3": "kl", "lr": "learning_rate", "grad_norm": "grad_norm",
    "advantage/zero_groups": "frac_reward_zero_std", "clip/low": "clip_ratio/low_mean",
    "response/tokens": "completions/mean_length",
}  # fmt: skip


def test_a_run_of_trl(tmp_path: Path) -> None:
    for kind, log in trl_logs(tmp_path).items():
        run = imported(log, tmp_path / f"run-{kind}")
        history = json.loads((DATA / "trainer_state.json").read_text())["log_history"]
        for ours, theirs in SAME.items():
            told = [row[theirs] for row in history]
            assert run.curve(ours).steps == (1, 2, 3, 4, 5, 6)
            assert run.curve(ours).values == pytest.approx(told, rel=1e-6), (kind, ours)
        own = "rewards/vowels/mean" if kind == "trainer_state" else "train/rewards/vowels/mean"
        assert len(run.curve(own)) == 6  # what has no name of ours keeps its own
        assert run.problems == ()
        assert run.imported is not None
        assert (run.imported.program, run.imported.names) == ("TRL", "trl")
        assert (
            run.about["imported"]["map"]["entropy" if kind == "trainer_state" else "train/entropy"] == "entropy/token"
        )
        assert run.about["imported"]["at"].endswith("Z")


def test_a_run_of_verl(tmp_path: Path) -> None:
    for kind, log in verl_logs(tmp_path).items():
        run = imported(log, tmp_path / f"run-{kind}")
        assert run.curve("return/mean").values == pytest.approx([0.3 + 0.02 * step for step in range(1, 13)])
        assert run.curve("kl/old").values[-1] == pytest.approx(0.012)
        assert run.curve("eval/openai-gsm8k/success").steps == (5, 10)
        assert len(run.curve("response/tokens")) == 12  # num_turns is 2: one question, one answer
        assert len(run.curve("actor/pg_clipfrac_lower")) == 12
        assert run.splits == ["openai-gsm8k"]


@pytest.mark.parametrize(
    "columns",
    [
        {"critic/score/mean": [0.5, 0.6], "response_length/mean": [300, 400], "num_turns/max": [2, 9]},
        {"reward": [0.1, 0.2], "reward_std": [0, 0], "completions/mean_length": [9, 9], "tools/call_frequency": [0, 1]},
    ],
)
def test_lengths_of_whole_episodes_are_not_taken_for_responses(columns: dict[str, list[float]], tmp_path: Path) -> None:
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "run")
    assert len(run.curve("return/mean")) == 2
    assert not len(run.curve("response/tokens"))
    assert run.imported is not None
    assert "episodes have several turns" in run.imported.problems[0]


def test_names_that_are_ours_by_chance_are_not_taken_for_ours(tmp_path: Path) -> None:
    columns = {"failures": [3, 4], "valid_ratio": [0.1, 0.1], "loss": [1, 2], "kind": [5, 6], "update/skipped": [9, 9]}
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "run")
    assert sorted(run.keys("")) == [
        "kind", "loss", "other/failures", "other/kind", "other/update/skipped", "other/valid_ratio", "step",
    ]  # fmt: skip
    assert {record["kind"] for record in run.records} == {"train"}
    ours = {"entropy/token": [0.5, 0.4], "return/mean": [1, 2], "failures": [3, 0]}
    run = imported(jsonl(tmp_path / "ours.jsonl", ours), tmp_path / "ours")
    assert run.curve("failures").values == (3.0, 0.0)  # a log of ours, from a tracker


def test_what_is_no_share_and_no_entropy_a_token_keeps_its_name(tmp_path: Path) -> None:
    columns = {"reward": [0.1, 0.2], "reward_std": [1, 1], "frac_reward_zero_std": [0.1, 40], "entropy": [400, 300]}
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "run")
    assert run.keys("advantage") == run.keys("entropy/") == []
    assert len(run.curve("frac_reward_zero_std")) == len(run.curve("entropy")) == 2


def test_a_map_of_ones_own(tmp_path: Path) -> None:
    log = jsonl(tmp_path / "log.jsonl", {"policy/H": [0.5, 0.4], "solved": [0.1, 0.2], "pay": [1, 2]})
    names = tmp_path / "names.toml"
    names.write_text('[metrics]\n"entropy/token" = "policy/H"\n"return/mean" = "pay"\n')
    run = imported(log, tmp_path / "run", "--map", str(names), "--map", "success/all=solved")
    assert [run.curve(key).values for key in ("entropy/token", "return/mean", "success/all")] == [
        (0.5, 0.4), (1.0, 2.0), (0.1, 0.2),
    ]  # fmt: skip
    assert run.about["imported"]["own_map"] == {
        "entropy/token": "policy/H", "return/mean": "pay", "success/all": "solved",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--map", "success/all=pay"), "success/all lies between 0 and 1, and that goes from 1 to 2"),
        (("--map", "entropy/tokn=pay"), "did you mean 'entropy/token'"),
        (("--map", "success/all=nothing"), "the log has no metric called 'nothing'"),
        (("--map", "success/all="), "expected OURS=THEIRS"),
        (("--map", "nowhere.toml"), "expected OURS=THEIRS, or a file of TOML"),
        (("--map", "success/all=a", "--map", "success/all=b"), "names success/all twice"),
        (("--set", "rollout.group=8"), "did you mean rollout.groups"),
        (("--names", "wandb"), "auto"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    log = jsonl(tmp_path / "log.jsonl", {"pay": [1, 2]})
    done = invoke("import", log, "--out", tmp_path / "run", *arguments)
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    log = jsonl(tmp_path / "log.jsonl", {"pay": [1, 2]})
    (tmp_path / "run").mkdir()
    imported(log, tmp_path / "run")  # an empty folder is as good as none
    before = (tmp_path / "run" / "run.json").read_bytes()
    done = invoke("import", log, "--out", tmp_path / "run")
    assert done.exit_code == 2
    assert "is there already; choose another folder with --out" in done.stderr
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert invoke("import", log, "--out", tmp_path / "link").exit_code == 2


def test_the_folder_is_named_after_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "tiny.jsonl", {"pay": [1, 2]})
    assert "runs/tiny: two steps, 1 to 2" in invoke("import", "tiny.jsonl").stdout


def test_what_was_cut_off_is_recorded_and_told(tmp_path: Path) -> None:
    log = tmp_path / "trainer_state.json"
    log.write_bytes((DATA / "trainer_state.json").read_bytes()[:4000])
    done = invoke("import", log, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "is cut off or damaged after" in done.stdout
    assert (
        "Of the log this is to be known: trainer_state.json is cut off" in diagnose(Run.open(tmp_path / "run")).words()
    )


# -- what the other commands make of it


def test_the_other_commands_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    imported(DATA / "trainer_state.json", Path("run"))
    for words in (("report", "run"), ("metrics", "run", "--find", "entropy"), ("doctor", "run", "--json"),
                  ("figures", "run", "--out", "figures", "--metric", "entropy/token")):  # fmt: skip
        done = invoke(*words)
        assert done.exit_code == 0, (words, done.output)
    page = Path("run/report.html").read_text()
    assert "Mean entropy of the next-token distribution" in page
    assert "trainer_state.json of TRL" in page
    assert "machine" not in page.split("How it was run")[-1]  # where it ran nobody knows
    assert list(Path("figures").iterdir())
    done = invoke("table", "run")  # which is made of evaluations, and there are none
    assert done.exit_code == 2
    assert "--set eval.games=NUMBER" in done.stderr
    imported(DATA / "verl.jsonl", Path("verl"), "--set", "eval.games=100")
    assert "50" in invoke("table", "verl").stdout
    assert "with 100 games" in diagnose(Run.open("verl")).words()
    shutil.rmtree("verl")
    from isentrope.watch.answers import Answers
    from isentrope.watch.runs import Runs

    answers = Answers(Runs([tmp_path]))
    (shown,) = answers.runs()["runs"]
    assert "entropy/token" in {entry["key"] for entry in answers.keys()["keys"]}
    assert shown["status"] == "finished"  # though its log was written a moment ago


# -- what the doctor says, and does not say


def told(tmp_path: Path, columns: Mapping[str, Sequence[float]], *arguments: str) -> Diagnosis:
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "run", "--names", "trl", *arguments)
    return diagnose(run)


def names_of(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for finding in diagnosis.findings}


RISING = [0.3] * 40 + [1.5] * 40


def test_an_eruption_is_told_and_no_cause_is_guessed(tmp_path: Path) -> None:
    """Of our own runs a ruined policy is told by success, which is not known here."""
    diagnosis = told(tmp_path, {"entropy": RISING, "kl": [0.001] * 40 + [0.4] * 40, "reward": [0.1] * 80})
    assert {"eruption", "state/imported"} <= names_of(diagnosis)
    assert diagnosis.causes == []
    assert "learning rate is too high" not in diagnosis.words()


def test_what_cannot_be_known_is_said(tmp_path: Path) -> None:
    words = told(tmp_path, {"reward": [0.1] * 9}).words()
    for unknown in ("whether tasks were solved", "which settings ran", "what was asked and answered", "the entropy"):
        assert unknown in words
    assert "success" not in words.lower()


def test_a_collapse_names_no_success_that_was_not_logged(tmp_path: Path) -> None:
    diagnosis = told(tmp_path, {"entropy": [0.5] * 10 + [1e-5] * 20, "reward": [0.1] * 30})
    (collapse,) = [finding for finding in diagnosis.findings if finding.name == "alarm/collapse"]
    assert not any(key.startswith("success") for key in collapse.evidence)
    assert "success" not in diagnosis.words().lower()


def test_success_without_the_number_of_episodes_names_no_cause(tmp_path: Path) -> None:
    columns = {"ok": [0.0] * 30, "reward": [0.0] * 30, "kl": [0.0] * 30, "frac_reward_zero_std": [1.0] * 30}
    diagnosis = told(tmp_path, columns, "--map", "success/all=ok")
    assert diagnosis.causes == []
    assert "of how many episodes success is a share" in diagnosis.words()
    assert "alarm/no_signal" in names_of(diagnosis)


def test_with_settings_that_were_given_causes_are_named_again(tmp_path: Path) -> None:
    columns = {"ok": [0.0] * 30, "reward": [0.0] * 30, "kl": [0.0] * 30}
    sets = ("--set", "rollout.groups=16", "--set", "rollout.group_size=2")
    diagnosis = told(tmp_path, columns, "--map", "success/all=ok", *sets)
    assert [cause.name for cause in diagnosis.causes] == ["cause/impossible"]
    assert "0 of 960 training episodes" in diagnosis.causes[0].claim
    # neither the size of the model is known nor in how many groups all did equally well
    assert not {"cause/rate_low", "cause/frozen", "cause/small_group"} & names_of(diagnosis)


def test_advice_is_in_the_names_of_the_program(tmp_path: Path) -> None:
    columns = {"entropy": RISING, "reward": [0.1] * 80, "frac_reward_zero_std": [1.0] * 80}
    diagnosis = told(tmp_path, columns, "--set", "learn.lr=1e-5", "--set", "learn.kl=0", "--set", "run.steps=100")
    advice = " ".join(remedy for finding in diagnosis.findings for remedy in finding.remedy)
    assert "(learning_rate is 1e-05)" in advice
    assert "beta=0.01 (it is 0)" in advice
    for ours in ("learn.", "rollout.", "run.", "--resume", "isentrope "):
        assert ours not in advice


def test_the_reward_is_told(tmp_path: Path) -> None:
    cases = {
        "reward/rose": [0.1] * 10 + [0.8] * 10,
        "reward/noise": [0.1, 0.3] * 10,
        "reward/fell": [0.1] * 10 + [0.9] * 10 + [0.2] * 10,
    }
    for name, reward in cases.items():
        (tmp_path / name[7:]).mkdir()
        assert name in names_of(told(tmp_path / name[7:], {"reward": reward}))


def test_responses_that_are_cut(tmp_path: Path) -> None:
    diagnosis = told(tmp_path, {"reward": [0.1] * 9, "completions/clipped_ratio": [0.9] * 9})
    (cut,) = [finding for finding in diagnosis.findings if finding.name == "responses/cut"]
    assert cut.remedy == ("a larger max_completion_length",)


def test_no_rule_raises_on_any_one_metric_alone(tmp_path: Path) -> None:
    """Each metric that a map can give, alone, with numbers at the ends of what it may be."""
    keys = sorted({*TRL.table.values(), *VERL.table.values(), "success/all", "valid_ratio", "verdict/too_long"})
    for place, key in enumerate(keys):
        for ends in (0.0, 1.0), (1.0, 0.0):
            folder = tmp_path / f"{place}-{ends[0]:.0f}"
            folder.mkdir()
            jsonl(folder / "metrics.jsonl", {key: [ends[0]] * 15 + [ends[1]] * 15})
            (folder / "run.json").write_text('{"imported": {"names": "trl"}}')
            diagnosis = diagnose(Run.open(folder))
            assert diagnosis.causes == [], (key, diagnosis.words())
            assert "state/imported" in names_of(diagnosis)


def test_a_critic_is_not_judged_without_the_spread_of_returns(tmp_path: Path) -> None:
    """Rewards of 1 and -1 have a mean near zero, and a value of 0.5 is no wonder then. verl logs no spread."""
    columns = {"critic/score/mean": [0.01, -0.01] * 15, "critic/values/mean": [0.5] * 30}
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "run")
    assert len(run.curve("critic/value")) == 30
    assert diagnose(run).causes == []
    columns["spread"] = [0.1] * 30
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "again", "--map", "return/std=spread")
    assert diagnose(run).causes == []  # 0.5 is within twice 0.01 + 3 × 0.1
    columns["critic/values/mean"] = [90.0] * 30
    run = imported(jsonl(tmp_path / "log.jsonl", columns), tmp_path / "far", "--map", "return/std=spread")
    assert [cause.name for cause in diagnose(run).causes] == ["cause/critic"]


def test_no_rule_raises_or_guesses_on_any_mix_of_metrics(tmp_path: Path) -> None:
    keys = sorted({*TRL.table.values(), *VERL.table.values(), "success/all", "valid_ratio", "stop/turn_limit"})
    ours = re.compile(r"--resume|isentrope |\b(?:learn|rollout|task|agent|policy|engine|critic|eval)\.[a-z_]+")
    for seed in range(60):
        random = Random(seed)
        columns: dict[str, list[float]] = {}
        for key in random.sample(keys, random.randrange(1, len(keys))):
            a, b, noise = random.random(), random.random(), random.choice((0.0, 0.1))
            turn = random.randrange(60)
            columns[key] = [max(0.0, (a if n < turn else b) + noise * random.gauss(0, 1)) for n in range(60)]
        folder = tmp_path / str(seed)
        folder.mkdir()
        jsonl(folder / "metrics.jsonl", columns)
        (folder / "run.json").write_text('{"imported": {"names": "trl"}}')
        diagnosis = diagnose(Run.open(folder))
        assert {cause.name for cause in diagnosis.causes} <= {"cause/critic", "cause/stale_sampler"}, seed
        for finding in diagnosis.findings:
            assert not any(ours.search(remedy) for remedy in finding.remedy), finding
            assert "success" not in finding.claim or "success/all" in columns, finding


def test_a_damaged_note_of_the_origin_is_no_harm(tmp_path: Path) -> None:
    run = imported(DATA / "verl.jsonl", tmp_path / "run")
    for entry in ("x", 7, {"settings": [1], "problems": "x", "names": 3}, {"settings": {"rollout": {"groups": "x"}}}):
        about = {"kind": "train", "imported": entry}
        (run.path / "run.json").write_text(json.dumps(about))
        assert diagnose(Run.open(run.path)).words()
