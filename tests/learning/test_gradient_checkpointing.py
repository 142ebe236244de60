"""Computing activations twice: the same gradient, fewer of them kept, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request
from isentrope.core.types import TokenBatch
from isentrope.engines.torch import TorchEngine
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.load import load_folder
from isentrope.models.policy import Policy
from tests.builders.episodes import make_episodes
from tests.engines.test_torch import never
from tests.models.helpers import small_policy

FAMILIES = ["llama", "qwen2", "gpt_neox", "own"]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Policy]:
    def policy(family: str) -> Policy:
        if family == "own":
            return small_policy()
        pytest.importorskip("transformers")
        from tests.models.test_hugging_face import make_folder

        path = tmp_path_factory.getbasetemp() / f"checkpointing-{family}"
        if not path.exists():
            make_folder(path, family)
        return load_folder(path, torch.device("cpu"), "float32")

    return policy


def a_batch() -> TokenBatch:
    sequences, tokens = flatten(make_episodes(3))
    return next(iter(micro_batches(sequences, tokens, micro_tokens=10**6)))


def gradient_and_kept(policy: Policy) -> tuple[torch.Tensor, int]:
    """The gradient of all weights, and how many numbers were kept for the backward pass."""
    kept = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    policy.module.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        stats = policy.stats(a_batch())
        loss = stats.logp_N.sum() + stats.entropy_N.sum()
    counted = kept
    loss.backward()
    return torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None]), counted


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_the_same_and_less_is_kept(make: Callable[[str], Policy], family: str) -> None:
    policy = make(family)
    plain, kept = gradient_and_kept(policy)
    policy.model.compute_twice()
    twice, kept_twice = gradient_and_kept(policy)
    assert torch.equal(plain, twice)
    assert kept_twice < 0.7 * kept


@pytest.mark.parametrize("family", ["llama", "own"])
def test_sampling_still_uses_its_cache(make: Callable[[str], Policy], family: str) -> None:
    policy, again = make(family), make(family)
    again.model.compute_twice()
    answers = []
    for one in (policy, again):
        engine = TorchEngine(one)
        engine.open([0])
        numbers = np.linspace(0.1, 0.9, 6, dtype=np.float32)
        answers.append(engine.sample([Request(0, [12, 13, 14], numbers, 1.0, never)])[0])
    assert answers[0].ids.tolist() == answers[1].ids.tolist()
    assert answers[0].logprobs.tolist() == answers[1].logprobs.tolist()


def test_dropout_stays_off(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tests.models.test_hugging_face import CHATML, make_tokenizer

    # OPT has dropout in the layer itself, which is what transformers' switch turns on
    tokenizer = make_tokenizer(CHATML)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2}
    config = transformers.OPTConfig(**sizes, num_attention_heads=4, max_position_embeddings=512, dropout=0.5,
                                    word_embed_proj_dim=32, attention_dropout=0.5)  # fmt: skip
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = load_folder(tmp_path, torch.device("cpu"), "float32")
    plain = gradient_and_kept(policy)[0]
    policy.model.compute_twice()
    assert torch.equal(gradient_and_kept(policy)[0], plain)
