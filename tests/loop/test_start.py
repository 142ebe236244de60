"""What run.json says of the weights that a run begins from: how many, and which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope import __version__
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.study.read import recorded
from tests.builders.toy_runs import make_model, toy_config

SHORT = ("run.steps=2", "run.eval_every=0", "eval.games=2", "methods=[]", "learn.mini_batches=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def policy_of(model: Path) -> Policy:
    config = toy_config(model)
    return load_policy(config.policy, config.run, config.learn, config.critic, config.agent.max_context)


def told(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def changed(policy: Policy, name: str, place: int, by: float = 1e-3) -> None:
    with torch.no_grad():
        dict(policy.module.named_parameters())[name].view(-1)[place] += by


def test_equal_weights_have_one_fingerprint_and_one_weight_makes_another(model: Path, tmp_path: Path) -> None:
    """The first and the last number of every tensor; put back, the fingerprint is what it was."""
    policy = policy_of(model)
    first = policy.fingerprint()
    assert first == policy.fingerprint() == policy_of(model).fingerprint()
    assert policy_of(make_model(tmp_path / "again")).fingerprint() == first  # the same weights in another folder
    seen = {first}
    for name, parameter in policy.module.named_parameters():
        for place in (0, -1):
            before = parameter.detach().clone()
            changed(policy, name, place)
            seen.add(policy.fingerprint())
            with torch.no_grad():
                parameter.copy_(before)
    assert len(seen) == 1 + 2 * len(list(policy.module.named_parameters()))
    assert policy.fingerprint() == first


def test_a_run_says_its_version_size_and_start(model: Path, tmp_path: Path) -> None:
    train(toy_config(model, *SHORT, "methods=['entropy_bonus']"), tmp_path / "a", quiet=True)
    record, policy = told(tmp_path / "a"), policy_of(model)
    assert record["version"] == __version__
    assert record["parameters"] == sum(one.numel() for one in policy.module.parameters())
    assert record["start"] == policy.fingerprint()  # as it began, and not as it ended
    assert policy_of(tmp_path / "a/checkpoints/step-000002/policy").fingerprint() != record["start"]
    read = recorded(record)
    assert (read["version"], read["parameters"], read["start"]) == (
        record["version"], record["parameters"], record["start"]
    )  # fmt: skip


def test_runs_from_one_start_say_so_whatever_their_seed_and_algorithm(model: Path, tmp_path: Path) -> None:
    """Critics are drawn by the seed and are no part of the start."""
    ways = (
        ("run.seed=0",), ("run.seed=1",),
        ("learn.algorithm=ppo", "critic.lr=1e-2"), ("learn.algorithm=ppo", "critic.lr=1e-2", "run.seed=1"),
    )  # fmt: skip
    found = set()
    for n, way in enumerate(ways):
        train(toy_config(model, *SHORT, *way), tmp_path / str(n), quiet=True)
        found.add((told(tmp_path / str(n))["start"], told(tmp_path / str(n))["parameters"]))
    assert len(found) == 1


def test_adapters_are_no_part_of_the_start(model: Path, tmp_path: Path) -> None:
    train(toy_config(model, *SHORT, "policy.lora_rank=2"), tmp_path / "a", quiet=True)
    assert told(tmp_path / "a")["start"] == policy_of(model).fingerprint()


def test_the_start_survives_a_resume(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that the run goes on with are others by then."""
    config = toy_config(model, *SHORT, "run.checkpoint_every=1", "methods=['entropy_bonus']")
    monkeypatch.setattr("isentrope.loop.train.say_end", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(config, tmp_path / "a", quiet=True)
    before = told(tmp_path / "a")
    last = tmp_path / "a/checkpoints/step-000002"
    for path in sorted(last.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    last.rmdir()
    monkeypatch.undo()
    train(config, tmp_path / "a", resume=True, quiet=True)
    now = told(tmp_path / "a")
    assert len(now["starts"]) == 2  # how it was resumed: tests/runs/test_origin.py
    mutable = {"starts": None, "sha256": None}
    assert now | mutable == before | mutable
    assert before["start"] == policy_of(model).fingerprint()


def test_a_warm_up_says_it_too_and_what_comes_of_it_is_another_start(model: Path, tmp_path: Path) -> None:
    warm_up(toy_config(model, "sft.epochs=1"), tmp_path / "warm", quiet=True)
    train(toy_config(tmp_path / "warm", *SHORT), tmp_path / "a", quiet=True)
    warm, run = told(tmp_path / "warm"), told(tmp_path / "a")
    assert warm["kind"] == "sft"
    assert warm["start"] == policy_of(model).fingerprint() != run["start"]
    assert warm["parameters"] == run["parameters"]
