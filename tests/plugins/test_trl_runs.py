"""Runs of TRL with the plug-in: without methods nothing changes, a killed run goes on with the methods' state, two
processes compute what one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("trl", reason="needs TRL: pip install -e '.[trl]'")

from isentrope.core.errors import TrainError
from isentrope.plugins.trl import EntropyGRPOTrainer
from isentrope.plugins.trl.trainer import STATE
from tests.plugins.trl_lab import Talks, make_folder, make_trainer, settings, trl

ROOT = Path(__file__).parents[2]
METHODS: list[Any] = ["aem", "ea", ("epo", {"coefficient": 0.05, "kappa_high": 0.5}), ("seal", {"alpha": 0.5})]
CLOCK = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("llama"))


def weights(trainer: Any) -> list[Tensor]:
    return [weight.detach().clone() for weight in trainer.model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def history(trainer: Any) -> list[dict[str, float]]:
    return [{key: value for key, value in each.items() if key not in CLOCK} for each in trainer.state.log_history]


@pytest.mark.parametrize("changes", [{}, {"num_iterations": 2, "steps_per_generation": 4, "beta": 0.05}])
@pytest.mark.parametrize("sampled", ["made up", "by TRL"])
def test_without_methods_every_number_is_trls(model: Path, tmp_path: Path, sampled: str, changes: Any) -> None:
    """Three steps that learn: losses, metrics and weights, bit for bit."""
    ran: list[Any] = []
    for kind in (trl.GRPOTrainer, EntropyGRPOTrainer):
        args = settings(tmp_path / kind.__name__, learning_rate=1e-3, max_grad_norm=1.0, **changes)
        rollouts = Talks() if sampled == "made up" else None
        trainer = make_trainer(kind, model, args, rollouts)
        trainer.train()
        ran.append(trainer)
    theirs, ours = ran
    assert history(theirs) == history(ours)
    assert same(weights(theirs), weights(ours))
    assert not same(weights(theirs), weights(make_trainer(trl.GRPOTrainer, model, theirs.args, None)))


@pytest.mark.parametrize("changes", [{}, {"num_iterations": 2, "steps_per_generation": 4}])
def test_coefficients_of_zero_leave_every_number_as_it_is(model: Path, tmp_path: Path, changes: Any) -> None:
    off = [("aem", {"strength": 0.0}), ("ea", {"alpha": 0.0}), ("epo", {"coefficient": 0.0}), ("seal", {"alpha": 0.0})]
    ran: list[Any] = []
    for methods in ([], off):
        args = settings(tmp_path, learning_rate=1e-3, **changes)
        trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), methods=methods)
        trainer.train()
        ran.append(trainer)
    assert same(weights(ran[0]), weights(ran[1]))


def learning(folder: Path, model: Path, **options: Any) -> Any:
    """Sampled by TRL itself, so that what is drawn depends on the weights, and reward on what was drawn."""
    args = settings(
        folder, max_steps=5, learning_rate=3e-3, save_strategy="steps", save_steps=1, max_completion_length=12,
        save_total_limit=None,
    )  # fmt: skip
    return make_trainer(EntropyGRPOTrainer, model, args, None, methods=METHODS, **options)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.plugins import test_trl_runs as runs, trl_lab
class Kill(trl_lab.transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **rest):
        if state.global_step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
runs.learning(Path(sys.argv[1]), Path(sys.argv[2]), callbacks=[Kill()]).train()
"""


@pytest.mark.slow(40)
def test_a_killed_run_goes_on_as_if_nothing_had_been(model: Path, tmp_path: Path) -> None:
    whole = learning(tmp_path / "whole", model)
    whole.train()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(model)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}, capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    again = learning(tmp_path / "killed", model)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 5
    assert same(weights(whole), weights(again))
    states = [{method.name: method.state_dict() for method in trainer.methods} for trainer in (whole, again)]
    assert len(states[0]["epo"]["history"]) == 5
    assert states[0]["epo"] == states[1]["epo"]
    for key, value in states[0]["seal"]["classifier"].items():
        assert torch.equal(value, states[1]["seal"]["classifier"][key])


def test_schedules_know_how_many_rollouts_a_run_has(model: Path, tmp_path: Path) -> None:
    """By epochs too, and after a restart: 64 prompts × 4 completions in updates of 16, two of them for each rollout,
    and each rollout learnt from twice."""
    changes: dict[str, Any] = {"max_steps": -1, "num_train_epochs": 1, "steps_per_generation": 8, "num_iterations": 2}
    changes |= {"gradient_accumulation_steps": 4, "save_strategy": "steps", "save_steps": 8}
    trainers = [
        make_trainer(EntropyGRPOTrainer, model, settings(tmp_path, **changes), Talks(), methods=["epo"])
        for _ in range(2)
    ]
    assert trainers[0].methods[0].steps == 1  # not known yet, and not kept
    trainers[0].train()
    trainers[1].train(resume_from_checkpoint=str(tmp_path / "checkpoint-16"))
    for trainer in trainers:
        assert trainer.state.global_step == 32
        assert trainer.methods[0].steps == 8
        assert len(trainer.methods[0].history) == 8


def test_a_checkpoint_without_the_methods_state(model: Path, tmp_path: Path) -> None:
    learning(tmp_path, model).train()
    path = tmp_path / "checkpoint-5" / STATE
    whole = path.read_bytes()
    for spoil in (path.unlink, lambda: path.write_bytes(whole[:100])):
        spoil()
        with pytest.raises(TrainError, match=r"no state of the methods can be read.*resume a checkpoint"):
            learning(tmp_path, model).train(resume_from_checkpoint=True)
    path.write_bytes(whole)
    args = settings(tmp_path, max_steps=6)
    with pytest.raises(TrainError, match="no state of the method 'entropy_bonus'"):
        make_trainer(EntropyGRPOTrainer, model, args, Talks(), methods=["entropy_bonus"]).train(
            resume_from_checkpoint=True
        )


@pytest.mark.slow(60)
def test_two_processes_as_in_our_learner(model: Path, tmp_path: Path) -> None:
    """On the loopback, by gloo: the second of three groups lies on both processes."""
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2",
         "-m", "tests.plugins.trl_two_processes", str(model), str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    assert "equal: 6 sets of methods" in run.stdout
    assert "went on: 2 faults" in run.stdout
