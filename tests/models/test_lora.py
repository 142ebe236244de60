"""Adapters on tiny models of three families and on our own, with the real PEFT."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from isentrope.config.schema import CriticSettings, LearnSettings, PolicySettings, RunSettings
from isentrope.core.errors import ConfigError, EngineError
from isentrope.core.types import TokenBatch
from isentrope.learning.critic import Critic
from isentrope.learning.optimiser import make_optimiser
from isentrope.learning.packing import micro_batches
from isentrope.learning.sft_step import imitate
from isentrope.learning.tokens import flatten
from isentrope.methods.seal import Seal
from isentrope.models.load import load_folder, load_policy
from isentrope.models.lora import Base, LoraModel, merged, plain_weights, reference_of
from isentrope.models.policy import Policy
from isentrope.models.sources.find import base_folder
from tests.builders.episodes import make_episodes
from tests.builders.toy_runs import make_model
from tests.models.test_hugging_face import make_folder

pytest.importorskip("peft", reason="pip install 'isentrope[hf]'")
CPU = torch.device("cpu")
RUN = RunSettings(device="cpu")
FAMILIES = ["llama", "qwen2", "gpt_neox", "own"]


def folder_of(path: Path, family: str) -> Path:
    return make_model(path) if family == "own" else make_folder(path, family)


def adapted(path: Path, run: RunSettings = RUN, **changes: object) -> Policy:
    settings = replace(PolicySettings(model=str(path), lora_rank=4, lora_alpha=8.0), **changes)  # type: ignore[arg-type]
    return load_policy(settings, run)


def a_batch() -> TokenBatch:
    sequences, tokens = flatten(make_episodes(2))
    return next(iter(micro_batches(sequences, tokens, micro_tokens=10**6)))


def learn(policy: Policy, updates: int = 2) -> None:
    optimiser = make_optimiser(policy, LearnSettings())
    for _ in range(updates):
        imitate(policy, optimiser, make_episodes(2), 1e-2, 10**6)


@torch.no_grad()
def logp(policy: Policy) -> torch.Tensor:
    return policy.stats(a_batch()).logp_N


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Up to rounding: a model with adapters runs through its own layers, one without by those that are quicker."""
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_they_begin_as_the_base_learn_alone_and_come_back_from_a_folder(tmp_path: Path, family: str) -> None:
    base = folder_of(tmp_path / "base", family)
    plain, policy = load_folder(base, CPU, "float32"), adapted(base)
    same(logp(policy), logp(plain))
    learn(policy)
    learnt = logp(policy)
    assert float((learnt - logp(plain)).abs().max()) > 1e-3
    names = [name for name, p in policy.module.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    own = dict(plain.module.named_parameters())
    for name, weight in plain_weights(cast_module(policy)):
        if "norm" in name or "embed" in name:
            assert torch.equal(weight, own[name])
    (tmp_path / "a").mkdir()
    policy.save(tmp_path / "a")
    weights = {p.name for p in (tmp_path / "a").iterdir() if p.suffix == ".safetensors"}
    assert weights == {"adapter_model.safetensors"}
    again = load_folder(tmp_path / "a", CPU, "float32")
    assert isinstance(again.model, LoraModel)
    assert torch.equal(logp(again), learnt)
    # with lora_rank = 0 they become part of the weights
    whole = load_policy(PolicySettings(model=str(tmp_path / "a")), RUN)
    assert not isinstance(whole.model, LoraModel)
    torch.testing.assert_close(logp(whole), learnt, atol=1e-4, rtol=1e-4)


def cast_module(policy: Policy) -> torch.nn.Module:
    assert isinstance(policy.model, LoraModel)
    assert isinstance(policy.model.inner, torch.nn.Module)
    return policy.model.inner


def test_plain_weights_are_those_of_the_merged_model(tmp_path: Path) -> None:
    policy = adapted(make_folder(tmp_path / "base"))
    learn(policy)
    on_the_way = {name: weight.clone() for name, weight in plain_weights(cast_module(policy))}
    whole = dict(merged(policy).module.named_parameters())
    assert on_the_way.keys() == whole.keys()
    for name, weight in whole.items():
        torch.testing.assert_close(on_the_way[name], weight.detach(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("family", ["llama", "own"])
def test_the_reference_is_the_same_model_without_what_was_learnt(tmp_path: Path, family: str) -> None:
    base = folder_of(tmp_path / "base", family)
    first = logp(load_folder(base, CPU, "float32"))
    policy = adapted(base)
    (tmp_path / "reference").mkdir()
    policy.save(tmp_path / "reference")
    reference = reference_of(policy, tmp_path / "reference")
    assert isinstance(policy.model, LoraModel)
    assert list(policy.model.tuner.peft_config) == ["default"]  # nothing but the adapters switched off
    learn(policy)
    now = logp(policy)
    same(logp(reference), first)
    assert torch.equal(logp(policy), now)  # scoring the reference leaves the adapters on
    assert any(p.requires_grad for p in policy.module.parameters())
    with pytest.raises(EngineError, match="scored, not trained"):
        reference.stats(a_batch())

    # a run that begins with adapters has those as its reference
    (tmp_path / "warm").mkdir()
    policy.save(tmp_path / "warm")
    further = adapted(tmp_path / "warm")
    kept = reference_of(further, tmp_path / "warm")
    learn(further)
    assert torch.equal(logp(kept), now)
    after = logp(further)
    assert float((after - now).abs().max()) > 1e-3
    learn(further)  # the adapters still learn after the reference was asked
    assert float((logp(further) - after).abs().max()) > 1e-3
    assert torch.equal(logp(kept), now)
    (tmp_path / "last").mkdir()
    further.save(tmp_path / "last")
    assert torch.equal(logp(load_folder(tmp_path / "last", CPU, "float32")), logp(further))


def test_they_are_drawn_from_the_seed_alone(tmp_path: Path) -> None:
    base = make_folder(tmp_path / "base")

    def drawn(seed: int) -> torch.Tensor:
        model = adapted(base, RunSettings(device="cpu", seed=seed)).model
        assert isinstance(model, LoraModel)
        return torch.cat([weight.flatten() for _, weight in sorted(model.adapters().items())]).detach().clone()

    torch.manual_seed(7)
    before = torch.rand(1)
    torch.manual_seed(7)
    first = drawn(0)
    assert torch.equal(torch.rand(1), before)  # nobody else's random numbers were used
    torch.manual_seed(99)
    assert torch.equal(drawn(0), first)
    assert not torch.equal(drawn(1), first)


def test_adapters_are_float32_on_a_bfloat16_base(tmp_path: Path) -> None:
    policy = adapted(make_folder(tmp_path / "base"), RunSettings(device="cpu", weights="bfloat16"))
    assert policy.weights == torch.bfloat16
    for name, parameter in policy.module.named_parameters():
        assert parameter.dtype == (torch.float32 if "lora_" in name else torch.bfloat16)
    before = logp(policy)
    learn(policy)
    assert float((logp(policy) - before).abs().max()) > 1e-2


def test_the_precision_of_a_folder_is_kept_or_changed_as_asked(tmp_path: Path) -> None:
    base = make_folder(tmp_path / "base")
    held = load_folder(base, CPU, "auto", "bfloat16")
    assert (held.weights, held.dtype) == (torch.bfloat16, torch.bfloat16)
    frequencies = [b for name, b in held.module.named_buffers() if "inv_freq" in name]
    assert frequencies
    assert all(b.dtype == torch.float32 for b in frequencies)
    (tmp_path / "half").mkdir()
    held.save(tmp_path / "half")
    back = load_folder(tmp_path / "half", CPU, "auto")
    assert (back.weights, back.dtype) == (torch.float32, torch.float32)
    for a, b in zip(held.module.parameters(), back.module.parameters(), strict=True):
        assert torch.equal(a.float(), b)
    with pytest.raises(ConfigError, match="needs float32 weights"):
        load_folder(base, CPU, "float32", "bfloat16")


@pytest.mark.parametrize("family", ["llama", "own"])
def test_a_methods_gradient_reaches_them_through_hidden_states(tmp_path: Path, family: str) -> None:
    policy = adapted(folder_of(tmp_path / "base", family))
    learn(policy, 1)  # B is zero at first, and hands no gradient on to A
    policy.module.zero_grad()
    sequences, tokens = flatten(make_episodes(2))
    [batch] = micro_batches(sequences, tokens, micro_tokens=10**6)
    seal = Seal()
    seal.begin(1, tokens)
    term = seal.loss(batch, policy.stats(batch))
    assert term is not None
    term.loss.backward()
    reached = [p.grad for p in policy.module.parameters() if p.requires_grad]
    assert all(grad is not None and float(grad.abs().max()) > 0 for grad in reached)
    assert all(p.grad is None for p in policy.module.parameters() if not p.requires_grad)


def test_a_separate_critic_has_adapters_of_its_own(tmp_path: Path) -> None:
    policy = adapted(make_folder(tmp_path / "base"))
    critic = Critic(policy, CriticSettings(), LearnSettings())
    with torch.no_grad():
        critic.head.weight.fill_(0.1)
    batch, before = a_batch(), logp(policy)
    for _ in range(3):
        loss = ((critic.values(batch, None) - 1) ** 2).mean()
        loss.backward()
        critic.optimiser.step(float(loss.detach()), 1e-2)
    assert torch.equal(logp(policy), before)
    assert all("lora_" in name for name in critic.state_dict()["body"])
    other = Critic(policy, CriticSettings(), LearnSettings())
    other.load_state_dict(critic.state_dict())
    assert torch.equal(other.values(batch, None), critic.values(batch, None))


def test_a_changed_base_is_refused(tmp_path: Path) -> None:
    base = make_folder(tmp_path / "base")
    (tmp_path / "a").mkdir()
    adapted(base).save(tmp_path / "a")
    other = load_folder(base, CPU, "float32")
    with torch.no_grad():
        next(iter(other.module.parameters()))[3, 5] += 0.5
    other.save(base)
    with pytest.raises(EngineError, match="weights are not the same any more"):
        load_folder(tmp_path / "a", CPU, "float32")
    record = json.loads((tmp_path / "a/base.json").read_text())
    (tmp_path / "a/base.json").write_text("[]")
    with pytest.raises(EngineError, match="on which model they stand"):
        load_folder(tmp_path / "a", CPU, "float32")
    (tmp_path / "a/base.json").write_text(json.dumps(record | {"folder": "gone", "name": str(tmp_path / "gone")}))
    with pytest.raises(EngineError, match="gone"):
        load_folder(tmp_path / "a", CPU, "float32")


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    base = make_folder(tmp_path / "base")
    with pytest.raises(ConfigError, match=r"no linear layer called lm_head; it has down_proj, gate_proj, k_proj"):
        adapted(base, lora_targets=("lm_head", "q_proj"))
    only = adapted(base, lora_targets=("q_proj",))
    assert {n.split(".")[-4] for n, p in only.module.named_parameters() if p.requires_grad} == {"q_proj"}
    (tmp_path / "a").mkdir()
    only.save(tmp_path / "a")
    with pytest.raises(
        ConfigError, match=r"policy.lora_rank = 8, but policy.model has adapters with 4.*isentrope export"
    ):
        adapted(tmp_path / "a", lora_rank=8)
    with pytest.raises(ConfigError, match="random weights have to learn"):
        load_policy(PolicySettings(model="new", lora_rank=4), RUN)


def test_adapters_that_stand_on_themselves_are_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    Base(str(tmp_path), str(tmp_path)).save(tmp_path)
    with pytest.raises(EngineError, match="stand on other adapters"):
        base_folder(tmp_path)
