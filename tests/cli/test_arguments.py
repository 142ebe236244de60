"""Settings and recipes, however somebody names them on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isentrope.cli.arguments import like_settings, named_settings
from isentrope.cli.main import app


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 2, done.output
    return " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(("wrong", "answer"), [
    (("--lr", "1e-4"), "--lr 1e-4: --set learn.lr=1e-4 (or critic.lr, sft.lr)"),
    (("--lr=1e-4",), "--set learn.lr=1e-4"),
    (("-lr", "1e-4"), "--set learn.lr=1e-4"),
    (("--steps", "10"), "--steps 10: --set run.steps=10"),
    (("--seed", "3"), "--set run.seed=3"),
    (("--model", "a b"), "--set 'policy.model=a b' (or engine.model)"),
    (("--group-size", "-1"), "--set rollout.group_size=-1"),
    (("--learn.lr", "1e-4"), "--set learn.lr=1e-4"),
    (("--learn.loss", "clip"), "--set learn.loss=clip"),
    (("--method.epo.alpha", "1"), "--set method.epo.alpha=1"),
    (("--learning-rate", "1e-4"), "--set learn.lr=1e-4"),
    (("--mask-truncated",), "--set learn.mask_truncated=true"),
    (("--steps",), "--set run.steps=VALUE"),
    (("lr=1e-4",), "lr=1e-4: --set learn.lr=1e-4"),
])  # fmt: skip
def test_a_setting_without_set(wrong: tuple[str, ...], answer: str) -> None:
    told = said("train", "demo", "--out", "never", *wrong)
    assert "Settings are changed with --set:" in told
    assert answer in told


def test_several_at_once_and_in_the_place_of_the_recipe() -> None:
    told = said("train", "lr=1", "steps=2", "--out", "never")
    assert "--set learn.lr=1" in told
    assert "--set run.steps=2" in told
    assert "--set run.steps=5" in said("train", "--out", "never", "--lr", "1", "--steps", "5")


@pytest.mark.parametrize("command", [
    ("sft", "--out", "never"), ("eval",), ("serve", "pocket"), ("config",), ("play",), ("tasks",), ("check-task",),
    ("serve-task",), ("serve-openenv",), ("study", "studies/quick"),
])  # fmt: skip
def test_every_command_with_set_answers(command: tuple[str, ...]) -> None:
    assert ".lr=1" in said(*command, "--lr", "1")


def test_the_section_of_the_command_comes_first_and_a_part_has_its_own_options() -> None:
    assert "--set sft.lr=1 (or learn.lr, critic.lr)" in said("sft", "--out", "never", "--lr", "1")
    assert "--alpha 0.05: --set alpha=0.05" in said("check-method", "epo", "--alpha", "0.05")


def test_what_is_no_setting_is_said_as_before() -> None:
    assert "--resume" in said("train", "--out", "never", "--resme")
    assert "No such option: --qqqq" in said("train", "--out", "never", "--qqqq")
    assert "No such option: --lr" in said("report", "run", "--lr", "1")  # takes no settings


def test_names() -> None:
    assert named_settings("learn.loss") == ["learn.loss"]
    assert named_settings("nothing") == []
    assert like_settings("batch_size") == ["rollout.batch"]
    assert like_settings("n") == []


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings with which the training was called."""
    calls: list[Any] = []
    monkeypatch.setattr("isentrope.loop.train.train", lambda config, *_, **__: calls.append(config))
    return calls


def test_a_recipe_as_argument_or_option(trained: list[Any], tmp_path: Path) -> None:
    recipe = tmp_path / "a.toml"
    recipe.write_text("[run]\nsteps = 77\n")
    for words in ((str(recipe),), ("--recipe", str(recipe)), (f"--recipe={recipe}",)):
        assert CliRunner().invoke(app, ["train", *words, "--out", "never"]).exit_code == 0
    assert [config.run.steps for config in trained] == [77, 77, 77]


def test_a_recipe_in_the_place_of_a_model_or_a_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text('[task]\nworld = "tests.toys:ToyWorld"\n')
    done = CliRunner().invoke(app, ["play", "my.toml"], input="quit\n")
    assert "my.toml is a recipe: read as --recipe my.toml" in done.stderr
    assert "Goal: reach 3" in done.stdout
    world = CliRunner().invoke(app, ["play", "household"], input="quit\n")  # a recipe and a world: the world
    assert "is a recipe" not in world.stderr
    assert world.exit_code == 0
