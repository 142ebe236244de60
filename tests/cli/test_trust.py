"""Run folders of somebody else: code that only their settings name is not imported, unless the user says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.config.load import read_recipe
from isentrope.config.parts import code_names
from isentrope.config.text import table_to_toml
from isentrope.loop.train import train
from isentrope.net.server import Server
from tests.builders.toy_runs import make_model, toy_config

ROOT = Path(__file__).parents[2]
WORLD = "task.world=household"
# A module that tells when it is imported, and has every part, so that nothing else stops what may run it.
PAYLOAD = """
from pathlib import Path
Path({mark!r}).write_text(__name__)
from isentrope import Advantage, Estimate, Loss, Method, TaskSampler
from isentrope.engines.torch import TorchEngine
from tests.toys import ToyWorld


class World(ToyWorld): ...


class Mine(Method):
    name = "mine"


class Engine(TorchEngine):
    def __init__(self, policy, config, options):
        super().__init__(policy)


class Mean(Advantage):
    name = "mean"

    def estimate(self, outcomes):
        return Estimate(outcomes.per_token((outcomes.return_E - outcomes.return_E.mean())[outcomes.episode_U]))


class Plain(Loss):
    name = "plain"

    def per_token(self, batch, stats):
        return -batch.advantage_N * stats.logp_N


class First(TaskSampler):
    name = "first"

    def pick(self, size, count, step, attempt):
        return range(count)


def reward(episode):
    return 1.0
"""
# setting -> what stands in config.toml, and what the user says with --set to allow it
PARTS = {
    "task.world": ("task.world", "{module}:World"),
    "methods": ("methods", "{module}:Mine"),
    "engine.kind": ("engine.kind", "{module}:Engine"),
    "learn.advantage.kind": ("learn.advantage.kind", "{module}:Mean"),
    "learn.loss.kind": ("learn.loss.kind", "{module}:Plain"),
    "task.sampler.kind": ("task.sampler.kind", "{module}:First"),
    "task.reward": ("task.reward", "{module}:reward"),
    "instruments.on_alarm": ("instruments.on_alarm", "switch:{module}:Mine"),
}
COMMANDS = ("eval", "train", "serve")
NUMBERS = count()


class Place:
    """A run folder whose settings name a part in a module that lies in the run folder and in the current one."""

    def __init__(self, folder: Path, finished: Path, setting: str) -> None:
        self.setting, self.value = PARTS[setting]
        self.module = f"payload_{next(NUMBERS)}"  # no two tests have the same: a module is imported once
        self.value = self.value.format(module=self.module)
        learns = setting in ("learn.advantage.kind", "learn.loss.kind", "instruments.on_alarm")
        self.user = "train" if learns else "eval"  # a command that needs the part
        self.here, self.run, self.mark = folder / "here", folder / "run", folder / "imported"
        self.here.mkdir()
        shutil.copytree(finished, self.run)
        for place in (self.here, self.run):
            (place / f"{self.module}.py").write_text(PAYLOAD.format(mark=str(self.mark)))
        table = tomllib.loads((self.run / "config.toml").read_text())
        inner = table
        for part in self.setting.split(".")[:-1]:
            inner = inner[part]
        inner[self.setting.split(".")[-1]] = [self.value] if self.setting == "methods" else self.value
        if self.setting in ("engine.kind", "learn.advantage.kind", "learn.loss.kind"):  # its options were another's
            for key in [key for key in inner if key != "kind"]:
                del inner[key]
        if self.setting == "task.world":
            table["task"]["options"] = {}
        (self.run / "config.toml").write_text(table_to_toml(table))

    def arguments(self, command: str) -> list[str]:
        return {
            "eval": ["eval", str(self.run), "--games", "1"],
            "train": ["train", "--resume", "--out", str(self.run), "--set", "run.steps=2"],
            "serve": ["serve", str(self.run), "--port", "0"],
            "export": ["export", str(self.run), "--out", str(self.run.parent / "model")],
        }[command]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step, in a world of ours."""
    folder = tmp_path_factory.mktemp("trust")
    config = toy_config(
        make_model(folder / "model"), WORLD, "task.options.rooms=small", "run.steps=1", "methods=[]", "eval.games=2",
        "eval.quick_games=2", "eval.splits=['seen']", "run.eval_every=0", "rollout.groups=1", "learn.mini_batches=1",
        "agent.max_context=1500",
    )  # fmt: skip
    train(config, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture
def place(request: pytest.FixtureRequest, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path, finished, request.param)
    monkeypatch.chdir(made.here)
    monkeypatch.setattr(Server, "run_until_interrupted", lambda *_: None)  # where a server is not refused it ends
    monkeypatch.setattr(sys, "path", list(sys.path))  # a module of the current folder may be allowed in the end
    return made


every_part = pytest.mark.parametrize("place", PARTS, indirect=True)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300", "NO_COLOR": "1"})


def words(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


# -- refused


@every_part
@pytest.mark.parametrize("command", COMMANDS)
def test_code_that_only_the_run_names_is_not_imported(place: Place, command: str) -> None:
    before = (place.run / "config.toml").read_bytes()
    done = invoke(*place.arguments(command))
    assert done.exit_code == 2, done.output
    told = words(done.stderr)
    assert f"{place.setting} = '{place.value.removeprefix('switch:')}' would import {place.module}" in told
    assert "--trust" in told
    assert not place.mark.exists()
    assert place.module not in sys.modules
    assert (place.run / "config.toml").read_bytes() == before


@every_part
def test_an_export_needs_none_of_it(place: Place) -> None:
    """The weights and a card: the settings are copied as text."""
    done = invoke(*place.arguments("export"))
    assert done.exit_code == 0, done.output
    assert place.value in (place.run.parent / "model" / "README.md").read_text()
    assert not place.mark.exists()
    assert place.module not in sys.modules


@every_part
@pytest.mark.parametrize("command", ["report", "doctor"])
def test_reading_a_run_needs_none_of_it(place: Place, command: str) -> None:
    done = invoke(command, str(place.run))
    assert done.exit_code == 0, done.output
    assert not place.mark.exists()
    assert place.module not in sys.modules


@pytest.mark.parametrize("place", ["learn.loss.kind"], indirect=True)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_name_is_told_at_once(place: Place, command: str) -> None:
    table = tomllib.loads((place.run / "config.toml").read_text())
    table["methods"] = ["other_payload.inner:Mine", "epo"]
    (place.run / "config.toml").write_text(table_to_toml(table))
    told = words(invoke(*place.arguments(command)).stderr)
    assert f"would import {place.module}" in told
    assert "would import other_payload.inner" in told


@pytest.mark.parametrize("place", ["learn.advantage.kind"], indirect=True)
@pytest.mark.parametrize("form", ["text", "table"])
def test_older_and_shorter_forms_are_seen_too(place: Place, form: str) -> None:
    """`learn.advantage = "module:Class"` says the kind alone."""
    table = tomllib.loads((place.run / "config.toml").read_text())
    table["learn"]["advantage"] = place.value if form == "text" else {"kind": place.value}
    (place.run / "config.toml").write_text(table_to_toml(table))
    for command in COMMANDS:
        done = invoke(*place.arguments(command))
        assert done.exit_code == 2
        assert f"would import {place.module}" in words(done.stderr)
    assert not place.mark.exists()


@pytest.mark.parametrize("place", ["task.world"], indirect=True)
def test_naming_another_does_not_allow_it(place: Place) -> None:
    for change in ("task.world=tests.toys:ToyWorld", "methods=tests.toys:ToyWorld", "run.seed=1"):
        done = invoke(*place.arguments("eval"), "--set", change)
        assert done.exit_code == 2
    assert not place.mark.exists()


@pytest.mark.parametrize("place", ["task.reward"], indirect=True)
def test_a_recipe_of_ones_own_does_not_allow_what_the_run_names(place: Place) -> None:
    """The run is begun again with the recipe's settings; those that were recorded are compared, not imported."""
    recipe = place.here / "mine.toml"
    table = tomllib.loads((place.run / "config.toml").read_text())
    table["task"]["reward"] = ""
    recipe.write_text(table_to_toml(table))
    done = invoke("train", str(recipe), "--resume", "--out", str(place.run))
    assert done.exit_code == 2
    assert f"would import {place.module}" in words(done.stderr)
    assert not place.mark.exists()


# -- allowed


@every_part
def test_trust_allows_it(place: Place) -> None:
    done = invoke(*place.arguments(place.user), "--trust")
    assert done.exit_code == 0, done.output
    assert place.mark.read_text() == place.module


@every_part
def test_so_does_naming_it_again(place: Place) -> None:
    done = invoke(*place.arguments(place.user), "--set", f"{place.setting}={place.value}")
    assert done.exit_code == 0, done.output
    assert place.mark.read_text() == place.module


@every_part
def test_what_the_message_says_to_type_works(place: Place) -> None:
    told = words(invoke(*place.arguments(place.user)).stderr)
    again = re.search(r"--set (\S+?)[;)]", told)
    assert again is not None, told
    done = invoke(*place.arguments(place.user), "--set", again[1])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("place", ["task.reward"], indirect=True)
def test_a_recipe_that_the_user_names_is_the_users(place: Place) -> None:
    recipe = place.here / "mine.toml"
    recipe.write_text((place.run / "config.toml").read_text())
    done = invoke("train", str(recipe), "--resume", "--out", str(place.run), "--set", "run.steps=2")
    assert done.exit_code == 0, done.output
    assert place.mark.exists()


# -- the current folder


def run_python(code: str, here: Path) -> subprocess.CompletedProcess[str]:
    """As the command does it: the current folder is not on the path to begin with."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], cwd=here, env=environment, capture_output=True, text=True)


COMMAND = "import sys; sys.argv = ['isentrope', *{arguments!r}]; from isentrope.cli.main import main; main()"


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", ["wandb", "scipy", "numpy"])
def test_no_file_of_the_current_folder_stands_in_for_a_library(finished: Path, tmp_path: Path, name: str) -> None:
    here, mark = tmp_path / "here", tmp_path / "imported"
    here.mkdir()
    (here / f"{name}.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).write_text('here')\n")
    done = run_python(COMMAND.format(arguments=["eval", str(finished), "--games", "1"]), here)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


@pytest.mark.slow(4)
def test_a_tracker_is_not_taken_from_the_current_folder(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    here, mark = tmp_path / "here", tmp_path / "imported"
    here.mkdir()
    (here / "wandb.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).write_text('here')\n")
    arguments = ["train", "--resume", "--out", str(run), "--set", "run.steps=2", "--set", "run.track=wandb"]
    done = run_python(COMMAND.format(arguments=arguments), here)
    assert not mark.exists(), done.stderr


def test_a_module_of_ones_own_is_found_in_the_current_folder_and_comes_last(tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text("def mine(episode): return 1.0\n")
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    code = "from isentrope.config.parts import load_object as f; print(f('my_reward:mine').__name__, f('json:loads'))"
    done = run_python(code, tmp_path)
    assert done.stdout.startswith("mine <function loads"), done.stderr


def test_a_run_of_ours_names_no_code(finished: Path) -> None:
    assert code_names(read_recipe(finished / "config.toml")) == []


# -- what a world's options name, and servers


OTHERS = {
    "task.options.module": ("gym", {"module": "payload"}, "would import payload"),
    "task.options.env": ("verifiers", {"env": "payload"}, "would import payload"),
    "task.options.image": ("code_repair", {"image": "evil/image"}, "would start evil/image"),
}


def with_task(run: Path, **task: object) -> None:
    table = tomllib.loads((run / "config.toml").read_text())
    table["task"] |= task
    (run / "config.toml").write_text(table_to_toml(table))


@pytest.mark.parametrize("setting", OTHERS)
@pytest.mark.parametrize("command", ["eval", "train", "serve"])
def test_modules_and_images_that_only_the_run_names_are_refused(
    finished: Path, tmp_path: Path, setting: str, command: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    world, options, told = OTHERS[setting]
    with_task(run, world=world, options=options)
    words_of = {
        "train": ["train", "--resume", "--out", str(run)],
        "eval": ["eval", str(run)],
        "serve": ["serve", str(run)],
    }
    done = invoke(*words_of[command])
    assert done.exit_code == 2, done.output
    assert told in words(done.stderr)
    assert "--trust" in words(done.stderr)


SERVERS = {
    "task.where": {"where": "https://evil.example/tasks"},
    "task.key_env": {"key_env": "AWS_SECRET_ACCESS_KEY"},
    "task.options.url": {"world": "openenv", "options": {"url": "https://evil.example"}},
    "task.options.retriever": {"world": "search_qa", "options": {"retriever": "http://10.0.0.1:8300"}},
}


@pytest.mark.parametrize("setting", SERVERS)
def test_a_resumed_run_sends_nothing_to_servers_that_only_it_names(
    finished: Path, tmp_path: Path, setting: str
) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    with_task(run, **SERVERS[setting])
    done = invoke("train", "--resume", "--out", str(run), "--set", "run.steps=2")
    assert done.exit_code == 2, done.output
    assert f"{setting} = " in words(done.stderr)
    again = re.search(r"\(--set '?([^\s')]+)", words(done.stderr))
    assert again is not None
    allowed = invoke("train", "--resume", "--out", str(run), "--set", "run.steps=2", "--set", again[1])
    assert "nothing is sent there unless" not in words(allowed.stderr)


@every_part
def test_config_describes_it_without_importing(place: Place) -> None:
    for form in ((), ("--toml",)):
        done = invoke("config", str(place.run / "config.toml"), *form)
        assert done.exit_code == 0, done.output
        assert place.value in done.stdout.replace("\n", "")
        assert f"not imported: {place.value.removeprefix('switch:')}" in done.stderr
    assert not place.mark.exists()
    assert place.module not in sys.modules
