"""Adapters against all weights: sampling and updating, the same work in the same run, random weights in bfloat16.

    python -m bench.adapters                          # one GPU: Qwen2.5-1.5B's shape, rank 16
    python -m bench.adapters --shapes qwen2.5-1.5b qwen2.5-7b --rank 16
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
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.update import FORMS, Setup, Work, backward, conversations, work_of
from isentrope.bench.sampling import (
    SHAPES,
    TALK,
    TINY_TALK,
    EngineSampler,
    SamplingWork,
    quickest_engine,
    random_policy,
    rate_of,
    wait,
)
from isentrope.learning.optimiser import Optimiser
from isentrope.models.lora import Base, LoraModel
from isentrope.models.policy import Policy

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WITHOUT_STEP = 6_000_000_000  # parameters from which on AdamW is left out


def with_adapters(policy: Policy, rank: int) -> Policy:
    from peft import LoraConfig

    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, bias="none", target_modules=TARGETS)
    model = LoraModel(policy.model, config, Base("random", "random"))
    model.draw(0)
    for name, weight in model.adapters().items():  # as if they had learnt a little
        if "lora_B" in name:
            weight.data.normal_(0, 1e-3)
    return replace(policy, model=model)


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


def measured(policy: Policy, talk: SamplingWork, work: Work, micro: int, rounds: int) -> dict[str, float]:
    words = policy.model.head_weight().shape[0]
    engine = quickest_engine(policy, talk.conversations, talk.room, 0.2)
    sampling = rate_of(EngineSampler(engine), talk, words, rounds)
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
        "sampling": sampling,
        "update": work.real / statistics.median(updates),
        "update_gib": peak,
    }


def free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["qwen2.5-1.5b"], choices=list(SHAPES))
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro", type=int, default=16_384, help="tokens of one forward and backward pass")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {}
    for shape in options.shapes:
        tiny = shape == "tiny"
        talk = TINY_TALK if tiny else TALK
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
            print(f"{shape:12} {what:9} all weights {whole:9,.0f} tokens/s, adapters {own:9,.0f}: {own / whole:.2f} "
                  f"(bar {bar})", flush=True)  # fmt: skip
        sizes = [found[side]["update_gib"] for side in ("all weights", "adapters")]
        print(f"{shape:12} update's peak of memory: {sizes[0]:.1f} and {sizes[1]:.1f} GiB", flush=True)
        del policy
        free()
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "adapters.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


if __name__ == "__main__":
    main()
