"""Settings of methods and worlds: all faults at once, contradictions refused, every option written down."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.config.text import config_to_toml
from isentrope.core.errors import ConfigError
from isentrope.methods.options import option_problems, with_options
from isentrope.methods.registry import METHODS, make_methods
from isentrope.runs.writer import RunFolder, differences
from isentrope.worlds.household.world import HouseholdOptions


def refusal(*changes: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(None, changes, option_problems)
    return str(refused.value)


def test_everything_wrong_is_told_at_once() -> None:
    text = refusal(
        "methods=epo,aem,foo,actre", "method.epo.alpha=-1", "method.epo.beta=2", "method.aem.strength=x",
        "method.actre.variant=none", "agent.order=act", "learn.lr=0", "task.options.rooms=huge",
    )  # fmt: skip
    assert text.startswith("7 problems")
    for key in ("epo.alpha", "epo.beta", "aem.strength", "'foo'", "actre.variant", "learn.lr", "options.rooms"):
        assert key in text
    # without the faults of others the same method objects to the order
    assert 'agent.order = "act" with methods = ["actre"]' in refusal("methods=actre", "agent.order=act")


def test_making_methods_tells_everything_too() -> None:
    config = load_config(None, ["methods=epo,foo,aem", "method.epo.alpha=-1", "method.aem.strength=x"])
    with pytest.raises(ConfigError) as refused:
        make_methods(config)
    assert all(part in str(refused.value) for part in ("method.epo.alpha", "'foo'", "method.aem.strength"))


@pytest.mark.parametrize(
    "change", ["methods=3", "method=3", "run=3", "agent=x", "task=1", "run.steps=x", "methods=[3]"]
)
def test_tables_of_another_shape_are_the_schemas_to_refuse(change: str) -> None:
    changes = ["methods=epo", change] if not change.startswith("methods") else [change]
    assert "Traceback" not in refusal(*changes)


def test_leaving_out_by_weights_that_are_all_equal() -> None:
    text = refusal("methods=aem", "method.aem.strength=0", "method.aem.leave_out=falling")
    assert "method.aem.strength = 0" in text
    assert "none would be left out" in text
    for fine in (["method.aem.strength=0"], ["method.aem.leave_out=rising"]):
        assert make_methods(load_config(None, ["methods=aem", *fine], option_problems))


@pytest.mark.parametrize("switch", ["200", "100", "100.5"])
def test_a_switch_that_never_comes(switch: str) -> None:
    text = refusal("methods=actre", f"method.actre.switch={switch}")
    assert "with run.steps = 100: stage 2 would never begin" in text
    longer = ["methods=actre", f"method.actre.switch={switch}"]
    assert make_methods(load_config(None, [*longer, "run.steps=300"], option_problems))
    assert make_methods(load_config(None, [*longer, "method.actre.variant=no_stage1"], option_problems))


def test_every_option_is_written_out() -> None:
    config = with_options(load_config(None, [f"methods={','.join(set(METHODS) - {'no_think'})}", "method.epo.alpha=1"]))
    for name, kind in METHODS.items():
        assert set(config.method.get(name, {})) == {item.name for item in fields(kind.options_class)}, name
    assert config.method["epo"]["alpha"] == 1.0
    assert set(config.task.options) == {item.name for item in fields(HouseholdOptions)}
    assert with_options(config) == config
    assert with_options(RunConfig()).method == {}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    config = with_options(load_config(None, ["methods=epo,seal", "task.options.rooms=small"]))
    (tmp_path / "a.toml").write_text(config_to_toml(config))
    again = load_config(tmp_path / "a.toml", (), option_problems)
    assert with_options(again) == config
    assert load_config(tmp_path / "a.toml", ["methods=[]"], option_problems).method == {}


def test_a_world_that_cannot_be_loaded_keeps_its_options() -> None:
    config = load_config(None, ["task.world=no_such_package:World", "task.options.products=3"], option_problems)
    assert with_options(config).task.options == {"products": 3}


def test_a_run_records_every_option_and_an_older_one_goes_on(tmp_path: Path) -> None:
    config = load_config(None, ["methods=epo"])
    with RunFolder(tmp_path, config, resume=False, complete=with_options):
        written = (tmp_path / "config.toml").read_text()
    assert "[method.epo]" in written
    assert "kappa_high = 2.0" in written
    assert 'rooms = "full"' in written
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "kind": "eval"}\n')
    (tmp_path / "config.toml").write_text(config_to_toml(config))  # as earlier versions wrote it
    assert "[method.epo]" not in (tmp_path / "config.toml").read_text()
    same = load_config(None, ["methods=epo", "method.epo.alpha=0.1"])
    with RunFolder(tmp_path, same, resume=True, complete=with_options):
        pass
    other = with_options(load_config(None, ["methods=epo", "method.epo.alpha=0.2"]))
    assert differences(with_options(config), other) == ["method.epo.alpha was 0.1, now 0.2"]
