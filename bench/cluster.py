"""Samplers in processes of their own against one engine in the learner's: weights renewed, tokens a second, agreement.

    python -m bench.cluster --shape smollm2-135m --engines 1 2          # CPUs: weights by shared memory
    python -m bench.cluster --shape qwen2.5-1.5b --engines 1            # one GPU: learner and sampler, CUDA IPC
    python -m bench.cluster --shape qwen2.5-1.5b --engines 1 2 --rank 16

start    seconds until all samplers have made their engines and their weights are checked
sync     seconds from new weights in the learner until every sampler has them, with checksums and the probe; of that
         `sums` is the time for the checksums on one side alone. The median of some rounds after a first one.
tokens/s sampled in conversations of some turns, all of them answered in every turn
same     share of the sampled tokens that one engine in this process draws too, and the largest difference of log-probs
         over those in front of the first that differs
memory   of the GPU in use with the samplers there, less what was in use before
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isentrope.bench.sampling import SHAPES, EngineSampler, SamplingWork, never, random_policy, seconds_of, wait
from isentrope.cluster.checks import checksums
from isentrope.cluster.engine import ClusterEngine
from isentrope.cluster.weights import moving_tensors, take_apart
from isentrope.config.load import load_config
from isentrope.config.schema import PolicySettings, RunConfig
from isentrope.core.engine import Engine, Request, Sampled
from isentrope.engines.registry import make_engine
from isentrope.models.lora import Base, with_adapters
from isentrope.models.policy import Policy

Row = dict[str, Any]


def policy_of(shape: str, rank: int) -> Policy:
    """The same at every call."""
    policy = random_policy(shape)
    return with_adapters(policy, PolicySettings(lora_rank=rank), 0, Base(shape, shape)) if rank else policy


def config_for(work: SamplingWork, device: str, engines: int) -> RunConfig:
    kind = "processes" if engines else "local"
    settings = [f"run.device={device}", f"agent.max_response={work.new}", f"agent.max_context={work.room}"]
    settings += [f"rollout.batch={work.conversations}", f"cluster.kind={kind}", f"cluster.engines={max(1, engines)}"]
    return load_config(None, settings)


def asked(work: SamplingWork, words: int) -> list[Request]:
    rng = np.random.default_rng(3)
    return [
        Request(slot, rng.integers(9, words, 40).tolist(), rng.random(work.new, dtype=np.float32), 1.0, never)
        for slot in range(work.conversations)
    ]


def answers(engine: Engine, work: SamplingWork, words: int) -> list[Sampled]:
    engine.open(range(work.conversations))
    sampled = engine.sample(asked(work, words))
    engine.open(())
    return sampled


def agreement(ours: Sequence[Sampled], theirs: Sequence[Sampled]) -> tuple[float, float]:
    same, apart = 0, 0.0
    for mine, other in zip(ours, theirs, strict=True):
        equal = mine.ids == other.ids
        front = len(equal) if equal.all() else int(np.argmin(equal))
        same += front
        if front:
            apart = max(apart, float(np.abs(mine.logprobs[:front] - other.logprobs[:front]).max()))
    return same / sum(len(mine.ids) for mine in ours), apart


@torch.no_grad()
def change(policy: Policy, times: float) -> None:
    """Powers of two are exact, so there and back again the weights are what they were."""
    tensors = take_apart(policy)[1]
    for number in moving_tensors(policy, tensors):
        tensors[number].mul_(times)


def syncs(engine: ClusterEngine, policy: Policy, rounds: int) -> float:
    seconds: list[float] = []
    for number in range(2 * rounds):
        change(policy, 0.5 if number % 2 else 2.0)
        wait()
        begin = time.perf_counter()
        engine.refresh()
        engine.open([0])  # waits until all have been checked
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def sums(policy: Policy) -> float:
    tensors = take_apart(policy)[1]
    moving = [tensors[number] for number in moving_tensors(policy, tensors)]
    checksums(moving)
    begin = time.perf_counter()
    checksums(moving)
    return time.perf_counter() - begin


def used(policy: Policy) -> int:
    if policy.device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(policy.device)
    return total - free


def row_of(policy: Policy, work: SamplingWork, engines: int, rounds: int, local: list[Sampled], rate: float) -> Row:
    words, before, begin = policy.model.head_weight().shape[0], used(policy), time.perf_counter()
    engine = ClusterEngine(policy, config_for(work, policy.device.type, engines))
    try:
        row: Row = {"engines": engines, "start": time.perf_counter() - begin}
        row["same"], row["apart"] = agreement(local, answers(engine, work, words))
        sampled = [work.tokens / seconds_of(EngineSampler(engine), work, words, seed) for seed in range(rounds + 1)]
        row["tokens/s"] = statistics.median(sampled[1:])
        row["of local"] = row["tokens/s"] / rate
        row["sync"], row["sums"] = syncs(engine, policy, rounds), sums(policy)
        row["memory"] = (used(policy) - before) / 2**30
        row |= {f"note {key}": value for key, value in engine.notes().items()}
    finally:
        engine.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="smollm2-135m", choices=list(SHAPES))
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--conversations", type=int, default=128)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--new", type=int, default=64, help="tokens of a response")
    parser.add_argument("--read", type=int, default=40, help="tokens between two responses")
    parser.add_argument("--rank", type=int, default=0, help="of adapters; 0: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the rows there too")
    given = parser.parse_args()
    work = SamplingWork("bench", given.conversations, given.turns, given.new, given.read, 200, 300)
    policy = policy_of(given.shape, given.rank)
    words = policy.model.head_weight().shape[0]
    config = config_for(work, policy.device.type, 0)
    if policy.device.type == "cuda":  # as much room for its cache as all samplers have together
        config = replace(config, engine=replace(config.engine, options={"memory": 0.4}))
    local = make_engine(config, policy)
    first = answers(local, work, words)
    rates = [work.tokens / seconds_of(EngineSampler(local), work, words, seed) for seed in range(given.rounds + 1)]
    rate = statistics.median(rates[1:])
    local.close()
    del local, policy  # whose weights the native engine has joined: samplers would find them so
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    policy = policy_of(given.shape, given.rank)
    print(f"{given.shape} on {policy.device}, {torch.get_num_threads()} threads, one engine here: {rate:,.0f} tokens/s")
    rows = [row_of(policy, work, engines, given.rounds, first, rate) for engines in given.engines]
    for row in rows:
        print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    if given.json:
        given.json.write_text(json.dumps({"shape": given.shape, "local tokens/s": rate, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
