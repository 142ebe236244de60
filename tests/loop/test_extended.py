"""A run that is to have more steps: resumed with another run.steps it goes on, and everything else stays as it was."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.core.errors import RunError
from isentrope.loop.train import train
from isentrope.runs.log import read_records
from tests.builders.toy_runs import make_model, toy_config

SHORT = ("run.steps=3", "run.eval_every=0", "run.checkpoint_every=1", "run.keep_last=5", "methods=[]")
WORLD = ("--set", "task.world=tests.toys:ToyWorld")  # named again: a run folder may be somebody else's


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("extended") / "model")


@pytest.fixture(scope="module")
def finished(model: Path) -> Path:
    train(toy_config(model, *SHORT), model.parent / "run", quiet=True)
    return model.parent / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def resume(run: Path, *sets: str) -> Result:
    arguments = ["train", "--out", str(run), "--resume", *WORLD, *(word for one in sets for word in ("--set", one))]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


def steps(run: Path) -> list[int]:
    return [record["step"] for record in read_records(run / "metrics.jsonl") if record["kind"] == "train"]


def recorded(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())


def rates(run: Path) -> list[float]:
    return [record["lr"] for record in read_records(run / "metrics.jsonl") if record["kind"] == "train"]


def test_a_finished_run_goes_on_and_says_what_its_schedule_does(run: Path) -> None:
    before, first = recorded(run), (run / "metrics.jsonl").read_bytes()
    done = resume(run, "run.steps=5")
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert (
        "run.steps was 3, now 5: the learning rate follows the schedule of 5 steps from step 4 on, where it is 0.000"
        in said
    )
    assert (
        "(by the schedule of 3: 0.0002); schedules of methods, such as EPO's, count the new number of steps too" in said
    )
    assert steps(run) == [1, 2, 3, 4, 5]
    assert (run / "metrics.jsonl").read_bytes().startswith(first)  # what was measured before stays
    assert (run / "checkpoints" / "step-000005").exists()
    assert recorded(run) == before | {"run": before["run"] | {"steps": 5}}


def test_the_rate_is_that_of_the_new_schedule(run: Path, model: Path, tmp_path: Path) -> None:
    train(toy_config(model, *SHORT, "run.steps=5"), tmp_path / "five", quiet=True)
    short = rates(run)
    assert resume(run, "run.steps=5").exit_code == 0
    assert rates(run)[:3] == short
    assert rates(run)[3:] == rates(tmp_path / "five")[3:]
    assert rates(run)[3] > short[2]  # it had nearly come to its end


def test_resumed_again_it_has_the_new_number_of_steps(run: Path) -> None:
    assert resume(run, "run.steps=5").exit_code == 0
    shutil.rmtree(run / "checkpoints" / "step-000005")  # as if it had been killed in its last step
    whole = (run / "metrics.jsonl").read_bytes()
    done = resume(run)
    assert done.exit_code == 0, done.output
    assert "run.steps was" not in done.stdout  # nothing has changed since
    assert steps(run) == [1, 2, 3, 4, 5]
    assert (run / "metrics.jsonl").read_bytes() == whole
    assert recorded(run)["run"]["steps"] == 5


def test_a_finished_run_resumed_as_it_is_does_nothing(run: Path) -> None:
    assert resume(run, "run.steps=5").exit_code == 0
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "run.lock"}
    done = resume(run)
    assert done.exit_code == 0, done.output
    again = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "run.lock"}
    changed = {path.relative_to(run).parts[0] for path in files if files[path] != again.get(path)}
    assert changed <= {"tensorboard", "run.json"}  # which says when and how each start was made


def test_from_python_too(run: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="isentrope"):
        train(toy_config(model, *SHORT, "run.steps=4"), run, resume=True, quiet=True)
    assert "run.steps was 3, now 4" in caplog.text
    assert steps(run) == [1, 2, 3, 4]
    assert load_config(run / "config.toml").run.steps == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("learn.lr=0.01", "learn.lr was 0.001, now 0.01"),
        ("rollout.groups=3", "rollout.groups was 2, now 3"),
        ("run.seed=1", "run.seed was 0, now 1"),
        ("learn.loss.clip_high=0.3", "learn.loss.clip_high was 0.2, now 0.3"),
        ("learn.advantage=rloo", "learn.advantage.kind was 'grpo', now 'rloo'"),
        ("learn.kl=0", "learn.kl was 0.01, now 0.0"),
        ("eval.temperature=0", "eval.temperature was 0.4, now 0.0"),
        ("task.options.goal=4", "task.options.goal was 3, now 4"),
        ("task.sampler=tests.rollout.test_sampler:Copied", "task.sampler.kind was 'in_turn'"),
        ("task.reward=tests.rollout.test_reward:by_length", "task.reward was ''"),
        ("engine=torch", "engine.kind was 'auto', now 'torch'"),
        ("methods=aem", "methods was [], now ['aem']"),
    ],
)
def test_other_settings_are_still_refused(run: Path, change: str, told: str) -> None:
    before, written = (run / "config.toml").read_bytes(), (run / "metrics.jsonl").read_bytes()
    done = resume(run, "run.steps=5", change)
    assert done.exit_code == 2, done.output
    said = " ".join(done.stderr.replace("│", " ").split())
    assert told in said
    assert "run.steps" not in said.split("was begun with other settings", 1)[1]
    assert (run / "config.toml").read_bytes() == before  # nor is the new number of steps taken
    assert (run / "metrics.jsonl").read_bytes() == written


def test_what_is_measured_may_change_as_well(run: Path) -> None:
    changes = ("run.eval_every=1", "run.store_episodes=0", "eval.games=2", "eval.quick_games=3")
    done = resume(run, "run.steps=5", *changes)
    assert done.exit_code == 0, done.output
    evaluated = {record["step"]: record["eval/seen/games"] for record in read_records(run / "metrics.jsonl")
                 if record["kind"] == "eval"}  # fmt: skip
    assert evaluated == {0: 6, 3: 6, 4: 3, 5: 2}
    assert not (run / "episodes" / "step-000004.parquet").exists()


def test_fewer_steps_than_there_were(run: Path) -> None:
    """Nothing is taken back, and config.toml does not say what is not so."""
    written = (run / "metrics.jsonl").read_bytes()
    done = resume(run, "run.steps=2")
    assert done.exit_code == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert "has 3 of its 3 steps behind it, and run.steps is now 2. Resume it with 3 or more" in said
    assert recorded(run)["run"]["steps"] == 3
    assert (run / "metrics.jsonl").read_bytes() == written
    shutil.rmtree(run / "checkpoints" / "step-000003")
    assert resume(run, "run.steps=2").exit_code == 0
    assert recorded(run)["run"]["steps"] == 2


def test_critic_warmup_is_checked_against_the_new_number(model: Path, tmp_path: Path) -> None:
    config = toy_config(model, *SHORT, "learn.algorithm=ppo", "critic.warmup=1", "critic.kind=head")
    train(config, tmp_path / "a", quiet=True)
    done = resume(tmp_path / "a", "run.steps=1")
    assert done.exit_code == 2
    assert "critic.warmup = 1 with run.steps = 1" in " ".join(done.stderr.replace("│", " ").split())


def test_a_run_that_is_not_resumed_is_not_touched(run: Path, model: Path) -> None:
    with pytest.raises(RunError, match="already holds a run"):
        train(toy_config(model, *SHORT, "run.steps=5"), run, quiet=True)
    assert recorded(run)["run"]["steps"] == 3
