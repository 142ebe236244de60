"""`isentrope eval` on a real model in a toy world: what is played, recorded and shown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from isentrope.analysis.record import SAME_TEST, Record, read_record
from isentrope.analysis.rows import differing, read_source
from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.config.text import config_to_toml
from isentrope.core.errors import RunError
from isentrope.engines.torch import TorchEngine
from isentrope.loop.evaluate import checkpoints_of
from isentrope.loop.train import train
from isentrope.models.load import load_policy
from isentrope.runs.episodes import read_episodes
from tests.builders.toy_runs import make_model, toy_config
from tests.serving.helpers import address, served


def invoke(*arguments: object) -> Result:
    environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    path = folder / "recipe.toml"
    path.write_text(config_to_toml(toy_config(make_model(folder / "model"))))
    return path


@pytest.fixture(scope="module")
def run(recipe: Path) -> Path:
    """Two steps with a checkpoint each, evaluated after both."""
    config = toy_config(
        recipe.parent / "model", "run.steps=2", "run.checkpoint_every=1", "run.eval_every=1", "run.seed=7"
    )
    train(config, recipe.parent / "run", quiet=True)
    return recipe.parent / "run"


def evaluated(tmp_path: Path, *arguments: object) -> tuple[Record, str]:
    out = tmp_path / "new" / "record.json"
    done = invoke("eval", *arguments, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("loading ")
    assert done.stderr.endswith(f"wrote {out}\n")
    assert "loading" not in done.stdout
    return read_record(out), done.stdout


def test_the_record_of_a_model(recipe: Path, tmp_path: Path) -> None:
    model = recipe.parent / "model"
    record, text = evaluated(tmp_path, model, "--recipe", recipe, "--games", 4, "--name", "ReAct [red]")
    assert (record.name, record.model, record.seed) == ("ReAct [red]", str(model), 0)
    (evaluation,) = record.evaluations
    seen = evaluation.splits["seen"]
    assert (evaluation.step, seen.success.games, seen.success.episodes) == (None, 4, 4)
    assert {kind: share.games for kind, share in seen.kinds.items()} == {"even": 2, "odd": 2}
    assert record.settings["task.world"] == "tests.toys:ToyWorld"
    assert record.settings["task.options"]["flavour"] == "plain"  # defaults written out, as in a run's config.toml
    assert (record.settings["agent.order"], record.settings["eval.temperature"]) == ("think_act", 0.4)
    assert "ReAct [red]" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    assert rows[0][:5] == ["seen", "all", "4", "4", f"{100 * seen.success.value:.1f} %"]
    assert [row[1] for row in rows[1:4]] == ["even", "odd", "mean of types"]


def test_the_same_command_gives_the_same_bytes(recipe: Path, tmp_path: Path) -> None:
    outs = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for out, seed in zip(outs, (3, 3, 4), strict=True):
        done = invoke("eval", "--recipe", recipe, "--seed", seed, "--temperature", 1.5, "--out", out)
        assert done.exit_code == 0, done.output
    assert outs[0].read_bytes() == outs[1].read_bytes() != outs[2].read_bytes()
    first, third = read_record(outs[0]), read_record(outs[2])
    assert (first.seed, third.seed) == (3, 4)
    assert first.config_digest != third.config_digest
    assert first.settings["eval.temperature"] == 1.5


def test_a_greedy_evaluation_says_temperature_0(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "episodes"
    record, _ = evaluated(tmp_path, "--recipe", recipe, "--temperature", 0, "--save-episodes", folder)
    assert record.settings["eval.temperature"] == 0
    turns = [turn for episode in read_episodes(folder / "eval-seen.parquet") for turn in episode.turns]
    assert {t for turn in turns for t in turn.temperatures.tolist()} == {0.0}
    assert all(np.isfinite(turn.logprobs).all() and (turn.entropies > 0).any() for turn in turns)


def test_all_games_from_the_fourth_on_three_times_each(recipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "episodes"
    options = ["--games", "all", "--first-game", 3, "--episodes", 3, "--order", "act", "--save-episodes", folder]
    record, _ = evaluated(tmp_path, "--recipe", recipe, *options)
    seen = record.evaluations[0].splits["seen"]
    assert [(one.game, one.episodes) for one in seen.outcomes or ()] == [(game, 3) for game in range(3, 10)]
    assert (seen.success.games, seen.success.episodes) == (7, 21)
    assert (record.settings["agent.order"], record.settings["eval.episodes"]) == ("act", 3)
    episodes = read_episodes(folder / "eval-seen.parquet")
    assert {episode.order for episode in episodes} == {"act"}
    assert len({(episode.index, episode.member) for episode in episodes}) == 21
    assert sum(episode.success for episode in episodes) == sum(one.wins for one in seen.outcomes or ())


def test_the_first_episode_of_a_game_is_the_one_played_alone(recipe: Path, tmp_path: Path) -> None:
    played: list[Any] = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        assert invoke("eval", "--recipe", recipe, "--episodes", count, "--save-episodes", folder).exit_code == 0
        episodes = read_episodes(folder / "eval-seen.parquet")
        played.append([[list(t.response_ids) for t in e.turns] for e in episodes if e.member == 0])
    assert played[0] == played[1]


def test_checkpoints_of_a_run(run: Path, tmp_path: Path) -> None:
    def steps(*options: object) -> list[int | None]:
        record, _ = evaluated(tmp_path, run, "--trust", "--games", 2, *options)
        assert (record.seed, record.name) == (7, "run")  # its own settings
        return [evaluation.step for evaluation in record.evaluations]

    best = int(json.loads((run / "checkpoints" / "best.json").read_text())["name"].removeprefix("step-"))
    assert steps() == steps("--checkpoint", "best") == [best]
    assert steps("--checkpoint", "last") == [2]
    assert steps("--checkpoint", "all") == [1, 2]
    assert steps("--step", 1) == [1]
    assert steps("--step", 0) == [0]


def test_how_the_checkpoint_was_chosen_is_recorded(run: Path, recipe: Path, tmp_path: Path) -> None:
    def chosen(*arguments: object) -> str | None:
        return evaluated(tmp_path, *arguments, "--trust", "--games", 1)[0].settings.get("eval.checkpoint")

    best = int(json.loads((run / "checkpoints" / "best.json").read_text())["name"].removeprefix("step-"))
    assert chosen(run) == chosen(run, "--checkpoint", "best") == chosen(run, "--step", best) == "best"
    assert chosen(run, "--step", 3 - best) == f"step {3 - best}"
    assert (chosen(run, "--checkpoint", "last"), chosen(run, "--checkpoint", "all")) == ("last", "all")
    assert chosen("--recipe", recipe) is None


@pytest.mark.slow(4)
def test_the_digest_is_of_what_was_played(recipe: Path, run: Path, tmp_path: Path) -> None:
    def of(*options: object) -> str:
        return evaluated(tmp_path, "--recipe", recipe, *options)[0].config_digest

    plain = of()
    same = ("learn.lr=1.0", "rollout.groups=9", "sft.epochs=9", "run.steps=99", "run.threads=2", "methods=[]")
    assert of(*(word for setting in same for word in ("--set", setting))) == plain
    others = [("--episodes", 2), ("--games", "all"), ("--games", 3), ("--seed", 1), ("--temperature", 1)]
    others += [("--order", "act"), ("--first-game", 1), ("--set", "agent.max_response=9")]
    assert len({plain, *(of(*other) for other in others)}) == 1 + len(others)
    spelt = recipe.parent / "." / ".." / recipe.parent.name / "model"
    assert of(spelt) == of(recipe.parent / "model") == plain
    assert of(run) == plain  # --recipe in place of the run's own settings


def test_the_order_may_be_one_that_a_method_does_not_train(recipe: Path, tmp_path: Path) -> None:
    for method, order in (("no_think", "think_act"), ("actre", "act")):
        options = ["--set", f"methods=['{method}']", "--order", order, "--games", 2]
        record, _ = evaluated(tmp_path, "--recipe", recipe, *options, "--save-episodes", tmp_path)
        assert record.settings["agent.order"] == order
        assert {episode.order for episode in read_episodes(tmp_path / "eval-seen.parquet")} == {order}


def test_games_that_were_cut_off_are_shown(recipe: Path, tmp_path: Path) -> None:
    options = ["--set", "agent.max_context=65", "--set", "agent.overflow=end", "--games", 2]  # one response fits
    record, text = evaluated(tmp_path, "--recipe", recipe, *options)
    seen = record.evaluations[0].splits["seen"]
    assert (seen.cut, seen.failures) == ({"context_limit": 2}, 0)
    assert "out of context" in text


def test_an_evaluation_in_which_every_game_broke_is_no_result(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    broken = ("--set", "task.world=tests.loop.test_notices:BrokenWorld")
    for options, words in ((broken, "the shop is closed"), (("--set", "task.episode_seconds=1e-9"), "ended as clock")):
        done = invoke("eval", "--recipe", recipe, *options, "--out", out)
        assert done.exit_code == 2
        text = " ".join(done.stderr.replace("│", " ").split())
        assert "all 6 episodes failed, so there is nothing to measure" in text
        assert words in text
        assert not out.exists()


def test_a_checkpoint_does_as_it_did_in_the_run(run: Path, tmp_path: Path) -> None:
    record, _ = evaluated(tmp_path, run, "--trust", "--step", 2, "--save-episodes", tmp_path)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["kind"] == "eval" and line["step"] == 2]
    seen = record.evaluations[0].splits["seen"]
    assert differing(read_source(run), read_source(tmp_path / "new" / "record.json"), SAME_TEST) == []
    assert logged[0]["eval/seen/success"] == seen.success.value
    assert logged[0]["eval/seen/return"] == pytest.approx(seen.means["return"])
    stored, again = (read_episodes(folder / "eval-000002-seen.parquet") for folder in (run / "episodes", tmp_path))
    assert [[list(t.response_ids) for t in e.turns] for e in stored] == [
        [list(t.response_ids) for t in e.turns] for e in again
    ]


@pytest.mark.parametrize(("options", "words"), [
    (["--games", "0"], "neither a number of games nor all"),
    (["--games", "many"], "neither a number of games nor all"),
    (["--games", "all", "--split", "train"], "give a number with --games"),
    (["--split", "nowhere"], "has no split 'nowhere'"),
    (["--split", "nowhere", "--games", "all"], "has no split 'nowhere'"),
    (["--first-game", "10"], "only 10 games"),
    (["--temperature", "-1"], "eval.temperature"),
    (["--order", "sing"], "think_act"),
    (["--step", "1"], "is not a run folder"),
    (["--step", "1", "--checkpoint", "last"], "one of --step and --checkpoint"),
    (["--set", "engine.kind=openai", "--checkpoint", "last"], "are for run folders"),
])  # fmt: skip
def test_what_cannot_be_evaluated(recipe: Path, options: list[str], words: str) -> None:
    done = invoke("eval", "--recipe", recipe, *options)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())


def _without_reference(run: Path, copy: Path) -> Path:
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("reference"))
    return copy


def test_runs_without_the_checkpoint(run: Path, tmp_path: Path) -> None:
    done = invoke("eval", run, "--trust", "--step", 9)
    assert done.exit_code == 2
    assert "it kept 1, 2" in done.stderr
    with pytest.raises(RunError, match=r"evaluate its policy\.model"):  # a run with adapters keeps none
        checkpoints_of(_without_reference(run, tmp_path / "copy"), 0)
    (tmp_path / "checkpoints").mkdir()
    done = invoke("eval", tmp_path)
    assert done.exit_code == 2
    assert "no checkpoint yet" in done.stderr


def test_nothing_to_evaluate() -> None:
    done = invoke("eval")
    assert done.exit_code == 2
    assert "name a model or a run" in done.stderr


def test_a_model_behind_a_server(recipe: Path, tmp_path: Path) -> None:
    """No MODEL: the server's own name is the row's; what the engine counted is shown and recorded."""
    config = load_config(recipe)
    with served(config, TorchEngine(load_policy(config.policy, config.run)), "gpt-none") as server:
        options = ["--set", "engine.kind=openai", "--set", f"engine.url={address(server)}", "--games", 2]
        record, text = evaluated(tmp_path, "--recipe", recipe, *options, "--set", "engine.price_in=1000000")
    assert (record.name, record.model, record.settings["engine.kind"]) == ("gpt-none", "gpt-none", "openai")
    assert record.notes[0]["cost"] == record.notes[0]["prompt_tokens"] > 0
    assert "prompt tokens: " in text
    assert text.startswith(f"asking gpt-none at {address(server)}\n")
    assert "127.0.0.1" not in (tmp_path / "new" / "record.json").read_text()


def test_the_pocket_model_and_the_full_prompt() -> None:
    done = invoke("eval", "pocket", "--set", "agent.prompt=full")
    assert done.exit_code == 2
    assert "agent.prompt=brief" in done.stderr
    assert "Leave agent.prompt out" in " ".join(done.stderr.replace("│", " ").split())
