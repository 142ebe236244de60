"""Our instruments in TRL: the run folder beside its output, and that nothing they meet ends a training."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

pytest.importorskip("trl", reason="needs TRL: pip install -e '.[trl]'")

from isentrope.cli.main import app
from isentrope.models.load import load_folder
from isentrope.plugins.trl import EntropyGRPOTrainer
from isentrope.plugins.trl import instruments as module
from isentrope.runs import atomic
from isentrope.runs.beside import WatchedFolder, free
from isentrope.runs.folder import Run
from isentrope.runs.lock import held_locks
from isentrope.runs.log import read_records
from isentrope.watch.runs import Run as Watched
from tests.plugins.test_trl_runs import ROOT, learning, same, weights
from tests.plugins.trl_lab import (
    CPU,
    Talks,
    compare_records,
    datasets,
    episodes_of,
    make_folder,
    make_trainer,
    settings,
    transformers,
)

LEARNS: dict[str, Any] = {"learning_rate": 1e-3, "max_grad_norm": 1.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("llama"))


def trained(model: Path, folder: Path, rollouts: Any = None, changes: Any = LEARNS, **options: Any) -> Any:
    trainer = make_trainer(EntropyGRPOTrainer, model, settings(folder, **changes), rollouts, **options)
    trainer.train()
    return trainer


def told(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


# -- the numbers


def test_numbers_are_those_of_our_own_rollout(model: Path, tmp_path: Path) -> None:
    """The first step's episodes, scored by our own forward pass, have the same metrics to 1e-5; what TRL logs of the
    same quantities is the same too."""
    talks = Talks()
    trainer = trained(model, tmp_path, talks, solved_at=1.0)
    run = Run.open(tmp_path / "isentrope")
    compare_records(run.records[0], episodes_of(talks.given[0], load_folder(model, CPU, "float32"), 1.0))
    logged = trainer.state.log_history
    same_there = {"return/mean": "reward", "loss/total": "loss", "grad_norm": "grad_norm", "lr": "learning_rate"}
    same_there |= {"advantage/zero_groups": "frac_reward_zero_std", "rewards/rewarded": "rewards/rewarded/mean"}
    for step in range(3):
        for key, theirs in same_there.items():
            assert run.records[step][key] == pytest.approx(logged[step][theirs], rel=1e-5), (step, key)
    assert run.last_step == 3
    for step in (1, 2, 3):
        episodes = run.episodes(step)
        assert len(episodes) == 8
        assert np.mean([episode.ret for episode in episodes]) == pytest.approx(logged[step - 1]["reward"])
        advantages = run.advantages(step, episodes)
        assert len(advantages) == 8
        said = [turn.response_ids.tolist() for turn in episodes[0].turns]
        row = talks.given[step - 1][0]
        assert [token for turn in said for token in turn] == [
            token for token, own in zip(row["completion_ids"], row["env_mask"], strict=True) if own
        ]


def test_several_updates_of_a_rollout_are_one_step(model: Path, tmp_path: Path) -> None:
    changes = LEARNS | {"num_iterations": 2, "steps_per_generation": 4, "beta": 0.05, "max_steps": 5}
    trainer = trained(model, tmp_path, Talks(), changes)
    records = read_records(tmp_path / "isentrope" / "metrics.jsonl")
    assert [(record["step"], record["update/count"]) for record in records] == [(1, 4.0), (2, 1.0)]
    assert records[0]["grad_norm"] == pytest.approx(
        np.mean([log["grad_norm"] for log in trainer.state.log_history[:4]]), rel=1e-5
    )
    assert records[0]["kl/k3"] == pytest.approx(np.mean([log["kl"] for log in trainer.state.log_history[:4]]), rel=1e-5)
    assert records[0]["ratio/min"] < 1 < records[0]["ratio/max"]
    assert records[0]["kl/old"] > 0
    assert np.isfinite(
        np.concatenate([t.entropies for e in Run.open(tmp_path / "isentrope").episodes(1) for t in e.turns])
    ).all()


def test_what_an_update_over_several_rollouts_learns_from_is_one_step(model: Path, tmp_path: Path) -> None:
    changes = LEARNS | {"gradient_accumulation_steps": 4, "steps_per_generation": 2}
    trained(model, tmp_path, Talks(), changes)
    run = Run.open(tmp_path / "isentrope")
    assert [len(run.episodes(step)) for step in (1, 2, 3)] == [16, 16, 16]
    assert run.last_step == 3 == run.setting("run.steps")


@pytest.mark.parametrize("changes", [LEARNS, LEARNS | {"num_iterations": 2, "steps_per_generation": 4}])
def test_looking_changes_nothing(model: Path, tmp_path: Path, changes: Any) -> None:
    ran = [
        trained(model, tmp_path / str(folder), Talks(), changes, methods=["aem", "epo"], run_folder=folder)
        for folder in (False, True)
    ]
    assert same(weights(ran[0]), weights(ran[1]))
    assert not (tmp_path / "False" / "isentrope").exists()
    assert ran[0].instruments is None
    shown = [{key: value for key, value in log.items() if "time" not in key and "second" not in key}
             for trainer in ran for log in trainer.state.log_history]  # fmt: skip
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]


def test_methods_record_there_too(model: Path, tmp_path: Path) -> None:
    trainer = trained(model, tmp_path, Talks(), methods=["aem", ("epo", {"coefficient": 0.05})])
    run = Run.open(tmp_path / "isentrope")
    for key in ("aem/weight_max", "epo/coefficient", "loss/epo"):
        logged = [log[key] for log in trainer.state.log_history if key in log]
        assert run.curve(key).values == pytest.approx(tuple(logged), rel=1e-6)
    assert run.methods == ("aem", "epo")
    assert run.setting("method.epo.coefficient") == 0.05


# -- the commands


def test_doctor_report_watch_and_table_work_on_it(model: Path, tmp_path: Path) -> None:
    """Success of TRL's evaluations is in the table."""
    rows = {"prompt": [f"{i}" for i in range(4)], "kind": ["heat", "cool"] * 2, "index": [7, 8, 9, 10]}
    changes = LEARNS | {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "max_steps": 4}
    args = settings(tmp_path, **changes, num_generations_eval=1)
    data = datasets.Dataset.from_dict(rows)
    trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), solved_at=1.0, eval_dataset=data)
    trainer.train()
    folder = tmp_path / "isentrope"
    run = Run.open(folder)
    assert run.curve("eval/eval/success").steps == (2, 4)
    assert run.curve("eval/eval/games").values == (4.0, 4.0)
    assert run.curve("eval/eval/return").values == pytest.approx(
        tuple(log["eval_reward"] for log in trainer.state.log_history if "eval_reward" in log)
    )
    assert {(one.kind, one.index) for one in run.episodes(4, "eval")} == {
        ("heat", 7),
        ("cool", 8),
        ("heat", 9),
        ("cool", 10),
    }
    assert "TRL 1." in told("doctor", folder)
    assert "imported" not in told("doctor", folder)
    assert "eval" in told("table", folder)
    told("report", folder)
    page = (folder / "report.html").read_text()
    assert "trained by" in page
    watched = Watched(folder, "one")
    watched.refresh()
    assert (watched.status(held_locks(), 0.0), watched.config["rollout.group_size"]) == ("finished", 4)
    before = trainer.evaluate()
    assert before["eval_reward"] >= 0
    assert Run.open(folder).curve("eval/eval/success").steps == (2, 4, 4)  # once more, in the same folder
    assert sorted(path.name for path in tmp_path.glob("isentrope*")) == ["isentrope"]


def test_what_is_not_known_is_not_said(model: Path, tmp_path: Path) -> None:
    """Rewards on a scale of their own, and completions without tags."""

    def long(completion_ids: Sequence[Sequence[int]], **rest: Any) -> list[float]:
        return [float(len(ids)) for ids in completion_ids]

    class Plain(Talks):
        def talk(self, trainer: Any, prompt: str, seed: int) -> dict[str, Any]:
            ids = np.random.default_rng(seed).integers(0, 90, 12).tolist()
            return {"prompt_ids": [1, 2], "completion_ids": ids, "env_mask": [1] * 12, "ret": float(seed % 3)}

    trained(model, tmp_path, Plain())
    (record, *_) = read_records(tmp_path / "isentrope" / "metrics.jsonl")
    hidden = ("success", "valid_ratio", "verdict", "entropy/think", "entropy/outcome", "likelihood")
    assert not [key for key in record if key.startswith(hidden)]
    assert {"entropy/token", "return/mean", "response/tokens"} < set(record)
    assert "whether tasks were solved" in told("doctor", tmp_path / "isentrope")


def test_alarms_are_given_as_it_trains(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(model, tmp_path, Talks(even=True), LEARNS | {"max_steps": 8})
    alarms = read_records(tmp_path / "isentrope" / "events.jsonl", "alarm")
    assert [alarm["name"] for alarm in alarms] == ["no_signal"]
    assert "num_generations" in alarms[0]["remedy"] or "groups" in alarms[0]["remedy"]
    assert "ALARM no_signal" in caplog.text


# -- restarts


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.plugins import test_trl_runs as runs, trl_lab
class Kill(trl_lab.transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **rest):
        if state.global_step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
trainer = runs.learning(Path(sys.argv[1]), Path(sys.argv[2]), callbacks=[Kill()])
trainer.args.save_steps = trainer.state.save_steps = 3
trainer.train()
"""


@pytest.mark.slow(40)
def test_a_resumed_run_goes_on_in_its_folder(model: Path, tmp_path: Path) -> None:
    """Killed a step after its last checkpoint: that step is forgotten and made again, and the logs are those of a run
    that was never killed."""
    learning(tmp_path / "whole", model).train()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(model)], cwd=ROOT, env=environment,
                   capture_output=True, check=False)  # fmt: skip
    folder = tmp_path / "killed" / "isentrope"
    assert [record["step"] for record in read_records(folder / "metrics.jsonl")] == [1, 2, 3, 4]
    watched = Watched(folder, "one")
    watched.refresh()
    assert watched.status(set(), 1e12) == "stopped"
    learning(tmp_path / "killed", model).train(resume_from_checkpoint=True)
    for name in ("metrics.jsonl", "episodes/step-000005.parquet", "episodes/scores-000004.parquet"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / "isentrope" / name).read_bytes(), name
    assert len(Run.open(folder).about["starts"]) == 2


def test_another_run_in_the_same_place_has_a_folder_of_its_own(model: Path, tmp_path: Path) -> None:
    changes = LEARNS | {"save_strategy": "steps", "save_steps": 1}
    for _ in range(2):
        trained(model, tmp_path, Talks(), changes)
    assert free(tmp_path / "isentrope").name == "isentrope-3"
    again = make_trainer(EntropyGRPOTrainer, model, settings(tmp_path, **changes | {"max_steps": 4}), Talks())
    again.train(resume_from_checkpoint=True)  # the checkpoint is of the second run
    steps = [
        [r["step"] for r in read_records(tmp_path / name / "metrics.jsonl")] for name in ("isentrope", "isentrope-2")
    ]
    assert steps == [[1, 2, 3], [1, 2, 3, 4]]
    assert free(tmp_path / "isentrope").name == "isentrope-3"


def test_a_checkpoint_without_our_state_is_resumed_all_the_same(model: Path, tmp_path: Path) -> None:
    changes = LEARNS | {"save_strategy": "steps", "save_steps": 1}
    trained(model, tmp_path, Talks(), changes, run_folder=False)
    again = make_trainer(EntropyGRPOTrainer, model, settings(tmp_path, **changes | {"max_steps": 5}), Talks())
    again.train(resume_from_checkpoint=True)
    assert [r["step"] for r in read_records(tmp_path / "isentrope" / "metrics.jsonl")] == [4, 5]
    (tmp_path / "checkpoint-5" / module.STATE).write_text('{"steps": "x", "folder": "../.."')
    once_more = make_trainer(EntropyGRPOTrainer, model, settings(tmp_path, **changes | {"max_steps": 6}), Talks())
    once_more.train(resume_from_checkpoint=True)
    assert [r["step"] for r in read_records(tmp_path / "isentrope" / "metrics.jsonl")] == [4, 5, 6]


# -- faults


def plain_weights(model: Path, folder: Path, rollouts: Any = None) -> list[torch.Tensor]:
    return weights(trained(model, folder, rollouts or Talks(), run_folder=False))


def test_a_folder_that_cannot_be_written(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    trainer = trained(model, tmp_path / "a", Talks(), run_folder=tmp_path / "file" / "runs" / "mine")
    assert same(weights(trainer), plain_weights(model, tmp_path / "b"))
    assert [record.message for record in caplog.records if "opening the run folder failed" in record.message]
    assert len([record for record in caplog.records if "failed" in record.message]) == 1


def test_a_disk_that_is_full_for_a_while(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines of steps 2 and 3 do not fit; those of step 2 are cut in the middle. Steps 4 and 5 are whole again."""
    from isentrope.metrics import log

    real, number = log.append_record, [0]

    def full(path: Path, record: dict[str, Any]) -> None:
        if path.name == "metrics.jsonl" and record["step"] in (2, 3):
            number[0] += 1
            with path.open("ab") as file:
                file.write(b'{"step": 2, "ki')
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, record)

    monkeypatch.setattr(log, "append_record", full)
    changes = LEARNS | {"max_steps": 5}
    trainer = trained(model, tmp_path / "a", Talks(), changes)
    other = trained(model, tmp_path / "b", Talks(), changes, run_folder=False)
    assert number == [2]
    assert same(weights(trainer), weights(other))
    lines = (tmp_path / "a" / "isentrope" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 4, 5]
    assert len([record for record in caplog.records if "No space left" in record.message]) == 1
    monkeypatch.setattr(atomic, "write_atomically", lambda path, data: 1 / 0)


@pytest.mark.parametrize(
    "broken",
    ["_looked", "_brought", "_watcher", "_metrics", "_steps_by", "save", "evaluation", "last", "stored", "Rolled"],
)
def test_an_instrument_that_breaks(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("planted")

    kinds: dict[str, Any] = dict.fromkeys(("save", "evaluation"), module.Watcher)
    kinds |= dict.fromkeys(("last", "stored", "Rolled"), module)
    name = {"save": "state_dict"}.get(broken, broken)
    monkeypatch.setattr(kinds.get(broken, module.Instruments), name, breaks)
    changes = LEARNS | {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    args = settings(tmp_path, **changes, per_device_eval_batch_size=4)
    data = datasets.Dataset.from_dict({"prompt": ["1"]})
    trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), eval_dataset=data)
    trainer.train()
    assert trainer.state.global_step == 3
    if broken == "_steps_by":  # asked of a run that goes on
        trainer.args.max_steps = 4
        trainer.train(resume_from_checkpoint=True)
    assert len([record for record in caplog.records if "planted" in record.message]) == 1


def test_rewards_and_texts_that_are_not_as_they_should_be(model: Path, tmp_path: Path) -> None:
    """No reward, infinite ones, hostile prompts and kinds, an empty completion."""
    prompts = ["<think></think><action>x</action>\x1b[2J", "‮evil", "a" * 50_000, "\x00"]
    rows = {
        "prompt": prompts * 2,
        "kind": ["a/b\n\x1b", "../../etc", "x" * 5000, ""] * 2,
        "index": [-1, 2, 3, 2**60] * 2,
    }

    class Odd(Talks):
        def talk(self, trainer: Any, prompt: str, seed: int) -> dict[str, Any]:
            ids = trainer.processing_class.encode(prompt[:40])[:30] or [1]
            return {"prompt_ids": [1], "completion_ids": ids, "env_mask": [seed % 4 != 1] * len(ids), "ret": 0.0}

    def odd(completion_ids: Sequence[Sequence[int]], **rest: Any) -> list[float | None]:
        return [None, float("inf"), 1.0, 0.0] * (len(completion_ids) // 4)

    trainer = make_trainer(EntropyGRPOTrainer, model, settings(tmp_path, **LEARNS), Odd())
    trainer.reward_funcs, trainer.train_dataset = [odd], datasets.Dataset.from_dict(rows)
    trainer.train()
    assert trainer.state.global_step == 3
    folder = tmp_path / "isentrope"
    run = Run.open(folder)
    assert run.last_step == 3
    assert not run.problems
    assert {episode.stop for episode in run.episodes(1)} >= {"garbage", "terminated"} - {"terminated"}
    assert all(len(episode.kind) <= 40 for episode in run.episodes(1))
    told("doctor", folder)
    told("report", folder)


def test_an_error_of_the_training_is_the_reason_why_the_run_stopped(model: Path, tmp_path: Path) -> None:
    class Breaks(transformers.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.global_step == 2:
                raise OSError("the disk of somebody else")

    trainer = make_trainer(EntropyGRPOTrainer, model, settings(tmp_path, **LEARNS), Talks(), [Breaks()])
    with pytest.raises(OSError, match="somebody else"):
        trainer.train()
    (stop,) = read_records(tmp_path / "isentrope" / "events.jsonl", "stop")
    assert (stop["step"], stop["name"], stop["text"]) == (2, "OSError", "the disk of somebody else")
    assert not Run.open(tmp_path / "isentrope").alive


def test_the_folder_is_held_while_it_is_written(tmp_path: Path) -> None:
    first = WatchedFolder(tmp_path / "run", {"program": "TRL"})
    assert Run.open(first.path).alive
    second = WatchedFolder(tmp_path / "run", {"program": "TRL"})
    assert second.path.name == "run-2"
    first.close()
    second.close()
