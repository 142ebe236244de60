"""`isentrope analyze`: the same numbers as the live run, to the last bit, from what the run stored."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.core.errors import RunError
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.metrics.recompute import analyze
from isentrope.runs.episodes import read_episodes, read_scores, write_scores
from isentrope.runs.layout import scores_path, train_path
from isentrope.runs.token_texts import read_token_texts
from tests.builders.toy_runs import WARM_MODEL, make_model, toy_config

FEW = ("run.eval_every=0", "eval.games=3", "run.steps=7", "learn.mini_batches=2", "learn.epochs=2", "methods=aem")
OF_EPISODES = (
    "entropy/", "surprisal/", "likelihood/", "degeneracy/", "drift/", "phase", "success/", "return/", "response/",
    "episode/", "context/", "temperature/", "valid_ratio", "verdict/", "stop/", "failures", "eval/", "accepted/",
    "observation/",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    train(toy_config(WARM_MODEL, *FEW), out, quiet=True)
    return out


def records(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_everything_from_episodes_is_computed_again_exactly(run: Path) -> None:
    found = analyze(run)
    assert (found.steps, found.evaluations, found.differing, found.new, found.missing) == (7, 2, [], {}, [])
    recorded = {key for record in records(run) for key in record if key.startswith(OF_EPISODES)}
    assert {"drift/predicted", "drift/agreement", "drift/correlation", "degeneracy/length_drift"} <= recorded
    assert not recorded & set(found.left)
    assert found.compared == sum(key.startswith(OF_EPISODES) for record in records(run) for key in record)


def test_dynamic_sampling_too(tmp_path: Path) -> None:
    train(
        toy_config(WARM_MODEL, *FEW, "run.steps=3", "learn.algorithm=dapo", "learn.resample=2"),
        tmp_path / "r",
        quiet=True,
    )
    assert list((tmp_path / "r").glob("episodes/dropped-*"))
    found = analyze(tmp_path / "r")
    assert (found.steps, found.differing, found.new, found.missing) == (3, [], {}, [])


def test_steps_that_were_not_stored(tmp_path: Path) -> None:
    train(toy_config(WARM_MODEL, *FEW, "run.store_episodes=3"), tmp_path / "r", quiet=True)
    found = analyze(tmp_path / "r")
    assert (found.steps, found.differing, found.new, found.missing) == (2, [], {}, [])
    assert {"drift/measured", "drift/agreement"} <= {key for record in found.records for key in record}


def test_a_changed_number_is_found(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    changed = json.loads(lines[3]) | {"entropy/token": 0.125}
    (copy / "metrics.jsonl").write_text("\n".join([*lines[:3], json.dumps(changed), *lines[4:]]) + "\n")
    found = analyze(copy)
    assert [(one.step, one.key, one.recorded) for one in found.differing] == [(3, "entropy/token", 0.125)]
    result = CliRunner().invoke(app, ["analyze", str(copy)])
    assert result.exit_code == 1
    assert "differs: step 3, entropy/token: recorded 0.125" in result.output


def test_a_number_that_does_not_come_out_again_is_a_difference(run: Path, tmp_path: Path) -> None:
    """The run says that there was an alarm, or a share of duplicated sentences, and its episodes do not."""
    copy = shutil.copytree(run, tmp_path / "copy")
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    changed = json.loads(lines[3]) | {"alarm/eruption": 1.0, "verdict/odd": 0.5, "advantage/odd": 1.0}
    (copy / "metrics.jsonl").write_text("\n".join([*lines[:3], json.dumps(changed), *lines[4:]]) + "\n")
    found = analyze(copy)
    assert {(one.step, one.key, one.recorded, one.computed) for one in found.differing} == {
        (3, "alarm/eruption", 1.0, None),
        (3, "verdict/odd", 0.5, None),
    }
    assert "advantage/odd" in found.left
    (copy / "episodes" / "eval-000000-seen.parquet").unlink()  # its numbers cannot be compared, and are no difference
    assert {one.step for one in analyze(copy).differing} == {3}


def test_a_run_without_scores_and_without_new_metrics(run: Path, tmp_path: Path) -> None:
    """A run folder from before there were instruments: what can be computed is, the rest is named."""
    copy = shutil.copytree(run, tmp_path / "copy")
    for path in [*copy.glob("episodes/scores-*"), copy / "events.jsonl", copy / "tokens.json"]:
        path.unlink(missing_ok=True)
    young = ("drift/", "degeneracy/", "likelihood/", "phase", "alarm/", "probe/", "entropy/turns", "entropy/outcome")
    old = [{key: value for key, value in record.items() if not key.startswith(young)} for record in records(run)]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in old))
    found = analyze(copy)
    assert found.differing == []
    assert {"degeneracy/loops", "drift/measured", "likelihood/valid", "phase", "entropy/turns/1"} <= set(found.new)
    assert not {"drift/predicted", "degeneracy/duplication"} & set(found.new)
    assert [reason.split(":")[0] for reason in found.missing] == [
        "degeneracy/duplication",
        "drift/predicted at 7 steps (1 to 7)",
    ]


def test_what_tokens_read_as(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text('[[72, 105], "é", [240, 159], [152, 128]]')  # older runs wrote texts
    assert read_token_texts(tmp_path).text([0, 1, 2, 3]) == "Hié😀"
    for damaged in ("", "{", "7", "[[256]]", "[null]", '[["a"]]'):
        (tmp_path / "tokens.json").write_text(damaged)
        with pytest.raises(RunError, match=r"tokens\.json"):
            read_token_texts(tmp_path)


def test_a_warm_up_has_nothing_to_compute(tmp_path: Path) -> None:
    config = toy_config(make_model(tmp_path / "model"), "sft.epochs=1", "run.eval_every=0")
    warm_up(config, tmp_path / "warm", quiet=True)
    found = analyze(tmp_path / "warm")
    assert (found.steps, found.differing) == (0, [])
    assert "the run has no steps of reinforcement learning" in found.missing


def test_scores_are_what_was_learnt_from(run: Path) -> None:
    """AEM shapes the advantages: those of a response are equal, and their mean over a group is not that of GRPO."""
    scores, episodes = read_scores(scores_path(run, 2)), read_episodes(train_path(run, 2))
    at = 0
    for e, t, length in scores.responses():
        assert length == len(episodes[e].turns[t].response_ids)
        assert np.ptp(scores.advantage_N[at : at + length]) == 0
        at += length
    assert at == len(scores.advantage_N) == sum(len(t.response_ids) for e in episodes for t in e.turns)
    assert np.all(scores.ratio_N > 0)
    first = records(run)[2]
    assert scores.ratio_N.min() >= first["ratio/min"] - 1e-6  # that one is over all passes


def test_the_command_writes_the_numbers(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.jsonl"
    result = CliRunner().invoke(app, ["analyze", str(run), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "0 of them differ" in result.output
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["step"], line["kind"]) for line in lines][:2] == [(1, "train"), (2, "train")]


def test_what_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        analyze(tmp_path)
    copy = shutil.copytree(run, tmp_path / "copy")
    scores = read_scores(scores_path(run, 2))
    write_scores(scores_path(copy, 2), replace(scores, turn_U=scores.turn_U + 1))
    with pytest.raises(RunError, match="does not belong"):
        analyze(copy)
