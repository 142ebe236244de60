"""Memory told before loading: the sums, what is free, and what is said when it is not enough."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from isentrope.config.schema import Choice, CriticSettings, LearnSettings
from isentrope.core.errors import EngineError
from isentrope.learning.critic import Critic
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.models import memory
from isentrope.models.memory import (
    BFLOAT16,
    FLOAT32,
    Need,
    activations_per_token,
    check_memory,
    free_memory,
    gib,
    training_need,
)
from tests.builders.toy_runs import make_model, toy_config
from tests.models.helpers import small_policy

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Size:
    parameters: int = 1000
    linear_edges: int = 50
    layers: int = 2
    width: int = 8
    inner: int = 16


def test_a_trained_parameter_takes_sixteen_bytes_and_its_reference_four() -> None:
    """Weight, gradient and two moments, four bytes each; bfloat16 adds two for the weight that is computed with."""
    assert training_need(Size(), FLOAT32) == Need(weights=4000, optimiser=12000)
    assert training_need(Size(), FLOAT32, reference=True).certain == 20000
    assert training_need(Size(), BFLOAT16).certain == 18000
    assert training_need(Size(), BFLOAT16, reference=True).certain == 20000
    assert training_need(Size(), BFLOAT16, masters=False).certain == 8000


def test_adapters_are_counted_by_the_edges_of_linear_layers_and_need_no_reference() -> None:
    need = training_need(Size(), BFLOAT16, lora_rank=4, reference=True)
    assert need == Need(weights=2000 + 4 * 200, optimiser=12 * 200)


def test_the_optimiser_really_holds_that_much() -> None:
    """A real AdamW step: gradients and moments are counted in bytes."""
    layer = torch.nn.Linear(20, 50, bias=False)
    adam = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 20)).sum().backward()
    adam.step()
    moments = [v for state in adam.state.values() for v in state.values() if v.dim() == 2]
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    assert sum(t.nbytes for t in [*moments, *gradients]) == training_need(Size(), FLOAT32).optimiser


def test_a_separate_critic_is_one_more_model_that_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = training_need(Size(), FLOAT32)
    assert training_need(Size(), FLOAT32, critic=True).certain == 2 * alone.certain
    monkeypatch.setattr(memory, "free_memory", lambda _: 20 * 2**30)
    big = Size(parameters=2**30)
    gae = LearnSettings(advantage=Choice("gae"))
    for learn, critic in ((gae, None), (gae, CriticSettings(kind="head")), (LearnSettings(), CriticSettings())):
        check_memory("big", big, CPU, 0, torch.float32, learn, critic)
    with pytest.raises(EngineError, match=r"16.0 GiB for the critic.*critic.kind=head"):
        check_memory("big", big, CPU, 0, torch.float32, gae, CriticSettings())


def test_the_critic_really_is_that_large() -> None:
    policy = small_policy()
    critic = Critic(policy, CriticSettings(), LearnSettings())
    assert critic.body is not None
    size = Size(parameters=sum(p.numel() for p in policy.module.parameters()))
    held = sum(p.nbytes for p in critic.body.module.parameters())
    learning = sum(p.numel() for p in critic.optimiser.parameters) - sum(p.numel() for p in critic.head.parameters())
    assert held + (FLOAT32 + memory.ADAM) * learning == training_need(size, FLOAT32, critic=True).critic


def test_a_run_that_goes_on_is_looked_at_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go on elsewhere, or beside another program."""
    config = toy_config(make_model(tmp_path / "model"), "run.steps=2", "sft.epochs=1", "sft.games=4")
    for name, command in (("train", train), ("sft", warm_up)):
        command(config, tmp_path / name, quiet=True)
        with monkeypatch.context() as patch:
            patch.setattr(memory, "free_memory", lambda _: 10_000)
            with pytest.raises(EngineError, match="for gradients and optimiser"):
                command(config, tmp_path / name, resume=True, quiet=True)


def test_computing_twice_needs_less() -> None:
    large = Size(layers=30, width=576, inner=1536)
    assert activations_per_token(large, True) < activations_per_token(large, False) / 5


def write_limit(folder: Path, limit: str) -> None:
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text("700\n")
    (folder / "memory.stat").write_text("anon 1\ninactive_file 200\n")


def test_a_containers_limit_counts_and_cached_files_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    everything = free_memory("cpu")
    write_limit(tmp_path, "1000\n")
    assert free_memory("cpu") == 500
    write_limit(tmp_path, "max\n")
    unlimited = free_memory("cpu")
    assert everything is not None
    assert unlimited is not None
    assert unlimited > 500


def test_the_old_form_of_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    old = tmp_path / "memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("1000")
    (old / "memory.usage_in_bytes").write_text("400")
    (old / "memory.stat").write_text("total_inactive_file 100")
    assert free_memory("cpu") == 700


def test_unknown_devices_are_not_guessed() -> None:
    assert free_memory("mps") is None
    check_memory("m", Size(parameters=10**15), torch.device("meta"), 0, torch.float32, None)


def test_too_little_is_refused_with_the_numbers_and_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda _: 10 * 2**30)
    big = Size(parameters=2**30, linear_edges=2**20)
    with pytest.raises(EngineError, match=r"4.0 GiB for weights, 12.0 GiB .* and 10.0 GiB are free on cpu") as caught:
        check_memory("big", big, CPU, 0, torch.float32, LearnSettings(kl=0.01))
    assert "policy.lora_rank=16" in str(caught.value)
    assert "learn.kl=0" in str(caught.value)
    check_memory("big", big, CPU, 0, torch.float32, None)  # to sample it fits
    with pytest.raises(EngineError, match=r"run\.weights=bfloat16"):
        check_memory("huge", Size(parameters=2**32), CPU, 0, torch.float32, None)


def test_activations_that_may_not_fit_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda _: 20_000_000)
    size = Size(layers=4, width=64, inner=128)
    check_memory("m", size, CPU, 0, torch.float32, LearnSettings(micro_tokens=16384))
    said = capsys.readouterr().err
    assert said.startswith("warning: m takes")
    assert "learn.micro_tokens" in said
    check_memory("m", size, CPU, 0, torch.float32, LearnSettings(micro_tokens=64))
    assert capsys.readouterr().err == ""


def test_bytes_are_readable() -> None:
    assert [gib(2**30), gib(3 * 2**19), gib(0)] == ["1.0 GiB", "2 MiB", "0 MiB"]
