"""Faults of tasks on their way: from the pool into episodes, files, metrics and the console's line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.cli.options import recipe_or_run
from isentrope.core.types import Episode, RolloutPlan
from isentrope.loop.messages import failures_in_words
from isentrope.metrics.episodes import rollout_metrics
from isentrope.rollout.collector import Runner
from isentrope.rollout.episode import Seat
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.pool.open import LocalTasks
from tests.rollout.test_runner import AGENT, TASK, Scripted, say
from tests.toys import ToyTask, ToyWorld

# game -> what it does: at the start, or in the step in which it counts for the second time
ODD = {1: "surrogates at the start", 2: "nan", 3: "raise", 4: "huge", 5: "bytes", 6: "surrogates at the end"}


class OddTask(ToyTask):
    def start(self, instance: Instance) -> View:
        self.what, self.steps = ODD.get(instance.index, ""), 0
        view = super().start(replace(instance, index=0))
        return replace(view, text="\ud800") if self.what == "surrogates at the start" else view

    def step(self, action: str) -> Step:
        step = super().step(action)
        self.steps += 1
        if self.what == "surrogates at the end" and step.terminated:
            return replace(step, view=replace(step.view, text="\ud800"))
        if self.steps != 2:
            return step
        if self.what == "raise":
            raise RuntimeError("no more")
        text = {"huge": "x" * 1_000_000, "bytes": b"\xff"}.get(self.what)
        if text is not None:
            return replace(step, view=replace(step.view, text=text))  # type: ignore[arg-type]
        return replace(step, reward=float("nan")) if self.what == "nan" else step


class OddWorld(ToyWorld):
    def open(self) -> ToyTask:
        return OddTask(self._options)


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    world = OddWorld()
    runner = Runner(Scripted([say("add one")]), LocalTasks(world, 8), replace(AGENT, max_context=10**6), TASK, batch=8)
    return runner.play([Seat(world.instance("train", i), i, 0) for i in range(7)], RolloutPlan(), 0, "test")


def test_episodes_tell_what_happened(episodes: list[Episode]) -> None:
    assert [episode.stop for episode in episodes] == [
        "terminated", "terminated", "garbage", "task_error", "terminated", "garbage", "terminated",
    ]  # fmt: skip
    assert episodes[2].detail == "Garbage: the task gave the reward nan, expected a number of at most 1,000,000 in size"
    assert episodes[3].detail == "RuntimeError: no more"
    assert [[turn.mended for turn in episode.turns] for episode in episodes] == [
        ["", "", ""],
        ["encoding", "", ""],  # what came before the first turn
        ["", ""],
        ["", ""],
        ["", "text_cut", ""],
        ["", ""],
        ["", "", "encoding"],  # what came after the last
    ]
    assert episodes[4].turns[2].observation.endswith("[cut here: 1,000,000 characters in all]")


def test_they_are_kept_and_counted(episodes: list[Episode], tmp_path: Path) -> None:
    write_episodes(tmp_path / "a.parquet", episodes)
    again = read_episodes(tmp_path / "a.parquet")
    assert [[turn.mended for turn in one.turns] for one in again] == [
        [turn.mended for turn in one.turns] for one in episodes
    ]
    assert [(one.stop, one.detail) for one in again] == [(one.stop, one.detail) for one in episodes]
    found = rollout_metrics(again)
    assert {key: value for key, value in found.items() if key.startswith(("failures", "mended"))} == {
        "failures": 3.0, "failures/garbage": 2.0, "failures/task_error": 1.0,
        "mended/encoding": 2.0, "mended/text_cut": 1.0,
    }  # fmt: skip
    assert failures_in_words(again, found | {"tasks/workers_replaced": 2.0}) == (
        "3 of 7 episodes failed and are not learnt from (1 task_error, 2 garbage; first: Garbage: the task gave the "
        "reward nan, expected a number of at most 1,000,000 in size); "
        "1 observations were too long and were cut; 2 observations had characters that do not exist; "
        "2 worker processes were replaced"
    )
    assert failures_in_words(again[:1], rollout_metrics(again[:1])) == ""


def test_nothing_is_sent_where_somebody_elses_run_says(tmp_path: Path) -> None:
    """A run folder may come from anywhere: its tasks are played here, and no variable is sent to anyone."""
    table = '[task]\nwhere = "http://evil.example:1"\nkey_env = "HOME"\nmax_turns = 7\n'
    (tmp_path / "config.toml").write_text(table)
    task = recipe_or_run(None, tmp_path, []).task
    assert (task.where, task.key_env, task.max_turns) == ("auto", "", 7)
    assert recipe_or_run(None, tmp_path, ["task.where=http://mine:1"]).task.where == "http://mine:1"
    (tmp_path / "config.toml").write_text('[task]\nwhere = "processes"\n')
    assert recipe_or_run(None, tmp_path, []).task.where == "processes"


@pytest.mark.parametrize(
    ("world", "value"),
    [("search_qa", "retriever = 'HTTP://evil.example:1'"), ("openenv", "url = 'wss://evil.example'")],
)
def test_no_option_of_somebody_elses_run_names_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, world: str, value: str
) -> None:
    name = value.split()[0]
    (tmp_path / "config.toml").write_text(f"[task]\nworld = '{world}'\noptions = {{{value}}}\n")
    assert name not in recipe_or_run(None, tmp_path, []).task.options
    assert f"task.options.{name} of the run's config.toml is not used" in caplog.text
    given = recipe_or_run(None, tmp_path, [f"task.options.{name}=http://127.0.0.1:8"])
    assert given.task.options[name] == "http://127.0.0.1:8"


def test_options_that_name_no_server_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.toml").write_text("[task]\nworld = 'search_qa'\noptions = {retriever = 'bm25', topk = 5}\n")
    assert recipe_or_run(None, tmp_path, []).task.options == {"retriever": "bm25", "topk": 5}
    assert caplog.text == ""
    nested = "[task]\nworld = 'gym'\noptions = {env_id = 'x', kwargs = {places = ['http://evil.example:1']}}\n"
    (tmp_path / "config.toml").write_text(nested)
    assert recipe_or_run(None, tmp_path, []).task.options == {"env_id": "x"}
