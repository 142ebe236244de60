from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.analysis.compare import Choices, make_tables
from isentrope.analysis.measure import measure
from isentrope.analysis.rows import read_rows, read_source, with_outcomes
from isentrope.core.errors import RunError
from isentrope.core.types import Episode
from isentrope.metrics.episodes import eval_metrics
from isentrope.metrics.log import record_of
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import eval_path
from tests.analysis.helpers import write
from tests.builders.run_folders import run_folder, split_metrics
from tests.methods.helpers import ragged


def played() -> list[Episode]:
    """Two groups become two games of two kinds; four episodes each."""
    made = ragged((((3, 2), (1,), (2, 2), (4,)), ((1,), (2,), (3, 1), (1,))), seed=3)
    kinds = ("pick", "heat")
    return [replace(episode, split="seen", kind=kinds[episode.index]) for episode in made]


def test_what_is_measured_of_episodes() -> None:
    episodes = played()
    result = measure(episodes, 10.0, -0.1)
    counts = [(o.game, o.kind, o.wins, o.episodes) for o in result.outcomes or ()]
    wins = [sum(e.success for e in episodes if e.index == game) for game in (0, 1)]
    assert counts == [(0, "pick", wins[0], 4), (1, "heat", wins[1], 4)]
    assert list(result.kinds) == ["pick", "heat"]
    assert result.success.value == sum(wins) / 8
    assert result.means["turns"] == sum(len(e.turns) for e in episodes) / 8
    assert result.means["return"] == pytest.approx(sum(e.ret for e in episodes) / 8)
    tokens = [len(turn.response_ids) for e in episodes for turn in e.turns]
    assert result.means["response_tokens"] == sum(tokens) / len(tokens)
    assert result.average == pytest.approx((wins[0] / 4 + wins[1] / 4) / 2)


def test_the_score_has_no_penalties() -> None:
    (episode,) = ragged((((1, 1),),), seed=0, equal=True)
    bad = replace(episode.turns[0], verdict="inadmissible", reward=-0.1)
    half = replace(episode.turns[1], reward=5.0)  # a task that gives half of its reward
    result = measure([replace(episode, turns=(bad, half), success=False)], 10.0, -0.1)
    assert result.means["score"] == pytest.approx(0.5)
    assert result.means["return"] == pytest.approx(4.9)
    assert result.means["valid_ratio"] == 0.5
    assert "score" not in measure([episode], 0.0, -0.1).means


def test_episodes_lost_to_a_task_are_counted() -> None:
    episodes = [replace(episode, stop="task_error", success=False, turns=()) for episode in played()]
    result = measure(episodes, 10.0, -0.1)
    assert (result.failures, result.success.value) == (8, 0.0)
    assert "valid_ratio" not in result.means
    assert measure([], 10.0, 0.0).success.games == 0


def test_games_that_were_cut_off_are_counted() -> None:
    """The clock is a fault of the machine; a full context is none, but a longer one might have helped."""
    stops = ("clock", "clock", "context_limit", "turn_limit", "terminated", "terminated", "terminated", "terminated")
    wins = (False, True, False, False, True, True, True, True)
    pairs = zip(played(), zip(stops, wins, strict=True), strict=True)
    episodes = [replace(episode, stop=stop, success=won) for episode, (stop, won) in pairs]
    result = measure(episodes, 10.0, -0.1)
    assert (result.failures, result.cut) == (1, {"clock": 2, "context_limit": 1})
    assert result.success.value == 5 / 8
    logged = eval_metrics("seen", episodes)
    assert (logged["eval/seen/failures"], logged["eval/seen/cut/clock"]) == (1.0, 2.0)
    assert logged["eval/seen/cut/context_limit"] == 1.0


def test_what_a_run_says_of_lost_games_is_read(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {0: 0.1}, steps=10)
    lost = {"eval/seen/failures": 3.0, "eval/seen/cut/clock": 2.0, "eval/seen/cut/context_limit": 4.0}
    line = record_of(10, {**split_metrics(0.5, 10, "seen"), **lost}, "eval")
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    seen = read_source(run).evaluations[0].splits["seen"]
    assert (seen.failures, seen.cut) == (3, {"clock": 2, "context_limit": 4})
    (table,) = make_tables(read_rows([], [f"GRPO={run}"]), Choices())
    assert "GRPO: 3 episodes on seen were lost to a fault and count as not solved" in table.notes
    assert "GRPO: 2 episodes on seen were cut off by the clock (task.episode_seconds)" in table.notes
    assert "GRPO: 4 episodes on seen ended for want of context (agent.max_context)" in table.notes


def test_a_run_that_claims_very_many_games(tmp_path: Path) -> None:
    seen = read_source(run_folder(tmp_path / "run", {10: 0.25}, games=10**15)).evaluations[0].splits["seen"]
    assert (seen.success.games, seen.success.value) == (10**15, 0.25)


def test_a_run_and_its_record_agree(tmp_path: Path) -> None:
    """The shares that a run logs are those of the same episodes measured one by one."""
    one_each = [episode for episode in played() if episode.member == 0]
    logged = eval_metrics("seen", one_each)
    run = run_folder(tmp_path / "run", {0: 0.5, 7: 0.5}, steps=7)
    lines = [{"step": 7, "kind": "eval", **logged}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = read_source(run)
    seen, measured = source.evaluations[0].splits["seen"], measure(one_each, 10.0, -0.1)
    assert (seen.success, seen.kinds) == (measured.success, measured.kinds)
    for name in ("return", "turns", "valid_ratio"):
        assert seen.means[name] == pytest.approx(measured.means[name])
    assert with_outcomes(source, source.evaluations[0], "seen") is None
    write_episodes(eval_path(run, 7, "seen"), one_each)
    assert with_outcomes(source, source.evaluations[0], "seen") == measured.outcomes


def test_a_run_folder(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "grpo-3", {0: 0.1, 10: 0.5, 20: 0.4}, seed=3, steps=20)
    source = read_source(run)
    assert (source.name, source.seed, source.steps, source.is_run) == ("grpo-3", 3, 20, True)
    assert [one.step for one in source.evaluations] == [0, 10, 20]
    assert [one.step for one in source.trained] == [10, 20]
    assert source.settings["eval.temperature"] == 0.4
    warm_up = read_source(run_folder(tmp_path / "sft", {40: 0.5}, steps=100, kind="sft"))
    assert warm_up.steps is None  # run.steps is not how long a warm-up takes


def test_a_run_that_is_being_written(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {0: 0.1, 10: 0.5}, steps=20)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 20, "kind": "eval", **split_metrics(0.9, 10, "seen")})[:-20])
    assert [one.step for one in read_source(run).evaluations] == [0, 10]


def test_a_step_written_twice_counts_once(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {10: 0.5}, steps=20)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 10, "kind": "eval", **split_metrics(0.7, 10, "seen")}) + "\n")
        file.write(json.dumps({"step": 11, "kind": "train", "success/all": 0.9}) + "\n")
    (evaluation,) = read_source(run).evaluations
    assert evaluation.splits["seen"].success.value == 0.7


@pytest.mark.parametrize(("change", "words"), [
    ({"eval/seen/success": None}, "damaged"),
    ({"eval/seen/success": 1.5}, "damaged"),
    ({"eval/seen/success": "much"}, "damaged"),
    ({"eval/seen/games": 0}, "damaged"),
    ({"eval/seen/games": None}, "damaged"),
    ({"eval/seen/games": float("inf")}, "damaged"),
    ({"eval/seen/games": float("nan")}, "damaged"),
    ({"eval/seen/games": 10**400}, "damaged"),
    ({"eval/seen/success": 10**400}, "damaged"),
    ({"eval/seen/failures": "x"}, "damaged"),
    ({"eval/seen/cut/clock": float("inf")}, "damaged"),
    ({"eval/seen/turns": 1e30}, "damaged"),
    ({"step": 10**400}, "no evaluation yet"),  # the line is left out
])  # fmt: skip
def test_damaged_evaluations(tmp_path: Path, change: dict[str, object], words: str) -> None:
    run = run_folder(tmp_path / "run", {10: 0.5})
    line = {"step": 10, "kind": "eval", **split_metrics(0.5, 10, "seen"), **change}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(RunError, match=words):
        read_source(run)


def test_what_is_no_source(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RunError, match="there is no"):
        read_source(tmp_path / "missing")
    with pytest.raises(RunError, match=r"no metrics\.jsonl"):
        read_source(tmp_path)
    run = run_folder(tmp_path / "run", {})
    with pytest.raises(RunError, match="no evaluation yet"):
        read_source(run)
    (run / "metrics.jsonl").write_text("nonsense\n{}\n")
    with pytest.raises(RunError, match="no evaluation yet"):
        read_source(run)
    assert "metrics.jsonl: two damaged lines left out" in caplog.text
    other = run_folder(tmp_path / "other", {10: 0.5})
    (other / "config.toml").write_text("[run\n")
    with pytest.raises(RunError, match="run folder is damaged"):
        read_source(other)
    (other / "config.toml").unlink()
    (other / "run.json").write_text("[]")
    with pytest.raises(RunError, match=r"run\.json"):
        read_source(other)


def test_a_file(tmp_path: Path) -> None:
    source = read_source(write(tmp_path / "a.json", {"seen": [1, 0]}, name="ReAct", seed=2))
    assert (source.name, source.seed, source.is_run, source.trained) == ("ReAct", 2, False, ())
    assert with_outcomes(source, source.evaluations[0], "seen") == source.evaluations[0].splits["seen"].outcomes
