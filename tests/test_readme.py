"""Every recipe runs, and so does every command of the README and of the page on the command line, with fewer games."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.methods.registry import make_methods
from isentrope.worlds.registry import make_world
from tests.models.test_hugging_face import make_folder

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))
README = (ROOT / "README.md").read_text()
BY_WANT = (ROOT / "docs" / "command-line.md").read_text().partition("## By what you want")[2]
COMMANDS = list(dict.fromkeys(re.findall(r"`(isentrope [^`]+)`", README + BY_WANT)))
SMALL = [
    "run.steps=1", "rollout.groups=2", "rollout.group_size=2", "agent.max_response=8",
    "eval.games=2", "eval.quick_games=2", "sft.epochs=1", "learn.mini_batches=1", "run.threads=1", "run.device=cpu",
]  # fmt: skip


def call(command: str, *extra: str, text: str = "") -> str:
    result = CliRunner().invoke(app, [*shlex.split(command)[1:], *extra], input=text)
    assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"
    return result.output


def questions(file: Path) -> Path:
    rows = [{"question": f"How much is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(40)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def small(*more: str) -> list[str]:
    return [part for change in (*SMALL, *more) for part in ("--set", change)]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_sound(recipe: Path, tmp_path: Path) -> None:
    asks = recipe.stem.startswith("dataset")  # for a file of one's own
    config = load_config(recipe, [f"task.options.file={questions(tmp_path / 'train.jsonl')}"] if asks else [])
    world = make_world(config.task.world, config.task.options)
    assert set(config.eval.splits) <= set(world.splits())
    make_methods(config)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `make demo` has run, on a small scale, with the commands of the Makefile."""
    place = tmp_path_factory.mktemp("readme")
    (place / "recipes").symlink_to(ROOT / "recipes")
    (place / "docs" / "runs").mkdir(parents=True)
    smaller = {"household": "quick", "alfworld": "alfworld", "noise": "branches"}  # the large one takes long to read
    for name, study in smaller.items():
        (place / "docs" / "runs" / name).symlink_to(ROOT / "docs" / "runs" / study)
    make_folder(place / "FOLDER")
    questions(place / "train.jsonl")
    (place / "trl-output").mkdir()
    shutil.copy(ROOT / "tests" / "imports" / "data" / "trainer_state.json", place / "trl-output")
    rules = (ROOT / "Makefile").read_text().replace("\\\n", " ").replace("$(DEMO)", "runs/demo-0").replace("$$", "$")
    rules = rules.replace("$(SEED)", "0").replace("$((6 * 0))", "0")
    steps = re.findall(r"^\t\$\(BIN\)/(isentrope (?:sft|train|report) .*)$", rules, re.MULTILINE)
    assert [step.split()[1] for step in steps] == ["sft", "train", "report"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for step in steps:
            changes = {"sft": small(), "train": small("task.max_turns=2"), "report": []}[step.split()[1]]
            output = call(step, *changes)
        assert "runs/demo-0/report.html" in output.replace("\n", "")
    return place


def test_the_two_commands_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    assert re.search(r"^make demo\nmake test$", README, re.MULTILINE)


WITH_A_SERVER = [command for command in COMMANDS if " serve " in command or "URL" in command]


def test_readme_commands_with_a_server(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    serve, evaluate = sorted(WITH_A_SERVER, key=lambda command: "URL" in command)
    arguments = [sys.executable, "-m", *shlex.split(serve), "--port", "0", "--set", "run.device=cpu"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2].rstrip(",")
            output = call(evaluate.replace("URL", url), "--games", "1", *small("task.max_turns=1"))
        finally:
            process.kill()
    assert "success" in output


WATCH = [command for command in COMMANDS if " watch " in command]


@pytest.mark.parametrize("command", WATCH)
def test_readme_command_that_watches(command: str, workplace: Path) -> None:
    arguments = [sys.executable, "-m", *shlex.split(command), "--port", "0", "--no-open"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=workplace) as process:
        try:
            assert process.stdout is not None
            assert "http://127.0.0.1:" in process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in [*WITH_A_SERVER, *WATCH]])
def test_readme_command(command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    name = command.split()[1]
    if name == "train" and " dataset " in command:  # with a model that is there
        call(command, *small("policy.model=pocket", "agent.max_context=512"))
    elif name == "train":
        call(command, *small("task.max_turns=2"))
    elif name == "rft":  # long enough that some game is solved
        call(command, *small("agent.max_response=32", "sft.games=12", "sft.samples=2"))
    elif name == "eval":
        call(command, "--games", "2")
    else:
        call(command, text="look\n")
