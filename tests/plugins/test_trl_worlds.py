"""Our task worlds in TRL: as a rollout function, and as environments with a tool."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs TRL: pip install -e '.[trl]'")

from isentrope.core.errors import TaskError
from isentrope.models.sources.find import find_folder
from isentrope.plugins.trl import EntropyGRPOTrainer, TaskWorld, load_tokenizer
from isentrope.plugins.trl.rolled import EPISODE
from isentrope.runs.folder import Run
from isentrope.worlds.registry import world_needs
from tests.plugins.trl_lab import settings

POCKET = find_folder("pocket")
SMALL: dict[str, Any] = {"prompt": "brief", "max_response": 32, "max_context": 1536}


class Playing:
    """A trainer as far as a rollout function asks: it answers as the world's expert does."""

    def __init__(self, games: TaskWorld, spoil: Any = lambda text: text) -> None:
        self.processing_class = load_tokenizer(POCKET)
        self.tokens = self.processing_class.isentrope_tokens
        self.temperature, self.games, self.spoil = 1.0, games, spoil
        self.said: list[tuple[list[int], list[int]]] = []
        self.generation_config = SimpleNamespace(max_new_tokens=999)

    def _generate_single_turn(self, prompts: Sequence[list[int]], *rest: Any) -> Any:
        assert self.generation_config.max_new_tokens == 32
        answers = [self.tokens.answer(self.spoil("<think>I look.</think><action>look</action>")) for _ in prompts]
        answers = [[*answer, 99, 98] for answer in answers]  # what stands behind the action is left out
        self.said += list(zip(prompts, answers, strict=True))
        return answers, None


def test_a_row_is_the_conversation_token_by_token() -> None:
    games = TaskWorld("household", {"rooms": "small"}, max_turns=3, **SMALL)
    trainer = Playing(games)
    given = games([f"train/{i}" for i in range(3)], trainer)
    assert trainer.generation_config.max_new_tokens == 999
    for row in range(3):
        whole = given["prompt_ids"][row] + given["completion_ids"][row]
        mask = [0] * len(given["prompt_ids"][row]) + given["env_mask"][row]
        for turn in range(3):
            prompt, answer = trainer.said[3 * turn + row]
            assert whole[: len(prompt)] == prompt
            assert whole[len(prompt) : len(prompt) + len(answer) - 2] == answer[:-2]
            assert mask[len(prompt) : len(prompt) + len(answer) - 2] == [1] * (len(answer) - 2)
        assert sum(mask) == 3 * (len(trainer.said[0][1]) - 2)
        episode = given[EPISODE][row]
        assert (episode.index, episode.stop, [turn.verdict for turn in episode.turns]) == (
            row,
            "turn_limit",
            ["ok"] * 3,
        )
    assert games.reward([""] * 3, **given) == [0.0] * 3
    assert given["logprobs"] is None


def test_answers_that_are_no_actions_cost_what_they_cost() -> None:
    games = TaskWorld("household", {"rooms": "small"}, max_turns=2, invalid_reward=-0.5, **SMALL)
    given = games(["train/0"], Playing(games, lambda text: text.replace("look<", "fly<")))
    assert [turn.verdict for turn in given[EPISODE][0].turns] == ["inadmissible"] * 2
    assert games.reward([""], **given) == [-1.0]


def test_a_game_that_breaks_has_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    games = TaskWorld("household", {"rooms": "small"}, max_turns=2, **SMALL)
    from isentrope.worlds.household.world import HouseholdTask

    monkeypatch.setattr(HouseholdTask, "step", lambda self, action: 1 / 0)
    given = games(["train/0", "train/1"], Playing(games))
    assert games.reward([""] * 2, **given) == [None, None]
    assert {episode.stop for episode in given[EPISODE]} == {"task_error"}
    monkeypatch.setattr(HouseholdTask, "start", lambda self, instance: 1 / 0)
    given = games(["train/0"], Playing(games))
    assert (given["env_mask"], len(given["prompt_ids"][0])) == ([[0]], 1)  # TRL needs tokens; none is learnt from


def test_mistakes() -> None:
    games = TaskWorld("household")
    with pytest.raises(TaskError, match="'Hello' names no game; expected SPLIT/NUMBER"):
        games.instance("Hello")
    with pytest.raises(TaskError, match="give the same TaskWorld as rollout_func"):
        games.reward([""])
    with pytest.raises(TaskError, match="no split"):
        games.dataset("tran", 3)


def test_a_run_on_the_household_world(tmp_path: Path) -> None:
    """The pocket model plays and learns in TRL; the run folder has the games themselves."""
    games = TaskWorld("household", {"rooms": "small"}, max_turns=3, **SMALL)
    args = settings(tmp_path, max_steps=2, learning_rate=1e-4, gradient_accumulation_steps=1)
    trainer: Any = EntropyGRPOTrainer(
        model=str(POCKET), processing_class=load_tokenizer(POCKET), rollout_func=games, reward_funcs=games.reward,
        args=args, train_dataset=games.dataset("train", 8), methods=["aem"],
    )  # fmt: skip
    trainer.train()
    run = Run.open(tmp_path / "isentrope")
    assert run.last_step == 2
    assert {"success/all", "valid_ratio", "entropy/think", "entropy/action"} <= set(run.records[0])
    episodes = run.episodes(1)
    assert {(episode.world, episode.split) for episode in episodes} == {("household", "train")}
    assert {episode.group for episode in episodes} == {0}
    assert [episode.member for episode in episodes] == [0, 1, 2, 3]
    assert len({episode.index for episode in episodes}) == 1
    turns = [turn for episode in episodes for turn in episode.turns]
    assert all(np.isfinite(turn.entropies).all() and np.isfinite(turn.logprobs).all() for turn in turns)
    assert all(turn.admissible and turn.observation for turn in turns)
    assert not trainer.instruments.guard.failures


def test_the_household_world_as_an_environment() -> None:
    """Its expert plays it through the tool."""
    games = TaskWorld("household", {"rooms": "small"}, max_turns=40)
    rows = games.tool_dataset("train", 4)
    assert rows[1]["prompt"] == [{"role": "user", "content": ""}]
    environment = games.tools()()
    for row in rows:
        told = environment.reset(**row)
        instance = games.instance(row["game"])
        task, expert = games.world.open(), games.world.expert(0)
        view = task.start(instance)
        assert view.text in told
        assert view.goal in told
        assert expert is not None
        expert.start(view, instance)
        for _ in range(40):
            action = expert.act(view).action
            answer = environment.act(action)
            view = task.step(action).view
            assert view.text in answer
            if "The game is over." in answer:
                break
        assert environment.get_reward() == 1.0
        assert environment.act("look") == "The game is over."


@pytest.mark.skipif(bool(world_needs("webshop", {}).missing()), reason="needs the webshop: pip install -e '.[webshop]'")
def test_webshop() -> None:
    games = TaskWorld("webshop", max_turns=4, max_context=1536, max_response=32, prompt="brief")
    given = games(["train/0"], Playing(games, lambda text: text.replace("look<", "search[red shoes]<")))
    turns = given[EPISODE][0].turns
    assert turns[0].verdict == "ok"
    assert "Total results" in turns[1].observation if len(turns) > 1 else given[EPISODE][0].stop
    environment = games.tools()()
    told = environment.reset(**games.tool_dataset("train", 1)[0])
    assert "search[words]" in told
    assert "Total results" in environment.act("search[shoes]")


def test_the_program_of_the_page(tmp_path: Path) -> None:
    """With smaller numbers: one step of eight games of two turns."""
    page = Path(__file__).parents[2] / "docs" / "plugins" / "trl-household.md"
    (program,) = [block for block in re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL) if "train()" in block]
    for old, new in (
        ("max_turns=12", "max_turns=2"),
        ("max_steps=10", "max_steps=1"),
        ("batch_size=32", "batch_size=8"),
    ):
        assert old in program
        program = program.replace(old, new)
    (tmp_path / "page.py").write_text(program)
    (tmp_path / "model").symlink_to(POCKET)
    path = os.pathsep.join([str(page.parents[2]), *sys.path])
    ran = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert Run.open(tmp_path / "run" / "isentrope").last_step == 1
