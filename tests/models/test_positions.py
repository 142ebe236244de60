"""Conversations longer than a model has positions: refused where they come from a table, a warning where not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.config.schema import LearnSettings, PolicySettings, RunSettings
from isentrope.core.errors import ConfigError
from isentrope.loop.evaluate import Exam, evaluate_model
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.models.load import load_policy
from isentrope.models.sources.catalogue import read_facts
from tests.builders.toy_runs import toy_config
from tests.models.families import make_folder

transformers: Any = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It has a table of 64 positions."""
    folder = make_folder(tmp_path_factory.mktemp("gpt2"), "smollm2")
    config = transformers.GPT2Config(vocab_size=600, n_positions=64, n_embd=16, n_layer=1, n_head=2)
    torch.manual_seed(0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_a_table_of_positions_is_seen_in_the_weights(gpt2: Path) -> None:
    facts = read_facts(gpt2)
    assert (facts.context, facts.learned_positions) == (64, True)


def test_there_is_nothing_beyond_the_table(gpt2: Path) -> None:
    settings, run = PolicySettings(model=str(gpt2)), RunSettings(device="cpu")
    load_policy(settings, run, max_context=64)
    with pytest.raises(ConfigError, match=r"agent.max_context = 65, .* has 64 positions"):
        load_policy(settings, run, max_context=65)
    with pytest.raises(ConfigError, match=r"agent.max_context = 65"):
        load_policy(settings, run, LearnSettings(), max_context=65, checkpoint=gpt2)


def test_every_command_looks(gpt2: Path, tmp_path: Path) -> None:
    config = toy_config(gpt2)
    for command in (
        lambda: train(config, tmp_path / "a", quiet=True),
        lambda: warm_up(config, tmp_path / "b", quiet=True),
        lambda: evaluate_model(config, str(gpt2), Exam(), quiet=True),
    ):
        with pytest.raises(ConfigError, match=r"agent.max_context = 400, .* has 64 positions"):
            command()


def test_rotary_positions_go_on_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    settings, run = PolicySettings(model="pocket"), RunSettings(device="cpu")
    load_policy(settings, run, max_context=4096)
    assert capsys.readouterr().err == ""
    load_policy(settings, run, max_context=5000)
    assert "WARNING: agent.max_context = 5000, and pocket was made for 4096 tokens" in capsys.readouterr().err
