"""The guides: the tutorial and the quick start run as they stand, on a small scale; the maps of keys name settings that
exist, and their examples load."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.describe import describe_settings
from isentrope.config.load import load_config
from isentrope.methods.registry import make_methods
from isentrope.worlds.dataset.options import DatasetOptions
from isentrope.worlds.household.world import HouseholdOptions
from tools.try_wheel import BLOCK, DOCS, SERVING, commands_of, install_lines

MAPS = (DOCS / "from-trl.md", DOCS / "from-verl.md")
KEY = re.compile(
    r"`((?:run|task|agent|policy|engine|rollout|learn|critic|sft|eval|instruments|method)\.[\w.]+|methods)`"
)
SMALL = {
    "*": [
        "run.device=cpu", "run.threads=1", "eval.games=4", "eval.quick_games=4", "run.eval_every=0", "task.max_turns=3",
        "run.steps=2", "rollout.groups=2", "rollout.group_size=2", "learn.mini_batches=1",
    ],
    "sft": ["sft.games=8", "sft.batch_games=8", "sft.epochs=2"],
}  # fmt: skip


def smaller(command: list[str]) -> list[str]:
    """A command of a page with fewer games and steps; what it does not read is left out."""
    name, *rest = command[1:]
    if name == "eval":
        return [name, *rest, "--games", "4"]
    changes = [*SMALL["*"], *SMALL.get(name, [])] if name in ("sft", "train") else []
    if name == "sft" and "demo" in rest:
        changes.remove("task.max_turns=3")  # the expert has to win
    return [name, *rest, *(part for change in changes for part in ("--set", change))]


def run_page(name: str, folder: Path) -> str:
    """All commands of the page but those that serve, then its Python; gives what they printed."""
    told = ""
    commands = commands_of(DOCS / f"{name}.md", folder)
    assert commands[-1] == ["python", "page.py"]
    for command in commands[:-1]:
        if command[1] in SERVING:
            continue
        result = CliRunner().invoke(app, smaller(command))
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"
        told += result.output
    exec(compile((folder / "page.py").read_text(), f"{name}.md", "exec", dont_inherit=True), {"__name__": "page"})
    return told


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


@pytest.mark.slow(12)
def test_the_tutorial_runs_to_its_end(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = run_page("tutorial", empty)
    sys.modules.pop("drawers", None)
    assert "BROKEN" not in told
    assert "1 [(" in capsys.readouterr().out
    assert (empty / "runs" / "rl" / "report.html").is_file()
    assert (empty / "mine" / "model.safetensors").is_file()


@pytest.mark.slow(12)
def test_the_quick_start_runs_to_its_end(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_page("quick-start", empty)
    assert (empty / "runs" / "first" / "report.html").is_file()
    assert "seen games success" in capsys.readouterr().out.replace("\n", " ")


def test_the_tutorials_files_are_those_beside_it(tmp_path: Path) -> None:
    commands_of(DOCS / "tutorial.md", tmp_path)
    for kept in (DOCS / "tutorial").iterdir():
        assert (tmp_path / kept.name).read_text() == kept.read_text(), kept.name


def test_torch_is_installed_first() -> None:
    first, second = install_lines(DOCS / "quick-start.md")
    assert first[0].startswith("torch==")
    assert second == ["isentrope"]


SETTINGS = {info.path: info.default.strip('"') for info in describe_settings()}


def rows_of(page: Path) -> list[list[str]]:
    """The rows of the page's tables that have theirs, ours and the difference."""
    rows = [line.strip("| ").split(" | ", 2) for line in page.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) == 3]


def exists(key: str) -> bool:
    if key.startswith("task.options."):
        known = {item.name for options in (HouseholdOptions, DatasetOptions) for item in fields(options)}
        return key.removeprefix("task.options.") in known
    if key.startswith("method."):
        config = load_config(None, [f"methods={key.split('.')[1]}"])
        return hasattr(make_methods(config)[0].options, key.split(".")[2])
    return key in SETTINGS


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.stem)
def test_every_setting_of_a_map_exists(page: Path) -> None:
    named = [(key, row[0]) for row in rows_of(page) for key in KEY.findall(f"{row[1]} {row[2]}")]
    assert len(named) > 50
    assert [(key, row) for key, row in named if not exists(key)] == []


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.stem)
def test_the_defaults_that_a_map_tells_are_ours(page: Path) -> None:
    told = [found for row in rows_of(page) for found in re.findall(r"`([\w.]+)` \(([^)]*)\)", row[1])]
    assert len(told) > 20
    different = [(key, text) for key, text in told if text.strip('"').partition(":")[0] != SETTINGS.get(key)]
    assert different == []


def test_a_setting_that_is_none_is_found_out() -> None:
    assert exists("learn.kl")
    assert not exists("learn.beta")
    assert not exists("learn.advantage.lam")
    assert not exists("method.entropy_bonus.weight")
    assert not exists("task.options.room")


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.stem)
def test_the_example_of_a_map_loads(page: Path, tmp_path: Path) -> None:
    (text,) = [text for language, text in BLOCK.findall(page.read_text()) if language == "toml"]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    config = load_config(recipe, [])
    make_methods(config)
    assert (config.rollout.groups, config.rollout.group_size) == (16, 8)
    assert (config.learn.kl, config.learn.floor, config.learn.warmup) == (0.01, 1.0, 0.0)
    assert config.learn.advantage.options["divide_by_std"] is True
