"""Weights go from the policy's memory into vLLM: at the start, after an update, merged, for other architectures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.config.schema import PolicySettings, RunSettings
from isentrope.core.errors import EngineError
from isentrope.engines import vllm as vllm_module
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.models.token_head import log_probs
from tests.engines.vllm.helpers import TOLERANCE, assert_same, by_torch, config_of, requests_of, vllm_engine
from tests.models.helpers import PHRASES, small_policy


def pocket() -> Policy:
    return load_policy(PolicySettings(), RunSettings(device="cpu"))


def shake(policy: Policy, seed: int = 1) -> None:
    """What an update does to the weights, only larger."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))


def test_refresh_takes_the_new_weights_and_forgets_what_the_old_ones_computed() -> None:
    policy = pocket()
    requests = requests_of(policy, 8, shortest=70)  # long enough that the prefix cache holds something of them
    with vllm_engine(policy) as engine:
        before = engine.sample(requests)
        assert_same(before, by_torch(policy, requests))
        for seed in (1, 2):  # twice: what was put back after the first must take the second
            shake(policy, seed)
            expected = by_torch(policy, requests)
            stale = engine.sample(requests)
            apart = max(float(np.abs(a.logprobs[0] - b.logprobs[0])) for a, b in zip(stale, expected, strict=True))
            assert apart > 100 * TOLERANCE
            engine.refresh()
            engine.notes()
            assert_same(engine.sample(requests), expected)
            assert engine.notes()["cached"] == 0.0


def test_conversations_that_do_not_fit_wait_and_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pages for a few conversations only, vLLM takes them away from some and computes those again later."""
    policy = pocket()
    monkeypatch.setattr(vllm_module, "cache_bytes", lambda full, config: 2 * 4 * 2 * 32 * 4 * 32 * 20)  # 20 pages of 32
    requests = requests_of(policy, 12, tokens=60)
    with vllm_engine(policy, config_of(batch=12, length=256)) as engine:
        scheduler = engine._engine.engine_core.engine_core.scheduler
        taken, preempt = [], scheduler._preempt_request
        scheduler._preempt_request = lambda *a, **k: (taken.append(1), preempt(*a, **k))[1]
        assert_same(engine.sample(requests), by_torch(policy, requests))
        assert taken


def test_adapters_are_merged_on_the_way() -> None:
    pytest.importorskip("peft", reason="adapters need peft")
    policy = load_policy(PolicySettings(lora_rank=4), RunSettings(device="cpu"))
    requests = requests_of(policy, 4)
    with vllm_engine(policy) as engine:
        engine.sample(requests)
        shake(policy)
        expected = by_torch(policy, requests)
        assert any(a.ids.tolist() != b.ids.tolist() for a, b in zip(engine.sample(requests), expected, strict=True))
        engine.refresh()
        assert_same(engine.sample(requests), expected)


def test_weights_that_did_not_arrive_are_noticed_at_the_first_response() -> None:
    policy = pocket()
    with vllm_engine(policy) as engine:
        shake(policy)  # as if vLLM had not known the names
        with pytest.raises(EngineError, match="did not take all of this model's weights"):
            engine.sample(requests_of(policy, 4))


@pytest.mark.parametrize("tied", [True, False])
def test_a_hugging_face_model_with_biases_and_a_head_of_its_own(tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    from isentrope.models.hugging_face import HuggingFaceModel
    from isentrope.models.sources.pocket import PocketTokens

    torch.manual_seed(0)
    tokens = PocketTokens(PHRASES)
    shape = transformers.Qwen2Config(
        vocab_size=tokens.size,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
    )
    lm = transformers.Qwen2ForCausalLM(shape).eval()
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.mul_(4).add_(0.02 * torch.randn(parameter.shape))  # far from uniform, biases not 0
    policy = replace(small_policy(), model=HuggingFaceModel(lm), tokenizer=tokens)
    requests = requests_of(policy, 5)
    with vllm_engine(policy) as engine:
        assert_same(engine.sample(requests), by_torch(policy, requests))
        shake(policy)
        engine.refresh()
        assert_same(engine.sample(requests), by_torch(policy, requests))


def test_bfloat16_is_near_the_trainer_at_the_start_and_after_an_update() -> None:
    """Layers in bfloat16, the head in float32: a few thousandths of a nat; the weights of before would be far off."""
    policy = replace(pocket(), dtype=torch.bfloat16)
    requests = requests_of(policy, 8)
    with vllm_engine(policy) as engine:
        for seed in (1, 2):
            for request, sampled in zip(requests, engine.sample(requests), strict=True):
                ids = torch.tensor([[*request.prompt, *sampled.ids.tolist()]])
                with torch.no_grad(), policy.compute():
                    hidden = policy.model.hidden(ids, torch.arange(ids.shape[1])[None], torch.zeros_like(ids))
                at = hidden[0, len(request.prompt) - 1 : -1]
                words = log_probs(at, policy.model.head_weight(), torch.ones(len(at)))
                chosen = words.gather(1, ids[0, len(request.prompt) :, None]).squeeze(1).detach().numpy()
                assert 0 < float(np.abs(chosen - sampled.logprobs).mean()) < 0.05
            shake(policy, seed)
            engine.refresh()
