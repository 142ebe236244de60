"""Evaluations through a server: the same games as without one; failures are recorded; the key is written nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.kinds import ServerOptions
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.openai.engine import OpenAIEngine
from isentrope.engines.torch import TorchEngine
from isentrope.models.load import load_policy
from isentrope.rollout.collector import Collector
from isentrope.runs.episodes import read_episodes
from tests.net.faulty import faulty, refuse, say
from tests.serving.helpers import KEY, address, engine_at, served

SETS = (
    "task.max_turns=7",
    "rollout.batch=8",
    "agent.prompt=brief",
    "agent.max_response=32",
    "task.options.rooms=medium",
)
TOY = (
    "task.world=tests.toys:ToyWorld",
    "run.threads=1",
    "agent.prompt=brief",
    "eval.splits=seen",
    "engine.kind=openai",
    "engine.retries=0",
)
ADD = "<think>x</think><action>add one</action>"


def pocket_config(*sets: str) -> RunConfig:
    return load_config(None, [*SETS, *sets])


def play(config: RunConfig, engine: OpenAIEngine | TorchEngine, games: int) -> list[Episode]:
    with Collector(config, engine) as collector:
        return collector.evaluate("seen", games, RolloutPlan(config.agent.order, temperature=0.0))


@pytest.mark.parametrize("context", ["full", "window"])
def test_games_through_the_server_are_the_games_without_it(context: str) -> None:
    config = pocket_config(f"agent.context={context}")
    policy = load_policy(config.policy, config.run)
    direct = play(config, TorchEngine(policy), games=3)
    with served(config, TorchEngine(policy)) as server:
        through = play(config, engine_at(address(server), model="", timeout=60.0), games=3)
    assert [[t.action for t in e.turns] for e in through] == [[t.action for t in e.turns] for e in direct]
    assert [[t.observation for t in e.turns] for e in through] == [[t.observation for t in e.turns] for e in direct]
    assert [(e.success, e.stop) for e in through] == [(e.success, e.stop) for e in direct]
    assert any(turn.valid for episode in direct for turn in episode.turns)


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})
    return done.exit_code, done.output


def test_eval_of_a_server_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Game 1 is refused for good: recorded with the reason, counted, and the others are played to their end."""
    monkeypatch.setenv("MY_KEY", KEY)
    sets = [
        part
        for text in (*TOY, "engine.key_env=MY_KEY", "engine.concurrency=1", "engine.model=m")
        for part in ("--set", text)
    ]
    with faulty(say(ADD), refuse(400, f"no more for {KEY}"), say(ADD)) as server:
        files = ("--out", str(tmp_path / "record.json"), "--save-episodes", str(tmp_path / "episodes"))
        code, output = invoke("eval", "--set", f"engine.url={server.url}", *sets, "--games", "3", *files)
    assert code == 0, output
    episodes = read_episodes(next((tmp_path / "episodes").glob("*.parquet")))
    assert [(e.stop, e.success) for e in episodes] == [
        ("terminated", True), ("engine_error", False), ("terminated", True),
    ]  # fmt: skip
    assert episodes[1].turns == ()  # a response that never came is no turn
    assert episodes[1].detail == "the server answered 400, 'no more for [key]'"
    assert "failed: 1" in output
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()
    assert KEY not in output
    assert all(headers["authorization"] == f"Bearer {KEY}" for headers in server.headers)


def test_a_refused_key_ends_the_evaluation_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with faulty(refuse(401, f"Incorrect API key provided: {KEY}")) as server:
        sets = [part for text in (*TOY, f"engine.url={server.url}", "engine.model=m") for part in ("--set", text)]
        code, output = invoke("eval", *sets, "--games", "3")
    assert code == 2
    assert "[key]" in output
    assert "$OPENAI_API_KEY" in output
    assert KEY not in output
    assert "Traceback" not in output


def test_what_was_paid_for_is_told_when_the_evaluation_breaks_off() -> None:
    with faulty(say(ADD), say(ADD), refuse(500, "down")) as server:
        texts = (*TOY, f"engine.url={server.url}", "engine.model=m", "engine.concurrency=1", "engine.price_in=1000000")
        code, output = invoke("eval", *[part for text in texts for part in ("--set", text)], "--games", "8")
    assert code == 2
    assert "prompt tokens: 200, sampled tokens: 20" in output
    assert "cost: 200" in output


@pytest.mark.parametrize("command", ["train", "sft", "rft"])
def test_a_server_cannot_be_trained(command: str, tmp_path: Path) -> None:
    code, output = invoke(command, "--out", str(tmp_path / "run"), "--set", "engine.kind=openai")
    assert code == 2
    assert "can only evaluate" in output
    assert not (tmp_path / "run").exists()


def test_an_answer_longer_than_max_response_in_bytes_is_taken() -> None:
    """max_response is in the server's tokens; the bytes of the answer are more."""
    thought = "because " * 30
    config = load_config(None, [*TOY, "agent.max_response=16", "agent.max_context=4096"])
    with faulty(say(f"<think>{thought}</think><action>add one</action>")) as server:
        engine = OpenAIEngine(ServerOptions(**config.engine.options, url=server.url, model="m"))
        [episode] = play(config, engine, games=1)
    assert episode.success
    assert server.bodies[0]["max_tokens"] == 16


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted() -> None:
    arguments = [sys.executable, "-m", "isentrope", "serve", "pocket", "--port", "0", "--set", "run.device=cpu"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "loading pocket …\n"
            line = process.stdout.readline()
            assert line.startswith("pocket at http://127.0.0.1:"), line + process.stdout.read()
            url = line.split()[2].rstrip(",")
            assert engine_at(url, model="").model == "pocket"
            process.send_signal(2)
            assert process.wait(30) == 0
        finally:
            process.kill()
