"""Runs that an earlier version began: resumed and repeated they compute what they began with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.errors import RunError
from isentrope.loop.train import train
from tests.builders.older import in_older_words
from tests.builders.toy_runs import make_model, toy_config

SHORT = ("run.steps=4", "run.eval_every=0", "rollout.group_size=6", "learn.advantage.discount=0.95")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of mixed GiGPO in the words of an earlier version, whose last checkpoint never came."""
    folder = tmp_path_factory.mktemp("older")
    train(mixed(folder), folder / "whole", quiet=True)
    shutil.copytree(folder / "whole", folder / "cut")
    shutil.rmtree(folder / "cut" / "checkpoints" / "step-000004")
    recorded = folder / "cut" / "config.toml"
    text = in_older_words(recorded.read_text()).replace('"gigpo_mixed"', '"gigpo"')
    recorded.write_text(text.replace("\nstep_weight", "\nstep_std = false\nstep_weight"))
    return folder


def mixed(folder: Path, form: str = "gigpo_mixed") -> RunConfig:
    model = folder / "model"
    return toy_config(model if model.exists() else make_model(model), *SHORT, f"learn.algorithm={form}")


def copied(begun: Path, out: Path) -> Path:
    return Path(shutil.copytree(begun / "cut", out))


def test_it_goes_on_as_it_began(begun: Path, tmp_path: Path) -> None:
    out = copied(begun, tmp_path / "a")
    train(load_config(out / "config.toml", []), out, resume=True, quiet=True)
    assert (out / "metrics.jsonl").read_bytes() == (begun / "whole" / "metrics.jsonl").read_bytes()
    assert (out / "checkpoints" / "step-000004").exists()
    assert "step_std = false" in (out / "config.toml").read_text()  # what was recorded stays as it is


def test_it_goes_on_with_a_recipe_that_names_the_form(begun: Path, tmp_path: Path) -> None:
    out = copied(begun, tmp_path / "a")
    train(mixed(begun), out, resume=True, quiet=True)
    assert (out / "metrics.jsonl").read_bytes() == (begun / "whole" / "metrics.jsonl").read_bytes()


def test_it_does_not_become_the_published_form_halfway(begun: Path, tmp_path: Path) -> None:
    out = copied(begun, tmp_path / "a")
    with pytest.raises(RunError, match=r"learn\.advantage\.kind was 'gigpo_mixed', now 'gigpo'"):
        train(mixed(begun, "gigpo"), out, resume=True, quiet=True)


def test_the_two_forms_train_differently(begun: Path, tmp_path: Path) -> None:
    train(mixed(begun, "gigpo"), tmp_path / "a", quiet=True)
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() != (begun / "whole" / "metrics.jsonl").read_bytes()
