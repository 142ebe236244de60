"""Settings that follow the model: what auto comes to, that runs record it, and that the page says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isentrope.config.load import config_from_table, config_to_toml, load_config
from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.core.errors import ConfigError
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.models import auto
from isentrope.models.auto import RATES, autos, follow_model, plain_defaults, rates
from isentrope.models.load import load_policy
from isentrope.runs.folder import read_config
from tests.builders.toy_runs import make_model, toy_config

NAMES = ["agent.prompt", "agent.max_response", "agent.max_context", "learn.lr", "sft.lr"]


def chosen(*changes: str) -> list[object]:
    config = follow_model(load_config(None, changes))
    assert not autos(config)
    found = (config.agent.prompt, config.agent.max_response, config.agent.max_context, config.learn.lr, config.sft.lr)
    return [value.plain() if isinstance(value, auto.Auto) else value for value in found]


def test_the_defaults_follow_the_model() -> None:
    assert autos(RunConfig()) == NAMES
    assert chosen() == chosen("policy.model=new") == ["brief", 32, 1536, 1e-4, 1e-3]
    assert chosen("agent.prompt=full", "learn.lr=7", "agent.max_response=9") == ["full", 9, 1536, 7.0, 1e-3]
    assert chosen("learn.lr=auto", "sft.lr='auto'") == chosen()


def test_a_language_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path / "model")
    model = f"policy.model={folder}"
    assert chosen(model)[0] == "brief"  # the pocket model's tokens under another name
    (folder / "pocket_tokens.json").unlink()
    assert chosen(model) == ["full", 512, 4096, 1e-4, 1e-3]
    facts = auto.read_facts(folder)
    for context, told in ((100, [50, 100]), (100_000, [512, 4096]), (0, [512, 4096])):
        changed = facts.__class__(**{**vars(facts), "context": context, "parameters": 135_000_000})
        monkeypatch.setattr(auto, "read_facts", lambda _, found=changed: found)
        assert chosen(model) == ["full", *told, 3e-5, 1e-4]


def test_what_is_said_beside_auto_must_fit_it() -> None:
    with pytest.raises(ConfigError, match=r"agent\.max_response = 2000 must be less than agent\.max_context = 1536"):
        follow_model(load_config(None, ["agent.max_response=2000"]))


def test_a_new_model_is_as_large_as_it_will_be() -> None:
    for change in ("policy.layers=1", "policy.width=64"):
        config = load_config(None, ["policy.model=new", change, "run.device=cpu"])
        made = load_policy(config.policy, config.run).size
        assert auto.size_of(config).parameters == pytest.approx(made, rel=0.02)


@pytest.mark.parametrize(
    ("parameters", "all_weights", "adapters"),
    [
        (859_000, (1e-4, 1e-3), (3e-4, 1e-3)),
        (135_000_000, (3e-5, 1e-4), (3e-4, 1e-3)),
        (630_000_000, (2e-6, 2e-5), (2e-5, 2e-4)),
        (1_540_000_000, (1e-6, 1e-5), (1e-5, 1e-4)),
        (8_000_000_000, (1e-6, 1e-5), (1e-5, 1e-4)),
    ],
)
def test_rates_by_size(parameters: int, all_weights: tuple[float, float], adapters: tuple[float, float]) -> None:
    assert rates(parameters) == all_weights
    assert rates(parameters, adapters=True) == pytest.approx(adapters)


def test_the_page_has_the_same_rates() -> None:
    page = (Path(__file__).parents[2] / "docs" / "training-models.md").read_text()
    found = re.findall(r"^\| (?:up to|more)[^|]*\| (\S+) \| (\S+) \|", page, re.MULTILINE)
    assert [(float(learn), float(sft)) for learn, sft in found] == [(row.learn, row.sft) for row in RATES]


def test_auto_survives_a_file_and_a_table(tmp_path: Path) -> None:
    config = RunConfig()
    (tmp_path / "c.toml").write_text(config_to_toml(config))
    assert 'lr = "auto"' in config_to_toml(config)
    for again in (load_config(tmp_path / "c.toml"), config_from_table(as_table(config))):
        assert autos(again) == NAMES
    assert autos(plain_defaults(config)) == []
    assert plain_defaults(config) == config  # what older versions had
    with pytest.raises(ConfigError, match="expected a number above 0, or auto"):
        load_config(None, ["learn.lr=fast"])


@pytest.mark.parametrize("run", [train, warm_up])
def test_a_run_records_what_auto_came_to_and_goes_on_with_it(
    run: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(run)
    model = make_model(tmp_path / "model")
    rate = "learn.lr" if run is train else "sft.lr"
    changes = ["learn.lr=auto", "sft.lr=auto", "agent.prompt=auto", "run.steps=1", "run.eval_every=0", "sft.epochs=1"]
    config = toy_config(model, *changes, "sft.games=2", "eval.games=1", "eval.quick_games=1")
    run(config, tmp_path / "a")
    said, recorded = capsys.readouterr().out, read_config(tmp_path / "a")[1]
    came_to = dict(zip(NAMES[3:], RATES[0][1:3], strict=True))
    assert f"auto, for this model: agent.prompt = brief, {rate} = {came_to[rate]}" in said
    assert (recorded["learn"]["lr"], recorded["sft"]["lr"]) == RATES[0][1:3]
    assert recorded["agent"]["prompt"] == "brief"
    monkeypatch.setattr(auto, "RATES", (RATES[0]._replace(up_to=1e30, learn=0.5, sft=0.5),))
    (model / "config.json").unlink()  # the run has a copy of its own
    run(config, tmp_path / "a", resume=True)
    assert "is finished" in capsys.readouterr().out
