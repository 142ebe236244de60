"""Adapters against all weights: sampling and updating, the same work in the same run, random weights in bfloat16.

    python -m bench.adapters                          # one GPU: Qwen2.5-1.5B's shape, rank 16
    python -m bench.adapters --shapes 1.5B 7B --rank 16
    python -m bench.adapters --shapes tiny            # a CPU: a small model in float32, to see that it runs

sampling   128 conversations of 12 turns: 32 new tokens each, 80 read between; the native engine (on a CPU torch's).
update     64 conversations of 5 to 30 turns, in groups of 8: forward, loss, backward, AdamW over what learns. At 7B and
           above without AdamW on either side: the float32 copies of all weights would not fit beside them.
Each side is timed in turn, `--rounds` times after one that is not; the medians and their ratio are printed. Bars:
sampling 0.9, update 0.85 of all weights' rate.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.rollout import AnyWord, never
from bench.update import FORMS, Setup, Work, backward, conversations, work_of
from isentrope.core.engine import Engine, Request
from isentrope.engines.native.engine import FastEngine
from isentrope.engines.torch import TorchEngine
from isentrope.learning.optimiser import Optimiser
from isentrope.models.hugging_face import HuggingFaceModel, register_attention
from isentrope.models.lora import Base, LoraModel
from isentrope.models.model_adapter import adapt_model
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET

NAMES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "tie_word_embeddings")  # fmt: skip
SHAPES = {  # of Qwen2.5
    "tiny": (503, 64, 96, 2, 4, 2, True),
    "0.5B": (151_936, 896, 4864, 24, 14, 2, True),
    "1.5B": (151_936, 1536, 8960, 28, 12, 2, True),
    "3B": (151_936, 2048, 11_008, 36, 16, 2, True),
    "7B": (152_064, 3584, 18_944, 28, 28, 4, False),
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WITHOUT_STEP = 6_000_000_000  # parameters from which on AdamW is left out


@dataclass(frozen=True)
class Talk:
    conversations: int = 128
    turns: int = 12
    new: int = 32
    read: int = 80
    first: int = 300


def random_policy(shape: str) -> Policy:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    cuda = torch.cuda.is_available()
    device, dtype = torch.device("cuda" if cuda else "cpu"), torch.bfloat16 if cuda else torch.float32
    config: Any = Qwen2Config(
        **dict(zip(NAMES, SHAPES[shape], strict=True)), max_position_embeddings=32_768, rope_theta=1e6,
        attn_implementation=register_attention(),
    )  # fmt: skip
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = HuggingFaceModel(Qwen2ForCausalLM(config)).eval()
    finally:
        torch.set_default_dtype(before)
    return Policy(model, AnyWord.load(POCKET), device, dtype)


def with_adapters(policy: Policy, rank: int) -> Policy:
    from peft import LoraConfig

    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, bias="none", target_modules=TARGETS)
    model = LoraModel(policy.model, config, Base("random", "random"))
    model.draw(0)
    for name, weight in model.adapters().items():  # as if they had learnt a little
        if "lora_B" in name:
            weight.data.normal_(0, 1e-3)
    return replace(policy, model=model)


def make_engine(policy: Policy, talk: Talk) -> Engine:
    parts = adapt_model(policy.model)
    if policy.device.type == "cpu" or parts is None:
        return TorchEngine(policy)
    return FastEngine(policy, parts, talk.conversations, talk.first + talk.turns * (talk.new + talk.read) + 64, 0.2)


def spoken(engine: Engine, talk: Talk, words: int) -> float:
    """Seconds of all conversations."""
    rng, slots = np.random.default_rng(0), range(talk.conversations)
    prompts = [rng.integers(300 % words, words, talk.first).tolist() for _ in slots]
    engine.refresh()
    engine.open(slots)
    wait()
    began = time.perf_counter()
    for _ in range(talk.turns):
        asked = [Request(i, prompts[i], rng.random(talk.new, dtype=np.float32), 1.0, never) for i in slots]
        for i, sampled in enumerate(engine.sample(asked)):
            prompts[i] = [*prompts[i], *sampled.ids.tolist(), *rng.integers(0, words, talk.read).tolist()]
    wait()
    return time.perf_counter() - began


def learnt(setup: Setup, work: Work, optimiser: Optimiser | None) -> float:
    """Seconds of an update."""
    wait()
    began = time.perf_counter()
    backward(setup, work, FORMS[-2])  # packed: what these conversations share is too little to be computed once
    if optimiser is not None:
        optimiser.step(0.0, 1e-6)
    else:
        setup.policy.module.zero_grad()
    wait()
    return time.perf_counter() - began


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measured(policy: Policy, talk: Talk, work: Work, micro: int, rounds: int) -> dict[str, float]:
    words = policy.model.head_weight().shape[0]
    engine = make_engine(policy, talk)
    sampling = [spoken(engine, talk, words) for _ in range(rounds + 1)][1:]
    engine.close()
    del engine
    free()
    setup = Setup(policy, micro, policy.device.type == "cuda")
    optimiser = None
    if policy.size < WITHOUT_STEP:
        optimiser = Optimiser(p for p in policy.module.parameters() if p.requires_grad)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    updates = [learnt(setup, work, optimiser) for _ in range(rounds + 1)][1:]
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    del optimiser
    free()
    return {
        "sampling": talk.conversations * talk.turns * talk.new / statistics.median(sampling),
        "update": work.real / statistics.median(updates),
        "update_gib": peak,
    }


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["1.5B"], choices=list(SHAPES))
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro", type=int, default=16_384, help="tokens of one forward and backward pass")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {}
    for shape in options.shapes:
        tiny = shape == "tiny"
        talk = Talk(4, 2, 4, 5, 30) if tiny else Talk()
        policy = random_policy(shape)
        words = policy.model.head_weight().shape[0]
        work = work_of(conversations("episodes", 1 if tiny else 8, words, tiny))
        micro = 512 if tiny else options.micro
        found = {"all weights": measured(policy, talk, work, micro, options.rounds)}
        policy = with_adapters(policy, options.rank)
        found["adapters"] = measured(policy, talk, work, micro, options.rounds)
        result[shape] = found
        for what, bar in (("sampling", 0.9), ("update", 0.85)):
            own, whole = found["adapters"][what], found["all weights"][what]
            print(f"{shape:5} {what:9} all weights {whole:9,.0f} tokens/s, adapters {own:9,.0f}: {own / whole:.2f} "
                  f"(bar {bar})", flush=True)  # fmt: skip
        sizes = [found[side]["update_gib"] for side in ("all weights", "adapters")]
        print(f"{shape:5} update's peak of memory: {sizes[0]:.1f} and {sizes[1]:.1f} GiB", flush=True)
        del policy
        free()
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "adapters.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


if __name__ == "__main__":
    main()
