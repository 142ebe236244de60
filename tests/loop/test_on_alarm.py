"""What a run does about an alarm. In the toy world nobody wins, so the alarm `no_signal` comes at step 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.core.errors import ConfigError
from isentrope.loop.train import train
from isentrope.methods.options import option_problems
from isentrope.runs.checkpoints import remove_old
from tests.builders.toy_runs import make_model, toy_config

FEW = (
    "run.steps=7", "run.eval_every=0", "eval.games=2", "run.checkpoint_every=20", "rollout.group_size=2", "methods=[]",
    "instruments.alarms=['no_signal']",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def play(model: Path, out: Path, *changes: str, resume: bool = False, quiet: bool = True) -> Path:
    train(toy_config(model, *FEW, *changes), out, resume=resume, quiet=quiet)
    return out


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(model, tmp_path_factory.mktemp("plain") / "run")


def lines(out: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text().splitlines()]


def events(out: Path) -> list[dict[str, Any]]:
    """Without warnings: nothing that the toy model says is valid, and the run says so."""
    return [event for event in lines(out, "events.jsonl") if event["kind"] != "warning"]


def steps_with(out: Path, key: str) -> list[int]:
    return [line["step"] for line in lines(out) if key in line and line["kind"] == "train"]


def test_an_alarm_is_recorded(plain: Path) -> None:
    (alarm,) = events(plain)
    assert (alarm["step"], alarm["kind"], alarm["name"]) == (5, "alarm", "no_signal")
    assert alarm["text"].endswith(".")
    assert alarm["remedy"]
    assert steps_with(plain, "alarm/no_signal") == [5]
    assert steps_with(plain, "phase") == list(range(1, 8))


def test_pause_and_resume_equals_no_pause(
    model: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=pause", quiet=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "step 5: ALARM no_signal: " in said
    assert "paused after step 5" in said
    assert f"isentrope train --out {out} --resume" in said
    assert [path.name for path in (out / "checkpoints").glob("step-*")] == ["step-000005"]
    assert lines(out)[-1]["step"] == 5
    pause = {"step": 5, "kind": "pause", "name": "pause", "remedy": ""}
    pause["text"] = "The run was paused after step 5, because of the alarm no_signal."
    assert events(out)[1:] == [pause]
    told = CliRunner().invoke(app, ["doctor", str(out)]).output
    assert pause["text"] in " ".join(told.split())
    play(model, out, "instruments.on_alarm=pause", resume=True)
    assert lines(out) == lines(plain)
    assert [event for event in lines(out, "events.jsonl") if event != pause] == lines(plain, "events.jsonl")


def test_at_the_last_step_there_is_nothing_to_pause(model: Path, tmp_path: Path) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=pause", "run.steps=5")
    assert [event["kind"] for event in events(out)] == ["alarm", "checkpoint"]


def test_a_paused_run_may_go_on_with_another_answer(model: Path, tmp_path: Path) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=pause", "run.steps=12")
    play(model, out, "instruments.on_alarm=switch:epo", "run.steps=12", resume=True)
    assert lines(out)[-1]["step"] == 12


def test_checkpoint(model: Path, plain: Path, tmp_path: Path) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=checkpoint", "run.checkpoint_every=1", "run.keep_last=1")
    kept = sorted(path.name for path in (out / "checkpoints").glob("step-*"))
    assert "step-000005" in kept  # although only one is kept besides the best
    assert "step-000004" not in kept
    assert lines(out) == lines(plain)
    assert lines(out, "events.jsonl")[-1]["text"] == (
        "The checkpoint of step 5 is kept, because of the alarm no_signal."
    )
    (out / "checkpoints" / "step-000005" / "alarm").unlink()
    remove_old(out / "checkpoints", 1)
    assert not (out / "checkpoints" / "step-000005").exists()


def test_switch(model: Path, plain: Path, tmp_path: Path) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=switch:epo", "method.epo.coefficient=0.5")
    assert [(event["step"], event["kind"], event["name"]) for event in events(out)[1:]] == [(5, "switch", "epo")]
    assert steps_with(out, "epo/coefficient") == [6, 7]
    assert lines(out)[6]["epo/coefficient"] == 0.5
    assert lines(out)[:6] == lines(plain)[:6]
    assert lines(out)[7] != lines(plain)[7]
    recorded = (out / "config.toml").read_text()
    assert "[method.epo]" in recorded
    assert load_config(out / "config.toml").method["epo"]["coefficient"] == 0.5


def test_alarms_that_are_not_named_do_nothing(model: Path, plain: Path, tmp_path: Path) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=switch:epo", "instruments.alarms=['eruption']")
    assert lines(out) == lines(plain)


def test_a_checkpoint_from_before_there_were_instruments(model: Path, plain: Path, tmp_path: Path) -> None:
    out = play(model, tmp_path / "run", "instruments.on_alarm=pause")
    path = out / "checkpoints" / "step-000005" / "state.json"
    record = json.loads(path.read_text())
    record["tree"]["dict"] = [pair for pair in record["tree"]["dict"] if pair[0] != "instruments"]
    path.write_text(json.dumps(record))
    path.with_name("sha256.json").unlink()
    play(model, out, resume=True)
    young = ("drift/", "alarm/", "degeneracy/length_drift", "probe/")

    def older(line: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in line.items() if not key.startswith(young)}

    assert [older(line) for line in lines(out)] == [older(line) for line in lines(plain)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["instruments.on_alarm=switch:actre"], "changes the form of a response"),
        (["instruments.on_alarm=switch:no_think"], "changes the form of a response"),
        (["instruments.on_alarm=switch:eop"], "did you mean epo"),
        (["instruments.on_alarm=switch:epo", "methods=epo"], "on from the start"),
        (["instruments.on_alarm=stop"], "expected nothing, checkpoint, pause or switch:"),
        (["instruments.on_alarm=switch:epo", "method.epo.alpha=-1"], "method.epo.alpha"),
        (["method.epo.alpha=1"], "not in `methods`"),
        (["instruments.alarms=['fire']"], "instruments.alarms"),
    ],
)
def test_what_cannot_be_is_refused_before_the_run(changes: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_config(None, changes, also=option_problems)


def test_another_answer_drops_the_table_of_the_method_before(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[instruments]\non_alarm = "switch:epo"\n\n[method.epo]\nalpha = 0.5\n')
    assert load_config(recipe, ["instruments.on_alarm=nothing"]).method == {}
    assert load_config(recipe, ["methods=aem"]).method == {"epo": {"alpha": 0.5}}
