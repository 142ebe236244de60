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
    Wanted,
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
    kv_width: int = 4
    vocabulary: int = 32
    heads: int = 2
    head_width: int = 4
    architecture: str = "LlamaForCausalLM"


def test_a_trained_parameter_takes_sixteen_bytes_and_its_reference_four() -> None:
    """Weight, gradient and two moments, four bytes each; bfloat16 adds two for the weight that is computed with."""
    assert training_need(Size(), FLOAT32) == Need(weights=4000, moments=8000, gradients=4000)
    assert training_need(Size(), FLOAT32, reference=True).certain == 20000
    assert training_need(Size(), BFLOAT16).certain == 18000
    assert training_need(Size(), BFLOAT16, reference=True).certain == 20000
    assert training_need(Size(), BFLOAT16, masters=False).certain == 8000
    assert training_need(Size(), BFLOAT16) == Need(weights=2000, copies=4000, moments=8000, gradients=4000)


def test_eight_bits_and_moments_on_the_host_are_counted() -> None:
    """Copies are then the 16 bits that a weight lacks; 8-bit moments have a scale of four bytes for 256 of them."""
    million = Size(parameters=256 * 10**6)
    lean = training_need(million, BFLOAT16, eight_bits=True)
    assert lean == Need(weights=512 * 10**6, copies=512 * 10**6, moments=520 * 10**6, gradients=1024 * 10**6)
    away = training_need(million, BFLOAT16, on_host=True)
    assert away.host == 2048 * 10**6
    assert away.moments == 8 * memory.ON_THE_WAY  # what is on its way
    assert away.total == 2048 * 10**6 + away.moments


def test_adapters_are_counted_by_the_edges_of_linear_layers_and_need_no_reference() -> None:
    need = training_need(Size(), BFLOAT16, lora_rank=4, reference=True)
    assert need == Need(weights=2000 + 4 * 200, moments=8 * 200, gradients=4 * 200)


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
    monkeypatch.setattr(memory, "free_memory", lambda _: 21 * 2**30)
    big = Size(parameters=2**30)
    gae = LearnSettings(advantage=Choice("gae"))
    for learn, critic in ((gae, None), (gae, CriticSettings(kind="head")), (LearnSettings(), CriticSettings())):
        check_memory("big", big, CPU, 0, torch.float32, learn, critic)
    with pytest.raises(EngineError, match=r"16.0 GiB for the critic.*15.0 GiB too little.*critic.kind=head"):
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
    assert "10.0 GiB too little. These would fit: policy.lora_rank=16 (4.3 GiB); or" in str(caught.value)
    monkeypatch.setattr(memory, "free_memory", lambda _: 17 * 2**30)
    with pytest.raises(EngineError) as caught:
        check_memory("big", big, CPU, 0, torch.float32, LearnSettings(kl=0.01))
    assert "learn.kl=0" in str(caught.value)
    assert "learn.optimiser=adamw8 (14" in str(caught.value)
    assert "learn.moments" not in str(caught.value)  # there is no other memory
    monkeypatch.setattr(memory, "free_memory", lambda _: 10 * 2**30)
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


SEVEN = Size(7_615_616_512, 10**6, 28, 3584, 18_944, 1024, 152_064, 28, 128, "Qwen2ForCausalLM")
H200, CUDA = 139 * 2**30, torch.device("cuda")


def test_on_a_gpu_every_item_is_counted() -> None:
    """Seven billion weights by hand, in passes of 16,384 tokens. Kept for each token in each of 28 layers: the stream,
    queries, what attention saw, keys and values, 2 · (3584 + 2 · 3584 + 1024) bytes, and in float32 the normalisers of
    28 heads and of the norm, 4 · 29; behind the last layer 12 · 3584."""
    need = Wanted(SEVEN, BFLOAT16, 0, LearnSettings(kl=0), gpu=True, cache_tokens=65_536).need
    assert need.cache == 65_536 * 28 * 1024 * 2
    assert need.activations == 16_384 * (28 * (2 * 11_776 + 4 * 29) + 12 * 3584)
    assert need.layer >= 6 * 2**27 + 8 * 152_064 * 3584  # the head's logits and its gradient in float32, twice
    assert need.total == need.certain + sum(
        (need.engine, need.cache, need.passes, need.activations, need.layer, need.base)
    )
    twice = Wanted(SEVEN, BFLOAT16, 0, LearnSettings(kl=0, gradient_checkpointing=True), gpu=True).need
    assert twice.activations == 16_384 * (28 * 2 * 3584 + 12 * 3584)
    adapted = Wanted(SEVEN, BFLOAT16, 16, LearnSettings(kl=0), gpu=True).need
    assert adapted.activations > need.activations + 16_384 * 28 * 6 * 18_944


def test_seven_billion_on_one_card(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What does not fit says by how much, and what would."""
    monkeypatch.setattr(memory, "free_memory", lambda device: H200 if device == "cuda" else 100 * 2**30)
    monkeypatch.setattr(memory, "memory_of", lambda _: H200)
    check_memory("seven", SEVEN, CUDA, 0, torch.bfloat16, LearnSettings(kl=0), None, 65_536)
    said = capsys.readouterr().err
    assert "learn.optimiser=adamw8 (" in said
    assert "learn.moments=host (" in said
    for less in ({"optimiser": "adamw8"}, {"moments": "host"}):
        check_memory("seven", SEVEN, CUDA, 0, torch.bfloat16, LearnSettings(**less), None, 65_536)
        assert capsys.readouterr().err == ""  # with a reference too
    with pytest.raises(EngineError, match=r"GiB too little\. These would fit: learn\.optimiser=adamw8"):
        check_memory("seven", SEVEN, CUDA, 0, torch.bfloat16, LearnSettings(), None, 65_536)


def test_too_little_main_memory_is_said_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: H200 if device == "cuda" else 60 * 2**30)
    monkeypatch.setattr(memory, "memory_of", lambda _: H200)
    with pytest.raises(
        EngineError, match=r"56\.7 GiB .* main memory, and 60\.0 GiB are free there: 2\.4 GiB too little"
    ):
        check_memory("seven", SEVEN, CUDA, 0, torch.bfloat16, LearnSettings(moments="host"))
    both = LearnSettings(moments="host", optimiser="adamw8")
    check_memory("seven", SEVEN, CUDA, 0, torch.bfloat16, both)
    monkeypatch.setattr(memory, "free_memory", lambda _: H200)  # on a CPU there is one memory, and it is counted once
    with pytest.raises(EngineError, match=r"85\.1 GiB for gradients and optimiser"):
        check_memory("seven", SEVEN, CPU, 0, torch.float32, LearnSettings(moments="host"))


def test_bytes_are_readable() -> None:
    assert [gib(2**30), gib(3 * 2**19), gib(0)] == ["1.0 GiB", "2 MiB", "0 MiB"]
