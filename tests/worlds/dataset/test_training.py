"""Training on a file of questions: what is recorded, what ends a run, what a recorded run may import; and the page."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Sampled
from isentrope.core.errors import ConfigError, TaskError
from isentrope.core.types import RolloutPlan
from isentrope.loop.settings import recipe_or_recorded, recipe_or_run
from isentrope.loop.train import train
from isentrope.metrics.episodes import eval_metrics, rollout_metrics
from isentrope.metrics.glossary import sentence
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout.episode import Rules
from isentrope.runs.episodes import pack_episodes, read_episodes, unpack_episodes
from isentrope.runs.layout import train_path
from isentrope.runs.log import read_records
from tests.builders.episodes import episode
from tests.builders.toy_runs import WARM_MODEL, toy_config

MOVES = Path(__file__).with_name("moves.jsonl")
PAGE = Path(__file__).parents[3] / "docs" / "tasks" / "dataset.md"
HERE = "tests.worlds.dataset.rewards"


def config_of(*changes: str, rewards: str = f"['exact', '{HERE}:short']") -> RunConfig:
    return toy_config(
        WARM_MODEL, "task.world=dataset", f"task.options.file={MOVES}", f"task.options.rewards={rewards}",
        "task.max_turns=1", "task.where=local", "agent.order=act", "task.success_reward=1.0", "eval.splits=['test']",
        "run.steps=2", "run.eval_every=0", "methods=[]", *changes,
    )  # fmt: skip


@pytest.mark.slow(4)
def test_rewards_are_recorded_apart(tmp_path: Path) -> None:
    train(config_of("task.options.kind=kind"), tmp_path / "run", quiet=True)
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    steps = [record for record in records if record["kind"] == "train"]
    last = [record for record in records if record["kind"] == "eval"][-1]
    assert {"reward/exact", "reward/short"} <= set(steps[0])
    assert {"success/one", "success/two"} & set(steps[0])
    assert {"eval/test/reward/exact", "eval/test/reward/short"} <= set(last)
    assert sentence("reward/short").startswith("Mean of what the reward function short gave")
    stored = read_episodes(train_path(tmp_path / "run", 1))
    answered = [one for one in stored if one.turns[0].valid]
    assert answered
    for one in answered:
        assert set(one.rewards) == {"exact", "short"}
        assert one.turns[0].reward == pytest.approx((one.rewards["exact"] + one.rewards["short"]) / 2)
        assert one.success == (one.rewards["exact"] == 1)


@pytest.mark.slow(3)
def test_a_plain_response_and_one_that_is_cut_off(tmp_path: Path) -> None:
    train(config_of("agent.order=plain", "run.steps=1"), tmp_path / "run", quiet=True)
    for one in read_episodes(train_path(tmp_path / "run", 1)):
        (turn,) = one.turns
        assert turn.stop in ("eos", "length")
        assert (turn.verdict == "too_long") == (turn.stop == "length")
        if turn.verdict == "ok":
            assert turn.action_span is not None


def test_the_token_that_ends_a_plain_response_is_no_part_of_it() -> None:
    tokens, config = PocketTokens.load(WARM_MODEL), config_of("agent.order=plain")
    rules = Rules(tokens, config.agent, config.task, RolloutPlan("plain"), 0, "x")
    (end,) = tokens.eos_ids
    ids = np.array([*tokens.content("add one"), end], dtype=np.int32)
    numbers = np.zeros(len(ids), dtype=np.float32)
    read = rules.read(Sampled(ids, numbers, numbers, numbers, "eos"))
    assert (read.action, read.verdict, read.action_span) == ("add one", "ok", (0, len(ids) - 1))


def test_rewards_are_stored_and_read_back_and_nothing_else_is() -> None:
    told = [episode(rewards={"exact": 1.0, "mine": -0.25}), episode()]
    assert unpack_episodes(pack_episodes(told), "here") == told
    assert rollout_metrics(told)["reward/mine"] == -0.25
    assert eval_metrics("test", told)["eval/test/reward/exact"] == 1.0


@pytest.mark.slow(3)
def test_a_function_that_fails_now_and_then_costs_those_episodes(tmp_path: Path) -> None:
    changes = ("run.steps=1", "task.options.test_share=0.5", "rollout.groups=6", "rollout.temperature=0.01")
    train(config_of(*changes, rewards=f"['{HERE}:raises_if_wrong']"), tmp_path / "run", quiet=True)
    played = read_episodes(train_path(tmp_path / "run", 1))
    broken = [one for one in played if not one.success]
    assert 0 < len(broken) < len(played)
    assert {one.stop for one in broken} == {"task_error"}
    (step,) = [one for one in read_records(tmp_path / "run" / "metrics.jsonl") if one["kind"] == "train"]
    assert step["failures/task_error"] == len(broken)


@pytest.mark.slow(3)
def test_a_function_that_always_fails_ends_the_run_in_words(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"all . episodes failed.*rewards:raises raised RuntimeError: no idea"):
        train(config_of("rollout.temperature=0.01", rewards=f"['{HERE}:raises']"), tmp_path / "all", quiet=True)


RECORDED = """
[task]
world = "dataset"
[task.options]
file = "moves.jsonl"
rewards = ["exact", "no_such_module_here:f"]
[task.options.judge]
url = "{url}"
key_env = "{key}"
"""


def recorded(folder: Path, url: str = "", key: str = "auto") -> Path:
    (folder / "run").mkdir()
    (folder / "run" / "config.toml").write_text(RECORDED.format(url=url, key=key))
    return folder / "run"


@pytest.mark.parametrize("read", [recipe_or_recorded, recipe_or_run])
def test_functions_that_only_a_run_names_are_not_imported(read: Any, tmp_path: Path) -> None:
    run = recorded(tmp_path)
    with pytest.raises(
        ConfigError, match=r"would import no_such_module_here.*--set task\.options\.rewards=exact,no_such"
    ):
        read(None, run, None)
    assert read(None, run, ["task.options.rewards=exact,no_such_module_here:f"]).task.options["rewards"]
    assert read(None, run, None, trust=True).task.options["rewards"] == ["exact", "no_such_module_here:f"]


@pytest.mark.parametrize(
    ("url", "key"), [("http://example.org/v1", "auto"), ("http://127.0.0.1:9/v1", "auto"), ("", "SECRET")]
)
def test_servers_and_keys_that_only_a_run_names_are_not_used(url: str, key: str, tmp_path: Path) -> None:
    run, named = recorded(tmp_path, url, key), ["task.options.rewards=exact,no_such_module_here:f"]
    with pytest.raises(ConfigError, match=r"names servers, or a variable.*task\.options\.judge"):
        recipe_or_recorded(None, run, named)
    assert "judge" not in recipe_or_run(None, run, named).task.options


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SMALL = [
    "eval.games=4",
    "eval.quick_games=4",
    "run.steps=1",
    "rollout.groups=2",
    "rollout.group_size=2",
    "sft.games=8",
    "sft.epochs=1",
]


@pytest.mark.slow(14)
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The quick start as it stands, on a small scale, and the program with a reward of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for _, text in blocks:
        if named := re.match(r"# (\w+\.py)\n", text):
            (tmp_path / named[1]).write_text(text)
    program = (tmp_path / "page.py").read_text()
    assert len(program.splitlines()) <= 40
    subprocess.run([sys.executable, "words.py"], check=True)
    commands = next(text for _, text in blocks if "dataset-pocket --out runs/words/warmup" in text)
    for line in commands.splitlines():
        words = shlex.split(line)[1:]
        if line.startswith("isentrope"):
            small = [part for one in SMALL for part in ("--set", one)] if words[0] in ("sft", "train") else []
            done = CliRunner().invoke(app, [*words, *small])
            assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
    settings = ", ".join(f"{name!r}: {value}" for name, value in (one.split("=") for one in SMALL))
    program = program.replace('"run.steps": 100,', f"{settings},")
    exec(compile(program, "page.py", "exec", dont_inherit=True), {"__name__": "page"})
    sys.modules.pop("mine", None)
    assert re.search(r"exact .*\nshort .*\npolite .*\d", capsys.readouterr().out)
